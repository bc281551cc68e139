"""Seals of what memory keeps: each block and each copy is sealed once, whoever shares it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..domain.grid import Span
from ..domain.sums import PartSums
from ..ports.engine import Engine
from .held_sections import HeldSections
from .kept_blocks import KeptBlock
from .kept_rows import KeptRows
from .kept_state import KeptState
from .live_verify_seals import Seals, unsealed

_Sealed: TypeAlias = Sequence[tuple[Span, PartSums]]


class KeptSeals:
    """Seals entries when they are kept. On the engine thread."""

    def __init__(self, engine: Engine, sections: HeldSections) -> None:
        self._copies = engine.copies
        self._grid = engine.profile.grid
        self._sections = sections
        self._rows = KeptRows(engine)

    def keep(self, state: KeptState, blocks: Sequence[KeptBlock], seals: Seals) -> None:
        """A slot's conversation is kept: what was sealed in the slot goes with it.

        Args:
            blocks: all of its rows.
            seals: of the slot. Anchors were all sealed there, and their copies are the same.
        """
        # No sealed span crosses a grid line, so each is of one block.
        in_slot: Mapping[int, list[tuple[Span, PartSums]]] = defaultdict(list)
        for span, sums in seals.rows:
            in_slot[self._grid.floor(span.start)].append((span, sums))
        for block in blocks:
            self._seal_rows(block, state.taint, in_slot[block.span.start])

    def take(self, state: KeptState, blocks: Sequence[KeptBlock]) -> None:
        """A state is kept that was read into memory, every byte of which has just been checked."""
        for block in blocks:
            self._seal_rows(block, state.taint, ())
        for anchor in state.anchors:
            self._sections.seal(anchor, self._copies.section_sums(anchor.handle))

    def _seal_rows(self, block: KeptBlock, taint: int, in_slot: _Sealed) -> None:
        """Seal the rows of a block that no cold prefill writes, but for those that are."""
        sealed = dict(block.seals)
        for span, sums in in_slot:
            apart = all(span.end <= other.start or other.end <= span.start for other in sealed)
            if apart and span.end <= block.span.end:
                sealed[span] = sums
        tainted = Span(min(max(block.span.start, taint), block.span.end), block.span.end)
        left = list(unsealed(self._grid, tainted, sealed))
        if left:
            sealed.update(zip(left, next(self._rows.sums(block, left)), strict=True))
        if len(sealed) > len(block.seals):
            block.seals = tuple((span, sealed[span]) for span in sorted(sealed))
