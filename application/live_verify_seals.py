"""Seals: the sums of kept state, taken when it was made.

What a decode wrote, and everything above it, is equal to no cold prefill: it can only be held
against what it was. So where kept state is to be verified, its sums are taken along with it.

    rows      0 . . . . . . . . . taint [   ][   ][ ] length
                                  each span sealed once, by the grid
    anchors       |     |     |         |     |     |

A seal stays with what it is of, from the slot into memory and back: sums that were taken anew on
the way would seal whatever had happened to it until then.
"""

from collections.abc import Iterable, Iterator, Sequence

from ..domain.anchor import Anchor
from ..domain.grid import Grid, Span
from ..domain.sums import PartSums
from ..ports.gpu_state import SlotState
from .held_sections import HeldSections


class Seals:
    """The seals of one slot's rows and anchors."""

    def __init__(self, state: SlotState, grid: Grid, sections: HeldSections) -> None:
        """Seals nothing yet.

        Args:
            sections: has the seals of anchors, whose copies are shared.
        """
        self._state = state
        self._grid = grid
        self._sections = sections
        self._rows: dict[Span, PartSums] = {}

    @property
    def rows(self) -> Sequence[tuple[Span, PartSums]]:
        """The sealed spans, ascending, with their sums as they were."""
        return tuple((span, self._rows[span]) for span in sorted(self._rows))

    def of_anchor(self, anchor: Anchor) -> PartSums | None:
        """The sums of an anchor when it was taken; None if they were not."""
        return self._sections.seal_of(anchor)

    def seal_rows(self, start: int, end: int) -> None:
        """Take the sums of rows [start, end) where they stand, but for those that have them."""
        for span in list(unsealed(self._grid, Span(start, max(start, end)), self._rows)):
            self._rows[span] = self._state.row_sums(span)

    def take_rows(self, sealed: Iterable[tuple[Span, PartSums]]) -> None:
        """Rows were brought in that had been sealed before they left a slot."""
        self._rows.update(sealed)

    def seal_sections(self, anchor: Anchor) -> None:
        """Take the sums of the sections in place, of which an anchor has just been taken."""
        self._sections.seal(anchor, self._state.section_sums())

    def cut(self, line: int) -> None:
        """Give up the seals of rows above `line`."""
        self._rows = {span: sums for span, sums in self._rows.items() if span.end <= line}


def unsealed(grid: Grid, rows: Span, sealed: Iterable[Span]) -> Iterator[Span]:
    """The chunks of some rows that no sealed span covers."""
    start = rows.start
    for span in sorted(sealed):
        if span.start >= rows.end:
            break
        yield from grid.chunks(start, span.start)
        start = max(start, span.end)
    yield from grid.chunks(start, rows.end)
