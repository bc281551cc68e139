"""The state of the slots, and copies of it: the only door to an engine's tensors.

The cache needs nothing else of an engine. All calls are made on the engine thread, and return when
the copy they make has been *issued*; `settle` waits for all of them.

Copies are the engine's, not a slot's: whichever slot a handle was captured in, every slot can
restore it. They are of opaque, counted handles, and outlive what happens to the slots.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..domain.anchor import RowsHandle, SectionsHandle
from ..domain.grid import Span
from ..domain.layout import Layout
from ..domain.sums import Sums

ByteBuffers: TypeAlias = Mapping[str, npt.NDArray[np.uint8]]
"""By part name: flat, contiguous bytes of exactly the part's size, owned by the caller."""

Look: TypeAlias = Callable[[str, npt.NDArray[np.uint8]], None]
"""Takes a part's name and the next bytes of it: all of one part in order, of several at a time."""


class GpuState(Protocol):
    """Rows in place, sections in place, and copies of sections.

    Rows stand in buffers of the whole window; those below `length` are valid. The sections in
    place always carry the line they are of.
    """

    @property
    def layout(self) -> Layout:
        """What parts there are; constant."""
        ...

    @property
    def length(self) -> int:
        """How many tokens the rows and the sections in place have absorbed."""
        ...

    def unwritten_bytes(self, line: int) -> int:
        """Memory that rows from `line` on will still take of the system, if none of them ever was.

        Less than their bytes: memory comes in pages, and one is there as a whole once any row of it
        is written.
        """
        ...

    def settle(self) -> None:
        """Wait until everything issued so far has been carried out. Blocks."""
        ...

    def trim(self, line: int) -> bool:
        """Cut the state back to `line`, at or below `length`; whether that was possible.

        Impossible, and without effect, when the sections have absorbed more tokens: they cannot
        be rewound. Rows can always be cut, so a model without sections always can.
        """
        ...

    def resume_at(self, line: int) -> None:
        """Make `line` the length: the next forward writes row `line`. Line 0 zeroes the sections.

        The caller vouches that rows [0, line) are in place.

        Raises:
            WrongLine: the sections in place are not of `line`.
        """
        ...

    def capture_sections(self, into: SectionsHandle | None = None) -> SectionsHandle:
        """Copy the sections in place, with their line.

        Args:
            into: a live handle, of whichever slot, whose buffers are overwritten and which is
                returned; None takes a buffer from the free list or allocates one.

        Raises:
            StateError: there is no live copy `into`.
        """
        ...

    def restore_sections(self, handle: SectionsHandle) -> None:
        """Copy a captured state into place; follow with `resume_at` of its line.

        The handle stays live and unchanged. Until `resume_at`, no forward may run.

        Args:
            handle: of a copy that any slot of the engine captured, or that was made of bytes.

        Raises:
            StateError: it is not live.
        """
        ...

    def release_sections(self, handle: SectionsHandle) -> None:
        """Give the copy up; its buffer goes to the free list. As `StateCopies` does it."""
        ...


class RowsKeeping(Protocol):
    """Rows that leave a slot and come back, or go to another, without becoming bytes of the host's.

    Implemented by the same object as `GpuState`. The span may lie anywhere in the window, above the
    length too: what stands there is whatever was written there last. The length and the sections
    are unchanged by all of these.
    """

    def capture_rows(self, span: Span) -> RowsHandle:
        """Copy the rows of `span` out of this slot.

        What is written over them afterwards, by whomever, does not change the copy. A buffer is
        taken from the free list, or allocated.

        Raises:
            StateError: the span reaches beyond the window, or a forward failed here and line 0 was
                not resumed since: what stands in the slot is of nothing.
        """
        ...

    def restore_rows(self, handle: RowsHandle) -> None:
        """Copy rows into place, at the handle's span; it stays live and unchanged.

        Raises:
            StateError: it is not live, or a forward failed here as above.
        """
        ...

    def swap_rows(self, handle: RowsHandle) -> None:
        """Exchange the rows in place with the handle's, over its span; allocates nothing lasting.

        Afterwards the handle, still of the same span, holds what stood in the slot.

        Raises:
            StateError: it is not live, or a forward failed here as above.
        """
        ...


class RowsPlace(Protocol):
    """Where the rows of one span stand, for lanes that bring bytes there by themselves.

    Callable from any thread, for different bytes at the same time. The engine thread sees to it
    that no forward reads or writes those rows until the lanes are done.
    """

    def memory(self, view: str) -> npt.NDArray[np.uint8]:
        """The bytes of a view's rows of the span, where they stand, to be overwritten.

        As long as the rows. A page's start, so that a medium writes there without a copy, wherever
        the shape of the rows allows it.
        """
        ...

    def sums(self, view: str, start: int, end: int) -> Sums:
        """What bytes [start, end) of the span's rows add to a view's `row_sums`. Blocks.

        They are read where they stand. Added up over all bytes of the span they are those sums.

        Args:
            start: a multiple of 8.
            end: one as well, or where the rows end.
        """
        ...


