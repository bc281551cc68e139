"""The bytes of a tensor, where they stand."""

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...domain.errors import StateError
from .libraries import tensor_over

Bytes = npt.NDArray[np.uint8]

SWAPPED_BYTES: Final = 1 << 20
"""That pass through a scratch buffer at once: in a core's cache, or worth a copy of a device."""


def flat_bytes(tensor: Tensor) -> Tensor:
    """The tensor's bytes as a flat uint8 tensor over the same memory.

    Raises:
        StateError: the tensor is not contiguous, so its bytes are not one block.
    """
    if not tensor.is_contiguous():
        raise StateError(f"a tensor of strides {tensor.stride()} is not one block of bytes")
    return tensor.view(-1).view(torch.uint8)


class PartBytes:
    """Reads and writes one part of a state as bytes; on a CPU without any copy in between."""

    def __init__(self, name: str, tensor: Tensor):
        """`tensor` is contiguous and stays the owner's."""
        self.name = name
        self._bytes = flat_bytes(tensor)
        on_cpu = self._bytes.device.type == "cpu"
        self._host: Bytes | None = self._bytes.numpy() if on_cpu else None

    def __len__(self) -> int:
        return self._bytes.numel()

    def read(self, start: int, end: int, into: Bytes) -> None:
        """Copy bytes [start, end) out; blocks until they are there."""
        self._check(start, end, into)
        if self._host is not None:
            np.copyto(into, self._host[start:end])
        else:
            tensor_over(into).copy_(self._bytes[start:end])

    def write(self, start: int, end: int, data: Bytes) -> None:
        """Copy bytes [start, end) into place; `data` is free on return."""
        self._check(start, end, data)
        if self._host is not None:
            np.copyto(self._host[start:end], data)
        else:
            # torch warns of arrays that it could write through, though this copy only reads.
            readable = data if data.flags.writeable else data.copy()
            self._bytes[start:end].copy_(tensor_over(readable))

    def to_read(self, start: int, end: int, into: Bytes) -> Bytes | None:
        """What `read` copies, where it stands; None if that is on a device."""
        self._check(start, end, into)
        return None if self._host is None else self._host[start:end]

    def on_host(self, start: int, end: int) -> Bytes | None:
        """Bytes [start, end) where they stand, to be written to; None if that is on a device."""
        self._check_range(start, end)
        return None if self._host is None else self._host[start:end]

    def copy_to(self, start: int, end: int, other: "PartBytes") -> None:
        """Copy bytes [start, end) over all of `other`; where one is on a device, issued only."""
        self._check_pair(start, end, other)
        _issue(self, start, other, 0, end - start)

    def copy_from(self, start: int, end: int, other: "PartBytes") -> None:
        """Copy all of `other` over bytes [start, end); where one is on a device, issued only."""
        self._check_pair(start, end, other)
        _issue(other, 0, self, start, end - start)

    def swap(self, start: int, end: int, other: "PartBytes") -> None:
        """Exchange bytes [start, end) with all of `other`, as `copy_to` and `copy_from` copy."""
        self._check_pair(start, end, other)
        size = min(end - start, SWAPPED_BYTES)
        scratch = PartBytes(
            self.name, torch.empty(size, dtype=torch.uint8, device=self._bytes.device)
        )
        for at in range(0, end - start, SWAPPED_BYTES):
            count = min(SWAPPED_BYTES, end - start - at)
            _issue(self, start + at, scratch, 0, count)
            _issue(other, at, self, start + at, count)
            _issue(scratch, 0, other, at, count)

    def in_place(self, start: int, end: int) -> Tensor:
        """Bytes [start, end) where they stand."""
        self._check_range(start, end)
        return self._bytes[start:end]

    def _check_range(self, start: int, end: int) -> None:
        if not 0 <= start <= end <= len(self):
            raise StateError(f"{self.name} has {len(self)} bytes and no [{start}, {end})")

    def _check_pair(self, start: int, end: int, other: "PartBytes") -> None:
        self._check_range(start, end)
        if len(other) != end - start:
            raise StateError(f"{self.name}: a copy of {len(other)} bytes is not {end - start}")

    def _check(self, start: int, end: int, data: Bytes) -> None:
        self._check_range(start, end)
        if data.dtype != np.uint8 or data.shape != (end - start,):
            raise StateError(
                f"{self.name}: a buffer of {data.shape} {data.dtype} is not {end - start} bytes"
            )


def _issue(source: PartBytes, start: int, target: PartBytes, at: int, count: int) -> None:
    """Copy `count` bytes from `start` on over those of `target` from `at` on.

    On the host by numpy, which stays on the calling thread: torch would wake threads of its own.
    Else on the current stream, after what was issued there before.
    """
    read, written = source.on_host(start, start + count), target.on_host(at, at + count)
    if read is not None and written is not None:
        np.copyto(written, read)
    else:
        into = target.in_place(at, at + count)
        into.copy_(source.in_place(start, start + count), non_blocking=True)
