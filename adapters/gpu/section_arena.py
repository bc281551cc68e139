"""All sections of a slot in one block of memory, and copies of that block.

A capture or a restore is then one copy however many layers a model has, and a copy's buffer fits
every later capture of the same slot: in a steady state nothing is allocated.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ...domain.anchor import SectionsHandle
from ...domain.errors import StateError
from .owned_layer import OwnedLayer

ALIGNMENT_BYTES: Final = 64
"""What torch's own allocators give at least: sections must not become slower to compute with."""


@torch.inference_mode(False)  # a restore writes the arena outside inference mode as well
def move_into_arena(layers: Sequence[OwnedLayer], device: torch.device) -> Tensor:
    """Move every section of the layers into one new, zeroed block; the layers keep it from now on.

    Returns:
        The block: flat uint8, sections in the layers' order, each aligned.
    """
    places: list[tuple[OwnedLayer, str, torch.dtype, torch.Size, int]] = []
    end = 0
    for layer in layers:
        for section in layer.section_tensors():
            start = math.ceil(end / ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            tensor = section.tensor
            end = start + tensor.numel() * tensor.element_size()
            places.append((layer, section.name, tensor.dtype, tensor.shape, start))
    arena = torch.zeros(end, dtype=torch.uint8, device=device)
    for layer, name, dtype, shape, start in places:
        nbytes = shape.numel() * dtype.itemsize
        layer.rehouse(name, arena[start : start + nbytes].view(dtype).view(shape))
    return arena


@dataclass(slots=True)
class _Copy:
    data: Tensor
    line: int


class SectionCopies:
    """Copies of an arena, by handle, with the line each was taken at.

    A copy is never memory that a forward writes: what was captured stays as it was.
    """

    def __init__(self, arena: Tensor):
        self._arena = arena
        self._live: dict[SectionsHandle, _Copy] = {}
        self._free: list[Tensor] = []
        self._numbers = itertools.count(1)

    def capture(self, line: int, into: SectionsHandle | None) -> SectionsHandle:
        """Copy the arena; into a live handle's buffer, a free one, or else a new one."""
        if into is None:
            handle = SectionsHandle(next(self._numbers))
            data = self._free.pop() if self._free else torch.empty_like(self._arena)
            self._live[handle] = _Copy(data, line)
        else:
            handle = into
            self._find(handle).line = line
        self._live[handle].data.copy_(self._arena)
        return handle

    def restore(self, handle: SectionsHandle) -> int:
        """Copy a capture back into the arena; the line it was taken at."""
        copy = self._find(handle)
        self._arena.copy_(copy.data)
        return copy.line

    def release(self, handle: SectionsHandle) -> None:
        """Move the handle's buffer to the free list."""
        self._free.append(self._find(handle).data)
        del self._live[handle]

    def counts(self) -> tuple[int, int]:
        """Live handles, and bytes of all buffers, free ones included."""
        buffers = len(self._live) + len(self._free)
        return len(self._live), buffers * self._arena.numel()

    def _find(self, handle: SectionsHandle) -> _Copy:
        copy = self._live.get(handle)
        if copy is None:
            raise StateError(f"there is no live copy of sections {handle}")
        return copy
