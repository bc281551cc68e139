"""Copies of rows and sections of the in-memory engine, and who may still use them."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ...domain.anchor import RowsHandle, SectionsHandle
from ...domain.grid import Span
from ...domain.layout import Layout
from ...domain.sums import Sums, sums_of
from ...ports.gpu_state import ByteBuffers, CopyCounts, Look

Bytes: TypeAlias = npt.NDArray[np.uint8]
ByteParts: TypeAlias = dict[str, Bytes]
"""By part name, flat bytes."""

_NOBODYS: Final = 0xDB
"""What stands in a buffer that nobody has brought anything into."""


@dataclass(slots=True)
class RowsCopy:
    """The rows of a span.

    Attributes:
        defined: whether anything was brought into it, or may have been by lanes.
    """

    span: Span
    views: ByteParts
    defined: bool


@dataclass(slots=True)
class SectionsCopy:
    """The sections as they were at a line."""

    line: int
    parts: ByteParts


class CheckableCopies:
    """Implements `ports.gpu_state.StateCopies` over arrays of bytes.

    Stricter than the port where the port leaves something to its caller: a copy into which nobody
    has brought anything cannot be used, lanes cannot write to one that was released, and what is
    released is overwritten there and then, so that whoever still reads it is seen.
    """

    def __init__(self, layout: Layout, *, window: int, block: int) -> None:
        """Holds nothing.

        Args:
            window: rows of a slot.
            block: rows of a copy whose buffers are kept when it is released.
        """
        self._layout = layout
        self._window = window
        self._block = block
        # One count for both, so that a handle of rows never names sections.
        self._numbers = itertools.count()
        self._rows: dict[RowsHandle, RowsCopy] = {}
        self._sections: dict[SectionsHandle, SectionsCopy] = {}
        self._free_rows: list[ByteParts] = []
        self._free_sections: list[ByteParts] = []

    # --- StateCopies ----------------------------------------------------------------------------

    def rows_span(self, handle: RowsHandle) -> Span:
        return self._live_rows(handle).span

    def new_rows(self, span: Span) -> RowsHandle:
        assert span.end <= self._window, f"{span} reaches outside a window of {self._window}"
        whole = len(span) == self._block
        views = self._free_rows.pop() if whole and self._free_rows else self._row_buffers(len(span))
        handle = RowsHandle(next(self._numbers))
        self._rows[handle] = RowsCopy(span, views, defined=False)
        return handle

    def prepare_rows(self) -> None:
        views = self._row_buffers(self._block)
        _overwrite(views)
        self._free_rows.append(views)

    def import_rows(self, handle: RowsHandle, buffers: ByteBuffers) -> None:
        copy = self._live_rows(handle)
        fill(copy.views, buffers)
        copy.defined = True

    def export_rows(self, handle: RowsHandle, buffers: ByteBuffers) -> None:
        pour(self.rows_of(handle).views, buffers)

    def export_summed_rows(
        self, handle: RowsHandle, buffers: ByteBuffers, look: Look | None
    ) -> Mapping[str, Sums]:
        self.export_rows(handle, buffers)
        show(buffers, self._layout, look)
        return self.row_sums(handle)

    def place_rows(self, handle: RowsHandle) -> "PlacedRows":
        copy = self._live_rows(handle)
        copy.defined = True
        return PlacedRows(copy.views, lambda: self._rows.get(handle) is copy)

    def row_sums(self, handle: RowsHandle) -> Mapping[str, Sums]:
        return sums(self.rows_of(handle).views)

    def release_rows(self, handle: RowsHandle) -> None:
        copy = self._live_rows(handle)
        del self._rows[handle]
        _overwrite(copy.views)
        if len(copy.span) == self._block:
            self._free_rows.append(copy.views)

    def new_sections(self, line: int, buffers: ByteBuffers) -> SectionsHandle:
        assert 0 <= line <= self._window, f"line {line} lies outside a window of {self._window}"
        for section in self._layout.sections:
            same_size(section.name, buffers[section.name], np.empty(section.nbytes, np.uint8))
        return self.hold_sections(line, buffers)

    def export_sections(self, handle: SectionsHandle, buffers: ByteBuffers) -> None:
        pour(self.sections_of(handle).parts, buffers)

    def section_sums(self, handle: SectionsHandle) -> Mapping[str, Sums]:
        return sums(self.sections_of(handle).parts)

    def sections_line(self, handle: SectionsHandle) -> int:
        return self.sections_of(handle).line

    def release_sections(self, handle: SectionsHandle) -> None:
        copy = self.sections_of(handle)
        del self._sections[handle]
        _overwrite(copy.parts)
        self._free_sections.append(copy.parts)

    def counts(self) -> CopyCounts:
        layout = self._layout
        return CopyCounts(
            rows=len(self._rows),
            row_bytes=sum(len(copy.span) for copy in self._rows.values()) * layout.row_bytes,
            sections=len(self._sections),
            section_bytes=len(self._sections) * layout.section_bytes,
            free_bytes=len(self._free_rows) * self._block * layout.row_bytes
            + len(self._free_sections) * layout.section_bytes,
        )

    def give_back(self) -> int:
        freed = self.counts().free_bytes
        self._free_rows.clear()
        self._free_sections.clear()
        return freed

    # --- what slots do with it ------------------------------------------------------------------

    def hold_rows(self, span: Span, views: Mapping[str, Bytes]) -> RowsHandle:
        """A new copy of some rows."""
        handle = self.new_rows(span)
        self.import_rows(handle, views)
        return handle

    def rows_of(self, handle: RowsHandle) -> RowsCopy:
        """A live copy, with something in it."""
        copy = self._live_rows(handle)
        assert copy.defined, f"nobody has brought the rows of {handle}, of {copy.span}"
        return copy

    def hold_sections(
        self, line: int, parts: Mapping[str, Bytes], into: SectionsHandle | None = None
    ) -> SectionsHandle:
        """A copy of sections; over a live one, or a new one."""
        if into is None:
            into = SectionsHandle(next(self._numbers))
            buffers = self._free_sections.pop() if self._free_sections else self._section_buffers()
            self._sections[into] = SectionsCopy(line, buffers)
        copy = self.sections_of(into)
        fill(copy.parts, parts)
        copy.line = line
        return into

    def sections_of(self, handle: SectionsHandle) -> SectionsCopy:
        """A live copy."""
        assert handle in self._sections, f"there is no live copy of sections {handle}"
        return self._sections[handle]

    # --- private --------------------------------------------------------------------------------

    def _live_rows(self, handle: RowsHandle) -> RowsCopy:
        assert handle in self._rows, f"there is no live copy of rows {handle}"
        return self._rows[handle]

    def _row_buffers(self, count: int) -> ByteParts:
        return {
            view.name: np.full(count * view.row_bytes, _NOBODYS, dtype=np.uint8)
            for view in self._layout.views
        }

    def _section_buffers(self) -> ByteParts:
        return {
            section.name: np.empty(section.nbytes, dtype=np.uint8)
            for section in self._layout.sections
        }


class PlacedRows:
    """Implements `ports.gpu_state.RowsPlace`."""

    def __init__(self, views: Mapping[str, Bytes], is_live: Callable[[], bool] = lambda: True):
        """Takes each view's bytes of the span, where they stand, and whether they still do."""
        self._views = views
        self._is_live = is_live

    def memory(self, view: str) -> Bytes:
        assert self._is_live(), f"{view} of rows that were released"
        return self._views[view]

    def sums(self, view: str, start: int, end: int) -> Sums:
        assert start % 8 == 0, f"bytes of {view} from {start} on, inside a word"
        assert self._is_live(), f"{view} of rows that were released"
        # The words before it weigh what they weigh, and are zero.
        return sums_of(
            np.concatenate([np.zeros(start, dtype=np.uint8), self._views[view][start:end]])
        )


