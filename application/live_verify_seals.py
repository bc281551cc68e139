"""Seals: the sums of kept state, taken when it was made.

What a decode wrote, and everything above it, is equal to no cold prefill: it can only be held
against what it was. So where kept state is to be verified, its sums are taken along with it.

    rows      0 . . . . . . . . . taint [   ][   ][ ] length
                                  each span sealed once, by the grid
    anchors       |     |     |         |     |     |
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..domain.anchor import Anchor, AnchorKind
from ..domain.grid import Grid, Span
from ..domain.sums import Sums
from ..ports.gpu_state import SlotState

PartSums: TypeAlias = Mapping[str, Sums]
"""By the name of a view or a section, in the layout's order."""


class Seals:
    """The seals of one slot's rows and anchors."""

    def __init__(self, state: SlotState, grid: Grid) -> None:
        """Seals nothing yet."""
        self._state = state
        self._grid = grid
        self._rows: dict[Span, PartSums] = {}
        self._sections: dict[tuple[int, AnchorKind], PartSums] = {}

    @property
    def rows(self) -> Sequence[tuple[Span, PartSums]]:
        """The sealed spans, ascending, with their sums as they were."""
        return tuple(self._rows.items())

    def of_anchor(self, anchor: Anchor) -> PartSums | None:
        """The sums of an anchor when it was taken; None if they were not."""
        return self._sections.get((anchor.line, anchor.kind))

    def seal_rows(self, start: int, end: int) -> None:
        """Take the sums of rows [start, end) where they stand, but for those that have them."""
        sealed = max((span.end for span in self._rows), default=0)
        for span in self._grid.chunks(max(start, sealed), end):
            self._rows[span] = self._state.row_sums(span)

    def seal_sections(self, line: int, kind: AnchorKind) -> None:
        """Take the sums of the sections in place, which are of `line` and kept as an anchor."""
        if kind is AnchorKind.END:
            self._sections = {
                kept: sums for kept, sums in self._sections.items() if kept[1] is not kind
            }
        self._sections[line, kind] = self._state.section_sums()

    def cut(self, line: int) -> None:
        """Give up the seals of everything above `line`."""
        self._rows = {span: sums for span, sums in self._rows.items() if span.end <= line}
        self._sections = {kept: sums for kept, sums in self._sections.items() if kept[0] <= line}
