"""Slots that tell what is about to be written over their rows, and what was copied out of them."""

from typing import Protocol

from ..adapters.memory.checkable_copies import CheckableCopies, PlacedRows
from ..adapters.memory.checkable_state import CheckableState
from ..domain.anchor import RowsHandle
from ..domain.grid import Span
from ..domain.layout import Layout
from ..domain.taint_line import Writer
from ..domain.tokens import TokenIds
from ..ports.gpu_state import ByteBuffers


class RowsWatcher(Protocol):
    """Who knows which rows of the slots somebody still counts on."""

    def about_to_overwrite(self, slot: int, span: Span) -> None:
        """Other rows are about to stand there, and those that do will be gone."""
        ...

    def about_to_exchange(self, slot: int, span: Span) -> None:
        """The rows of a copy are about to stand there, and those that do to be the copy's."""
        ...

    def copied_out(self, slot: int, span: Span) -> None:
        """The rows that stand there have just been copied."""
        ...


class Unwatched:
    """Implements `RowsWatcher` where nobody counts on any rows."""

    def about_to_overwrite(self, slot: int, span: Span) -> None:
        """Let it."""

    def about_to_exchange(self, slot: int, span: Span) -> None:
        """Let it."""

    def copied_out(self, slot: int, span: Span) -> None:
        """Let it."""


class WatchedState(CheckableState):
    """A state whose rows nobody changes unseen.

    Attributes:
        watcher: who is told.
        spoils: how often a forward failed here, and left nothing of the rows.
    """

    def __init__(
        self,
        slot: int,
        *,
        layout: Layout,
        window: int,
        grid: int,
        row_invariant: bool,
        copies: CheckableCopies,
    ) -> None:
        """As of any checkable state; of the slot of that number."""
        super().__init__(layout=layout, window=window, row_invariant=row_invariant, copies=copies)
        self.watcher: RowsWatcher = Unwatched()
        self.spoils = 0
        self._slot = slot
        self._grid = grid
        self._changes = [0] * (window // grid + 1)

    def changes(self, block: Span) -> int:
        """Grows whenever rows of that grid step are written; while it is the same, so are they."""
        return self._changes[block.start // self._grid]

    def forward(self, ids: TokenIds, writer: Writer) -> int:
        self._overwrite(Span(self.length, self.length + len(ids)))
        return super().forward(ids, writer)

    def spoil(self) -> None:
        self._changed(Span(0, self.window))
        self.spoils += 1
        super().spoil()

    def capture_rows(self, span: Span) -> RowsHandle:
        handle = super().capture_rows(span)
        self.watcher.copied_out(self._slot, span)
        return handle

    def restore_rows(self, handle: RowsHandle) -> None:
        self._overwrite(self._copies.rows_span(handle))
        super().restore_rows(handle)

    def swap_rows(self, handle: RowsHandle) -> None:
        span = self._copies.rows_span(handle)
        self.watcher.about_to_exchange(self._slot, span)
        self._changed(span)
        super().swap_rows(handle)

    def import_rows(self, span: Span, buffers: ByteBuffers) -> None:
        self._overwrite(span)
        super().import_rows(span, buffers)

    def place_rows(self, span: Span) -> PlacedRows | None:
        place = super().place_rows(span)
        if place is not None:
            self._overwrite(span)
        return place

    def _overwrite(self, span: Span) -> None:
        if len(span):
            self.watcher.about_to_overwrite(self._slot, span)
            self._changed(span)

    def _changed(self, span: Span) -> None:
        for number in range(span.start // self._grid, (span.end - 1) // self._grid + 1):
            self._changes[number] += 1
