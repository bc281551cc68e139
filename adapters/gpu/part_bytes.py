"""The bytes of a tensor, where they stand."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...domain.errors import StateError
from .libraries import tensor_over

Bytes = npt.NDArray[np.uint8]


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

    def on_host(self, start: int, end: int) -> Bytes | None:
        """Bytes [start, end) where they stand, to be written to; None if that is on a device."""
        self._check_range(start, end)
        return None if self._host is None else self._host[start:end]

    def in_place(self, start: int, end: int) -> Tensor:
        """Bytes [start, end) where they stand."""
        self._check_range(start, end)
        return self._bytes[start:end]

    def _check_range(self, start: int, end: int) -> None:
        if not 0 <= start <= end <= len(self):
            raise StateError(f"{self.name} has {len(self)} bytes and no [{start}, {end})")

    def _check(self, start: int, end: int, data: Bytes) -> None:
        self._check_range(start, end)
        if data.dtype != np.uint8 or data.shape != (end - start,):
            raise StateError(
                f"{self.name}: a buffer of {data.shape} {data.dtype} is not {end - start} bytes"
            )
