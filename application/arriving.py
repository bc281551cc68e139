"""An entry of a medium on its way into memory, where no slot is needed for it."""

from collections.abc import Callable, Mapping

from ..domain.anchor import Anchor, AnchorKind, RowsHandle, SectionsHandle
from ..domain.entry import Role
from ..domain.grid import Span
from ..domain.prompt import Prompt
from ..domain.prompt_chain import PromptChain
from ..domain.stored_entry import StoredAnchor, StoredEntry
from ..domain.sums import Sums
from ..ports.engine import Engine
from ..ports.gpu_state import ByteBuffers, RowsPlace
from .kept_blocks import KeptBlock
from .kept_state import AdoptedState, KeptState
from .ram_entry import RamEntry
from .ram_tier import RamTier
from .restore_target import NoRoom
from .write_source import EntrySource


class Arriving:
    """Implements `RestoreTarget` for copies outside the slots. On the engine thread.

    It is no entry before all of it has been verified. Its bytes are reserved before the first of
    them is read, and rows that memory has already are shared and not read.

        standing blocks          new copies
        0 . . . . . . . . line   . . . . . . . . . top
                           anchors      |          |

    Attributes:
        reserved: bytes that it takes of the budget, until it is an entry or is given up.
    """

    def __init__(
        self,
        engine: Engine,
        tier: RamTier,
        prompt: Prompt,
        chain: PromptChain,
        line: int,
        anchors: int,
        reserve: Callable[[int], bool],
    ) -> None:
        """Takes nothing yet but what it can share, which stays until its end.

        Args:
            prompt: whose tokens up to `line` the state is of.
            anchors: how many of its anchors come.
            reserve: whether so many bytes can be taken of the budget.
        """
        self._copies = engine.copies
        self._layout = engine.profile.layout
        self._step = engine.profile.grid.step
        self._tier = tier
        self._chain = chain
        self._anchors_coming = anchors
        self._reserve = reserve
        self._standing = tier.standing(prompt, chain, line)
        self._source = EntrySource(self._standing, engine.slots, engine.copies)
        self._rows: list[tuple[Span, RowsHandle]] = []
        self._anchors: list[Anchor] = []
        self._state: KeptState | None = None
        self.lanes_place = False
        self.modest = True
        self.reserved = 0
        tier.hold(self._standing)

    @property
    def shared(self) -> int:
        """Up to where memory may have its rows already."""
        return self._standing[-1].span.end if self._standing else 0

    @property
    def row_handles(self) -> set[RowsHandle]:
        """The copies of rows that it needs."""
        shared = {block.handle for block in self._standing if block.handle is not None}
        return shared | {handle for _, handle in self._rows}

    @property
    def section_handles(self) -> set[SectionsHandle]:
        """The copies of sections that it needs."""
        return {anchor.handle for anchor in self._anchors}

    # --- RestoreTarget ----------------------------------------------------------------------------

    def row_sums(self, span: Span) -> Mapping[str, Sums]:
        there = any(block.span == span and block.is_there for block in self._standing)
        return self._source.row_sums(span) if there and self._layout.views else {}

    def begin(self, line: int, top: int, taint: int) -> None:
        parted = [block for block in self._standing if block.span.end > line]
        self._standing = [block for block in self._standing if block.span.end <= line]
        self._tier.let_go(parted, self._chain)
        nbytes = (top - line) * self._layout.row_bytes
        nbytes += self._anchors_coming * self._layout.section_bytes
        if not self._reserve(nbytes):
            raise NoRoom
        self.reserved = nbytes
        self.lanes_place = bool(self._layout.views) and self._takes_placed(line, top)

    def place_rows(self, span: Span) -> RowsPlace:
        place = self._copies.place_rows(self._new_rows(span))
        assert place is not None, "copies that lanes may bring rows into, but not these"
        return place

    def import_rows(self, span: Span, rows: ByteBuffers) -> Mapping[str, Sums]:
        handle = self._new_rows(span)
        self._copies.import_rows(handle, rows)
        return self._copies.row_sums(handle) if self._layout.views else {}

    def import_sections(self, anchor: StoredAnchor, sections: ByteBuffers) -> Mapping[str, Sums]:
        handle = self._copies.new_sections(anchor.line, sections)
        self._anchors.append(Anchor(anchor.line, anchor.kind, handle))
        return self._copies.section_sums(handle) if self._layout.sections else {}

    def anchored(self, line: int) -> None:
        assert self._anchors[-1].line == line, "another anchor came last"

    def adopt(self, state: AdoptedState) -> None:
        self._state = KeptState(
            ids=state.ids.copy(),
            key_ids=state.key_ids.copy(),
            namespace=state.namespace,
            taint=min(state.taint, state.line),
            anchors=tuple(sorted(self._anchors, key=lambda anchor: anchor.line)),
            end=state.end,
            regions=() if state.end is None else state.end.regions,
        )

    def give_up(self) -> None:
        for _, handle in self._rows:
            self._copies.release_rows(handle)
        for anchor in self._anchors:
            self._copies.release_sections(anchor.handle)
        self._close()

    # --- at its end -------------------------------------------------------------------------------

    def enter(self, entry: StoredEntry) -> RamEntry | None:
        """Become an entry of the tier.

        Args:
            entry: that it was read from.

        Returns:
            None if rows that were to be shared are gone meanwhile, or if it says of an end that it
            is one and nothing else of it.
        """
        state = self._state
        assert state is not None, "a state that is not all there, or was not verified"
        ends = state.anchors[-1].kind is AnchorKind.END
        if ends != (state.end is not None) or not all(one.is_there for one in self._standing):
            self.give_up()
            return None
        blocks = list(self._standing)
        for span, handle in self._rows:
            block = KeptBlock(
                span,
                state.ids[span.start : span.end],
                state.key_ids[span.start : span.end],
                blocks[-1] if blocks else None,
                clean=span.end <= state.taint and len(span) == self._step,
            )
            self._tier.blocks.take(block, handle)
            blocks.append(block)
        kept = self._tier.take(state, blocks, Role.PARK, entry.session, entry.id)
        self._close()
        return kept

    def _close(self) -> None:
        """Nothing of it is its own any more."""
        self._rows.clear()
        self._anchors.clear()
        self._tier.let_go(self._standing, self._chain)
        self._standing = []
        self.reserved = 0

    def _new_rows(self, span: Span) -> RowsHandle:
        handle = self._copies.new_rows(span)
        self._rows.append((span, handle))
        return handle

    def _takes_placed(self, line: int, top: int) -> bool:
        """Whether lanes may bring rows into copies, found out with the first of them."""
        if line == top:
            return False
        handle = self._copies.new_rows(Span(line, min(line + self._step, top)))
        try:
            return self._copies.place_rows(handle) is not None
        finally:
            self._copies.release_rows(handle)
