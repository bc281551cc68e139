"""All sections of a slot in one block of memory, and copies of that block.

A capture or a restore is then one copy however many layers a model has, and a copy's buffer fits
every later capture in any slot of the engine: in a steady state nothing is allocated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...domain.anchor import SectionsHandle
from ...domain.errors import StateError
from ...domain.layout import Section
from ...ports.gpu_state import ByteBuffers
from .alignment import aligned_starts
from .owned_layer import OwnedLayer
from .part_bytes import PartBytes


@torch.inference_mode(False)  # a restore writes the arena outside inference mode as well
def move_into_arena(layers: Sequence[OwnedLayer], device: torch.device) -> Tensor:
    """Move every section of the layers into one new, zeroed block; the layers keep it from now on.

    Returns:
        The block: flat uint8, sections in the layers' order, each aligned.
    """
    homeless = [(layer, section) for layer in layers for section in layer.section_tensors()]
    starts, end = aligned_starts([section.tensor.nbytes for _, section in homeless])
    arena = torch.zeros(end, dtype=torch.uint8, device=device)
    for (layer, section), start in zip(homeless, starts, strict=True):
        tensor = section.tensor
        home = arena[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        layer.rehouse(section.name, home)
    return arena


@dataclass(slots=True)
class _Copy:
    data: Tensor
    line: int


class SectionCopies:
    """Copies of arenas of one layout, by handle, with the line each was taken at.

    A copy is never memory that a forward writes: what was captured stays as it was. It is where the
    arenas are, so that a resume waits for no bus.
    """

    def __init__(
        self, sections: Sequence[Section], device: torch.device, numbers: Iterator[int]
    ) -> None:
        """Allocates nothing.

        Args:
            sections: in the order of `move_into_arena`.
            numbers: where handles come from.
        """
        self._sections = tuple(sections)
        self._starts, self._nbytes = aligned_starts([part.nbytes for part in sections])
        self._device = device
        self._numbers = numbers
        self._live: dict[SectionsHandle, _Copy] = {}
        self._free: list[Tensor] = []

    def capture(self, arena: Tensor, line: int, into: SectionsHandle | None) -> SectionsHandle:
        """Copy an arena; into a live handle's buffer, a free one, or else a new one."""
        if into is None:
            into = self._named(_Copy(self._buffer(), line))
        copy = self._find(into)
        copy.data.copy_(arena)
        copy.line = line
        return into

    def restore(self, arena: Tensor, handle: SectionsHandle) -> int:
        """Copy a capture into an arena; the line it was taken at."""
        copy = self._find(handle)
        arena.copy_(copy.data)
        return copy.line

    def imported(self, line: int, buffers: ByteBuffers) -> SectionsHandle:
        """A copy made of bytes; none at all where one of them is not of its section's size."""
        copy = _Copy(self._buffer(), line)
        for section, part in self._parts(copy):
            part.write(0, section.nbytes, buffers[section.name])
        return self._named(copy)

    def parts(self, handle: SectionsHandle) -> list[tuple[Section, PartBytes]]:
        """The bytes of each section of a live copy."""
        return self._parts(self._find(handle))

    def line(self, handle: SectionsHandle) -> int:
        """The line a live copy was taken at."""
        return self._find(handle).line

    def release(self, handle: SectionsHandle) -> None:
        """Move the handle's buffer to the free list."""
        self._free.append(self._find(handle).data)
        del self._live[handle]

    def counts(self) -> tuple[int, int, int]:
        """Live handles, bytes of their buffers, and bytes of free ones."""
        return len(self._live), len(self._live) * self._nbytes, len(self._free) * self._nbytes

    def give_back(self) -> None:
        """Free the free buffers."""
        self._free.clear()

    def _find(self, handle: SectionsHandle) -> _Copy:
        copy = self._live.get(handle)
        if copy is None:
            raise StateError(f"there is no live copy of sections {handle}")
        return copy

    def _named(self, copy: _Copy) -> SectionsHandle:
        handle = SectionsHandle(next(self._numbers))
        self._live[handle] = copy
        return handle

    @torch.inference_mode(False)  # it is written outside inference mode as well
    def _buffer(self) -> Tensor:
        if self._free:
            return self._free.pop()
        return torch.empty(self._nbytes, dtype=torch.uint8, device=self._device)

    def _parts(self, copy: _Copy) -> list[tuple[Section, PartBytes]]:
        return [
            (section, PartBytes(section.name, copy.data[start : start + section.nbytes]))
            for section, start in zip(self._sections, self._starts, strict=True)
        ]
