"""Where a stored state comes to stand: in a slot, or in copies outside all of them."""

from collections.abc import Callable, Mapping
from typing import Protocol

from ..domain.grid import Span
from ..domain.stored_entry import StoredAnchor
from ..domain.sums import Sums
from ..ports.gpu_state import ByteBuffers, RowsPlace, SlotState
from .kept_state import AdoptedState
from .resident_prefix import ResidentPrefix


class NoRoom(Exception):
    """There is no room for the state where it was to stand; nothing was brought in."""


class RestoreTarget(Protocol):
    """Takes a state piece by piece. On the engine thread, but for what lanes place.

    In this order: `row_sums` of what stands there already, `begin`, rows upwards with anchors
    between them, `adopt`. `give_up` may come at any time, and is the end of it.

    Attributes:
        lanes_place: whether lanes may bring rows there by themselves.
        modest: nobody waits for it yet: it takes little of the engine thread's time at once, and
            few of the staging buffers.
    """

    @property
    def lanes_place(self) -> bool: ...

    @property
    def modest(self) -> bool: ...

    def row_sums(self, span: Span) -> Mapping[str, Sums]:
        """Of rows that stand there already; nothing where they do not."""
        ...

    def begin(self, line: int, top: int, taint: int) -> None:
        """Rows from `line` up to `top` are about to be replaced; what stands below stays.

        Args:
            taint: of the state that comes: rows from here on are no cold grid prefill's.

        Raises:
            NoRoom: they cannot be taken.
        """
        ...

    def place_rows(self, span: Span) -> RowsPlace:
        """Where lanes are to bring the rows of a block; only where `lanes_place`."""
        ...

    def import_rows(self, span: Span, rows: ByteBuffers) -> Mapping[str, Sums]:
        """Take the rows of a block; their sums where they stand."""
        ...

    def import_sections(self, anchor: StoredAnchor, sections: ByteBuffers) -> Mapping[str, Sums]:
        """Take an anchor whose rows stand there, or are being placed; its sums where they stand."""
        ...

    def anchored(self, line: int) -> None:
        """The sections that came last are those of a grid line below the state's own, verified."""
        ...

    def adopt(self, state: AdoptedState) -> None:
        """All of it stands there now, verified."""
        ...

    def give_up(self) -> None:
        """Nothing more comes; no lane brings anything any more."""
        ...


class SlotTarget:
    """Implements `RestoreTarget` for a slot, which can be used as soon as the state is adopted.

    What its resident shares with the state stays.
    """

    modest = False

    def __init__(
        self,
        state: SlotState,
        resident: ResidentPrefix,
        vacate: Callable[[int, int], None] | None = None,
    ) -> None:
        """Takes an idle slot; changes nothing yet.

        Args:
            vacate: called with the rows [start, end) that are about to be overwritten.
        """
        self._state = state
        self._resident = resident
        self._vacate = vacate
        self._begun = False
        has_views = bool(state.layout.views)
        self.lanes_place = has_views and state.place_rows(Span(0, 0)) is not None

    def row_sums(self, span: Span) -> Mapping[str, Sums]:
        return self._state.row_sums(span)

    def begin(self, line: int, top: int, taint: int) -> None:
        self._begun = True
        self._resident.cut_for_import(line, taint)
        if line == 0:
            # A slot whose last forward failed is undefined until it is resumed here.
            self._state.resume_at(0)

    def place_rows(self, span: Span) -> RowsPlace:
        self._make_way(span)
        place = self._state.place_rows(span)
        assert place is not None, "a state whose rows lanes may bring in, but not these"
        return place

    def import_rows(self, span: Span, rows: ByteBuffers) -> Mapping[str, Sums]:
        self._make_way(span)
        if not self._state.layout.views:
            return {}
        self._state.import_rows(span, rows)
        return self._state.row_sums(span)

    def import_sections(self, anchor: StoredAnchor, sections: ByteBuffers) -> Mapping[str, Sums]:
        self._state.import_sections(anchor.line, sections)
        return self._state.section_sums() if self._state.layout.sections else {}

    def anchored(self, line: int) -> None:
        self._resident.adopt_anchor(line)

    def adopt(self, state: AdoptedState) -> None:
        self._resident.adopt(state)

    def give_up(self) -> None:
        if self._begun:
            # Sections of a line that the rows do not reach may stand in place. What is kept of the
            # slot is resumed from its anchors, and may be copied out before that.
            self._state.resume_at(0)

    def _make_way(self, span: Span) -> None:
        """What is kept of the rows that stand there is moved first."""
        if self._vacate is not None:
            self._vacate(span.start, span.end)
