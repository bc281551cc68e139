"""The copies of state that an engine's slots share."""

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ...domain.anchor import RowsHandle, SectionsHandle
from ...domain.errors import StateError
from ...domain.grid import Span
from ...domain.layout import Layout
from ...domain.sums import Sums
from ...ports.gpu_state import ByteBuffers, CopyCounts, Look, StateCopies
from .host_threads import HostThreads
from .kernels.sums import device_sums
from .part_bytes import Bytes, PartBytes
from .row_copies import RowCopies, RowsCopy
from .rows_place import HostRows
from .section_arena import SectionCopies
from .summed_exports import Export, export_summed


class TorchCopies(StateCopies):
    """Rows in memory of the host, sections where the slots have theirs.

    Attributes:
        layout: of every slot that copies to and from them.
        threads: for passes over many bytes, of the slots too.
    """

    def __init__(self, layout: Layout, *, window: int, block: int, device: torch.device) -> None:
        """Holds nothing.

        Args:
            window: rows of a slot.
            block: rows of one whole grid step.
            device: where the slots are.
        """
        self.layout = layout
        self.threads = HostThreads.of_device(device)
        self._window = window
        # One count for both, so that a handle of rows never names sections.
        numbers = itertools.count(1)
        self._rows = RowCopies(
            layout.views, block=block, pinned=device.type == "cuda", numbers=numbers
        )
        self._sections = SectionCopies(layout.sections, device, numbers)

    # --- StateCopies ----------------------------------------------------------------------------

    def rows_span(self, handle: RowsHandle) -> Span:
        return self._rows.find(handle).span

    def new_rows(self, span: Span) -> RowsHandle:
        if span.end > self._window:
            raise StateError(f"there are no rows {span} in a window of {self._window}")
        return self._rows.new(span)

    def prepare_rows(self) -> None:
        self._rows.prepare()

    def import_rows(self, handle: RowsHandle, buffers: ByteBuffers) -> None:
        for part in self._rows.find(handle).buffer.parts:
            part.write(0, len(part), buffers[part.name])

    def export_rows(self, handle: RowsHandle, buffers: ByteBuffers) -> None:
        def export(parts: Sequence[PartBytes]) -> Sequence[None]:
            for part in parts:
                part.read(0, len(part), buffers[part.name])
            return ()

        buffer = self._rows.find(handle).buffer
        self.threads.share_bytes(buffer.nbytes, export, buffer.parts)

    def export_summed_rows(
        self, handle: RowsHandle, buffers: ByteBuffers, look: Look | None
    ) -> Mapping[str, Sums]:
        def export(parts: Sequence[PartBytes]) -> Sequence[Sums]:
            return export_summed(
                [Export(part, 0, len(part), buffers[part.name]) for part in parts], look
            )

        buffer = self._rows.find(handle).buffer
        found = self.threads.share_bytes(buffer.nbytes, export, buffer.parts)
        return dict(zip([part.name for part in buffer.parts], found, strict=True))

    def place_rows(self, handle: RowsHandle) -> HostRows | None:
        places: dict[str, Bytes] = {}
        for part in self._rows.find(handle).buffer.parts:
            place = part.on_host(0, len(part))
            assert place is not None, f"{part.name}: rows are copied to the host"
            places[part.name] = place
        return HostRows(places)

    def row_sums(self, handle: RowsHandle) -> Mapping[str, Sums]:
        def sums(parts: Sequence[PartBytes]) -> Sequence[Sums]:
            return device_sums([part.in_place(0, len(part)) for part in parts])

        buffer = self._rows.find(handle).buffer
        found = self.threads.share_bytes(buffer.nbytes, sums, buffer.parts)
        return dict(zip([part.name for part in buffer.parts], found, strict=True))

    def release_rows(self, handle: RowsHandle) -> None:
        self._rows.release(handle)

    def new_sections(self, line: int, buffers: ByteBuffers) -> SectionsHandle:
        if not 0 <= line <= self._window:
            raise StateError(f"there is no line {line} in a window of {self._window}")
        return self._sections.imported(line, buffers)

    def export_sections(self, handle: SectionsHandle, buffers: ByteBuffers) -> None:
        for section, part in self._sections.parts(handle):
            part.read(0, section.nbytes, buffers[section.name])

    def section_sums(self, handle: SectionsHandle) -> Mapping[str, Sums]:
        parts = self._sections.parts(handle)
        found = device_sums([part.in_place(0, section.nbytes) for section, part in parts])
        return dict(zip([section.name for section, _ in parts], found, strict=True))

    def sections_line(self, handle: SectionsHandle) -> int:
        return self._sections.line(handle)

    def release_sections(self, handle: SectionsHandle) -> None:
        self._sections.release(handle)

    def counts(self) -> CopyCounts:
        rows, row_bytes, free_row_bytes = self._rows.counts()
        sections, section_bytes, free_section_bytes = self._sections.counts()
        free_bytes = free_row_bytes + free_section_bytes
        return CopyCounts(rows, row_bytes, sections, section_bytes, free_bytes)

    def give_back(self) -> int:
        freed = self.counts().free_bytes
        self._rows.give_back()
        self._sections.give_back()
        return freed

    # --- what slots do with it ------------------------------------------------------------------

    def rows_copy(self, handle: RowsHandle) -> RowsCopy:
        """A live copy of rows."""
        return self._rows.find(handle)

    def capture_sections(
        self, arena: Tensor, line: int, into: SectionsHandle | None
    ) -> SectionsHandle:
        """Copy a slot's arena, whose sections are of `line`."""
        return self._sections.capture(arena, line, into)

    def restore_sections(self, arena: Tensor, handle: SectionsHandle) -> int:
        """Copy a copy into a slot's arena; the line of its sections."""
        return self._sections.restore(arena, handle)
