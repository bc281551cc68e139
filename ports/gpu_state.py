"""The state of one slot: the only door to its tensors.

The cache needs nothing else of an engine. All calls are made on the engine thread, and return when
the copy they make has been *issued*; `settle` waits for all of them.
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..domain.anchor import SectionsHandle
from ..domain.grid import Span
from ..domain.layout import Layout
from ..domain.sums import Sums

ByteBuffers: TypeAlias = Mapping[str, npt.NDArray[np.uint8]]
"""By part name: flat, contiguous bytes of exactly the part's size, owned by the caller."""


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
            into: a live handle whose buffers are overwritten and which is returned; None takes a
                buffer from the free list or allocates one.
        """
        ...

    def restore_sections(self, handle: SectionsHandle) -> None:
        """Copy a captured state into place; follow with `resume_at` of its line.

        The handle stays live and unchanged. Until `resume_at`, no forward may run.
        """
        ...

    def release_sections(self, handle: SectionsHandle) -> None:
        """Give the copy up; its buffer goes to the free list."""
        ...

    def captured(self) -> tuple[int, int]:
        """Live handles, and bytes of all buffers of copies, the free list's included."""
        ...


class RowsPlace(Protocol):
    """Where the rows of one span stand, for lanes that bring bytes there by themselves.

    Callable from any thread, for different bytes at the same time. The engine thread sees to it
    that no forward reads or writes those rows until the lanes are done.
    """

    def write(self, view: str, start: int, data: npt.NDArray[np.uint8]) -> Sums:
        """Copy bytes of a view into place, from byte `start` of the span's rows on. Blocks.

        Args:
            start: a multiple of 8.
            data: a multiple of 8 bytes, but for the last ones of the view; free on return.

        Returns:
            What these bytes, read again where they stand, add to the view's `row_sums`: added up
            over all bytes of the span they are those sums.
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


class SlotState(GpuState, StateTransfer, Protocol):
    """What an engine's slot offers the cache."""
