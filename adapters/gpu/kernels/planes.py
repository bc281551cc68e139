"""Byte planes of a part on its device: split before a save, joined after a restore."""

import torch
from torch import Tensor

from .triton_module import triton_kernels


def split_planes(part: Tensor, width: int, into: Tensor) -> None:
    """Cut a part into its byte planes.

    Args:
        part: flat bytes, whole items; not modified.
        width: bytes of an item.
        into: bytes of shape (width, items), contiguous, on the part's device; plane 0 is the
            lowest byte of each item.
    """
    _check(part, width, into)
    kernels = triton_kernels(part.device)
    if kernels is None or not _are_items(part, width):
        for plane in range(width):
            into[plane].copy_(part[plane::width])
        return
    with torch.cuda.device(part.device):
        kernels.split(part, width, into)


def join_planes(planes: Tensor, into: Tensor) -> None:
    """Put a part together from its byte planes.

    Args:
        planes: bytes of shape (width, items), contiguous; not modified.
        into: the part, flat bytes, on the planes' device.
    """
    width = planes.shape[0]
    _check(into, width, planes)
    kernels = triton_kernels(into.device)
    if kernels is None or not _are_items(into, width):
        for plane in range(width):
            into[plane::width].copy_(planes[plane])
        return
    with torch.cuda.device(into.device):
        kernels.join(planes, into)


def _are_items(part: Tensor, width: int) -> bool:
    """Whether the kernels can read the part as items: they load them whole."""
    return width in (2, 4, 8) and len(part) > 0 and part.data_ptr() % width == 0


def _check(part: Tensor, width: int, planes: Tensor) -> None:
    assert part.dtype == planes.dtype == torch.uint8, f"{part.dtype} and {planes.dtype}, not bytes"
    assert part.ndim == 1, f"a part of shape {tuple(part.shape)} is not flat"
    assert width * planes.shape[1] == len(part), f"{tuple(planes.shape)} of {len(part)} bytes"
    assert planes.shape[0] == width, f"{planes.shape[0]} planes of items of {width} bytes"
    assert part.is_contiguous(), "a part with gaps"
    assert planes.is_contiguous(), "planes with gaps"