def fill(parts: Mapping[str, Bytes], buffers: ByteBuffers) -> None:
    """Overwrite every part with a buffer of its size."""
    for name, data in parts.items():
        same_size(name, buffers[name], data)
        data[:] = buffers[name]


def pour(parts: Mapping[str, Bytes], buffers: ByteBuffers) -> None:
    """Overwrite a buffer of its size with every part."""
    for name, data in parts.items():
        same_size(name, buffers[name], data)
        buffers[name][:] = data


def show(buffers: ByteBuffers, layout: Layout, look: Look | None) -> None:
    """Look at the rows in the buffers: in two pieces each, so that their order matters."""
    if look is not None:
        for view in layout.views:
            data = buffers[view.name]
            for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
                look(view.name, piece)


def sums(parts: Mapping[str, Bytes]) -> dict[str, Sums]:
    """The sums of each part."""
    return {name: sums_of(data) for name, data in parts.items()}


def same_size(name: str, buffer: Bytes, data: Bytes) -> None:
    """What stands for a part is bytes, and as many."""
    assert buffer.dtype == np.uint8, f"{name}: a buffer of {buffer.dtype}, not of bytes"
    assert buffer.shape == data.shape, f"{name}: {buffer.shape} bytes given for {data.shape}"


def _overwrite(parts: Mapping[str, Bytes]) -> None:
    for data in parts.values():
        data.fill(_NOBODYS)