class StateTransfer(Protocol):
    """Rows and sections as bytes: what storage, other slots and comparisons work with.

    Bytes are in C order, little-endian, rows token-major: (tokens, *row_shape). Implemented by the
    same object as `GpuState`.
    """

    def export_rows(self, span: Span, buffers: ByteBuffers) -> None:
        """Copy the rows of `span` out, per view. Blocks until the bytes are there."""
        ...

    def export_summed_rows(
        self, span: Span, buffers: ByteBuffers, look: Look | None
    ) -> Mapping[str, Sums]:
        """Copy the rows of `span` out, as `export_rows`, and give their `row_sums`: in one pass.

        Args:
            look: shown what has been copied while the processor has it at hand, on whichever thread
                copies; never called where a device copies.
        """
        ...

    def import_rows(self, span: Span, buffers: ByteBuffers) -> None:
        """Copy rows into place; the length is unchanged. The buffers are free on return."""
        ...

    def place_rows(self, span: Span) -> RowsPlace | None:
        """Where rows of `span` can be brought by other threads; None if only by `import_rows`.

        Changes nothing by itself.
        """
        ...

    def export_sections(self, buffers: ByteBuffers) -> None:
        """Copy the sections in place out. Blocks until the bytes are there."""
        ...

    def import_sections(self, line: int, buffers: ByteBuffers) -> None:
        """Copy sections into place and declare them to be of `line`; follow with `resume_at`."""
        ...

    def row_sums(self, span: Span) -> Mapping[str, Sums]:
        """Per view, the sums of the bytes `export_rows` would give, computed where they stand."""
        ...

    def section_sums(self) -> Mapping[str, Sums]:
        """Per section, the sums of the bytes `export_sections` would give."""
        ...


class SlotState(GpuState, RowsKeeping, StateTransfer, Protocol):
    """What an engine's slot offers the cache."""


@dataclass(frozen=True, slots=True)
class CopyCounts:
    """What the copies of an engine's state take, exactly.

    Attributes:
        rows: live handles of rows.
        row_bytes: of their buffers: those of the layout, and what keeps the views aligned.
        sections: live handles of sections.
        section_bytes: of their buffers, aligned as well.
        free_bytes: of buffers that no handle names and that later copies will use again.
    """

    rows: int
    row_bytes: int
    sections: int
    section_bytes: int
    free_bytes: int


class StateCopies(Protocol):
    """Copies of rows and of sections, outside any slot; an engine has one of these.

    A copy stays as it is until its handle is released or swapped or captured into, whatever becomes
    of the slots: a failed forward leaves it valid. Buffers of sections, and of rows of one whole
    grid step, are kept when their handles are released, and used again: in a steady state nothing
    is allocated. Buffers of other spans are freed at once.

    As bytes, a copy is exactly what `StateTransfer` gives for the same state in place: the same
    parts in the same order, the same sums.

    Every call raises StateError where a handle that it is given is not live.
    """

    def rows_span(self, handle: RowsHandle) -> Span:
        """Which rows it holds."""
        ...

    def new_rows(self, span: Span) -> RowsHandle:
        """A copy whose bytes are undefined, to be imported or placed before any other use.

        Raises:
            StateError: the span reaches beyond the window.
        """
        ...

    def prepare_rows(self) -> None:
        """Take the memory of one more copy of a whole grid step from the system, ahead of its use.

        It counts as free until a copy takes it. Without effect where that would hold the model up.
        """
        ...

    def import_rows(self, handle: RowsHandle, buffers: ByteBuffers) -> None:
        """Overwrite the copy with rows of its span. The buffers are free on return."""
        ...

    def export_rows(self, handle: RowsHandle, buffers: ByteBuffers) -> None:
        """Copy its rows out, per view. Blocks until the bytes are there."""
        ...

    def export_summed_rows(
        self, handle: RowsHandle, buffers: ByteBuffers, look: Look | None
    ) -> Mapping[str, Sums]:
        """Copy its rows out and give their `row_sums`, as of `StateTransfer`. Blocks."""
        ...

    def place_rows(self, handle: RowsHandle) -> RowsPlace | None:
        """Where its rows can be brought by other threads; None if only by `import_rows`.

        Until the lanes are done, the handle is neither used nor released.
        """
        ...

    def row_sums(self, handle: RowsHandle) -> Mapping[str, Sums]:
        """Per view, the sums of the bytes `export_rows` would give. Blocks."""
        ...

    def release_rows(self, handle: RowsHandle) -> None:
        """Give the copy up."""
        ...

    def new_sections(self, line: int, buffers: ByteBuffers) -> SectionsHandle:
        """A copy made of bytes, as if it had been captured at `line`. They are free on return.

        Raises:
            StateError: there is no such line in the window, or a buffer is not of its section's
                size; then nothing was made.
        """
        ...

    def export_sections(self, handle: SectionsHandle, buffers: ByteBuffers) -> None:
        """Copy its sections out. Blocks until the bytes are there."""
        ...

    def section_sums(self, handle: SectionsHandle) -> Mapping[str, Sums]:
        """Per section, the sums of the bytes `export_sections` would give. Blocks."""
        ...

    def sections_line(self, handle: SectionsHandle) -> int:
        """The line of the sections it was captured from."""
        ...

    def release_sections(self, handle: SectionsHandle) -> None:
        """Give the copy up; its buffer is kept for the next one."""
        ...

    def counts(self) -> CopyCounts:
        """What there is now."""
        ...

    def give_back(self) -> int:
        """Free the buffers that no handle names; how many bytes that were."""
        ...
