"""Row blocks that entries keep: copies outside the slots, or rows that still stand in one.

A conversation that loses its slot is not copied out. Its blocks are *claimed* where they stand, and
each is moved only when something is about to be written over it: what nobody overwrites is never
moved, and every row is moved at most once.

    slot   [ 0 ][ 1 ][ 2 ][ 3 ][ 4 ]          claimed by an entry: 0 1 2 3 4
           [ 0'][ 1'][ 2 ][ 3 ][ 4 ]          a guest wrote two: 0 and 1 are copies now
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ..domain.anchor import RowsHandle
from ..domain.grid import Span
from ..domain.sums import PartSums
from ..domain.tokens import TokenIds
from ..ports.engine import Engine

PREPARED_PART: Final = 4
"""Of the room that is left: more is not taken ahead."""


@dataclass(slots=True, eq=False)
class KeptBlock:
    """The rows of one grid step, or of the short one at an end.

    Attributes:
        below: the block that it stands on: with the ids it tells all tokens up to its end.
        ids: of its own rows, as the model read them.
        key_ids: the same as caches compare them.
        clean: every row was written by a cold grid prefill, so that any other such prefill of the
            same tokens has written the same bits.
        handle: a copy outside the slots.
        places: slots where these very rows stand.
        needed: how many entries need it.
        seals: where it is to be verified, the sums of its tainted rows when they were written.
    """

    span: Span
    ids: TokenIds
    key_ids: TokenIds
    below: "KeptBlock | None"
    clean: bool
    handle: RowsHandle | None = None
    places: set[int] = field(default_factory=set[int])
    needed: int = 0
    seals: tuple[tuple[Span, PartSums], ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether its rows can be had."""
        return self.handle is not None or bool(self.places)

    def is_of(self, ids: TokenIds, key_ids: TokenIds, below: "KeptBlock | None") -> bool:
        """Whether it is kept, and of these tokens, each compared, on top of this block."""
        return (
            self.needed > 0
            and self.is_there
            and self.below is below
            and np.array_equal(self.ids, ids)
            and np.array_equal(self.key_ids, key_ids)
        )

    def only_in(self, slot: int) -> bool:
        """Whether what is written there now would be the end of it."""
        return self.needed > 0 and self.handle is None and self.places == {slot}


@dataclass(slots=True)
class MoveCounts:
    """What was moved since the start, in blocks."""

    captured: int = 0
    restored: int = 0
    swapped: int = 0
    lost: int = 0


class KeptBlocks:
    """All kept blocks of one engine. On the engine thread."""

    def __init__(
        self,
        engine: Engine,
        free: Callable[[], int],
        make_room: Callable[[int], bool],
        lost: Callable[[KeptBlock], None],
    ) -> None:
        """Keeps nothing yet.

        Args:
            free: bytes that copies may take as it is.
            make_room: gives up what is worth less than so many bytes more; may release blocks.
            lost: told of a block whose rows are gone; nobody may count on it any more.
        """
        self._states = engine.slots
        self._copies = engine.copies
        self._step = engine.profile.grid.step
        self._window = engine.profile.window
        self.row_bytes = engine.profile.layout.row_bytes
        self._free = free
        self._make_room = make_room
        self._lost = lost
        self._claims: list[dict[int, list[KeptBlock]]] = [{} for _ in engine.slots]
        self.nbytes = 0
        """Of all copies."""
        self.counts = MoveCounts()

    def bytes_of(self, block: KeptBlock) -> int:
        """What a copy of it takes."""
        return len(block.span) * self.row_bytes

    def claimed(self, slot: int, span: Span) -> KeptBlock | None:
        """The kept block whose rows stand at a span of a slot."""
        for block in self._claims[slot].get(span.start // self._step, ()):
            if block.span == span:
                return block
        return None

    def claim(self, slot: int, block: KeptBlock) -> None:
        """A block's rows stand in a slot now: nothing is written over them before they are safe."""
        if slot not in block.places:
            block.places.add(slot)
            self._claims[slot].setdefault(block.span.start // self._step, []).append(block)

    def take(self, block: KeptBlock, handle: RowsHandle) -> None:
        """A copy of a block's rows that was made elsewhere is the block's from now on."""
        assert block.handle is None, "a block that has a copy already"
        block.handle = handle
        self.nbytes += self.bytes_of(block)

    def prepare_copy(self, free_max: int) -> None:
        """Take memory for one more copy, where there is plenty.

        Args:
            free_max: bytes that may stand prepared; a slot's are enough in any case, and where it
                is a good part of what is left, others need that more.
        """
        size = self._step * self.row_bytes
        most = min(free_max, self._free() // PREPARED_PART, self._window * self.row_bytes)
        if self._copies.counts().free_bytes + size <= most:
            self._copies.prepare_rows()

    def need(self, block: KeptBlock) -> None:
        """One more entry needs it."""
        block.needed += 1

    def release(self, block: KeptBlock) -> None:
        """An entry needs it no more; with the last one it is given up."""
        block.needed -= 1
        if block.needed:
            return
        self._drop_copy(block)
        for slot in list(block.places):
            self._unclaim(slot, block)

    def copies_needed(self, slot: int, span: Span) -> int:
        """Bytes that the rows of a span take once they are kept and have left the slot."""
        needed = 0
        start = span.start
        while start < span.end:
            end = min(start + self._step, span.end)
            kept = self.claimed(slot, Span(start, end))
            if kept is None or (kept.handle is None and kept.places <= {slot}):
                needed += (end - start) * self.row_bytes
            start = end
        return needed

    def at_risk(self, slot: int, start: int, end: int) -> int:
        """Bytes of copies to be made before rows [start, end) of a slot are overwritten."""
        return sum(self.bytes_of(block) for block in self._standing(slot, start, end))

    def vacate(self, slot: int, start: int, end: int) -> None:
        """Rows [start, end) of a slot are about to be overwritten: move what is needed of them.

        What there is no room for is lost, and told.
        """
        if not self._claims[slot]:
            return
        for block in self._touching(slot, start, end):
            if slot in block.places:  # making room for one before it may have given this one up
                self._move_out(slot, block)

    def bring(self, slot: int, block: KeptBlock) -> bool:
        """Put a block's rows where they belong in a slot; False if they are nowhere any more.

        What stands there and is needed is moved out first: into the same buffer where there is room
        for no other.
        """
        assert block.needed, "rows that nobody keeps cannot be brought"
        if slot in block.places:
            return True
        standing = self._standing(slot, block.span.start, block.span.end)
        changes_places = len(standing) == 1 and standing[0].span == block.span
        if block.handle is not None and changes_places and self._free() < self.bytes_of(block):
            self._swap(slot, block, standing[0])
            return True
        self.vacate(slot, block.span.start, block.span.end)
        # Making room may have been the end of its copy, where it stands in another slot as well.
        if block.handle is None:
            if not block.places:
                return False
            source = next(iter(block.places))
            if not self._capture(source, block):
                self._carry(source, slot, block.span)
        if block.handle is not None:
            self._states[slot].restore_rows(block.handle)
        self.counts.restored += 1
        self.claim(slot, block)
        return True

    def forget(self, slot: int) -> None:
        """The rows of a slot are undefined: what stood only there is lost."""
        for blocks in list(self._claims[slot].values()):
            for block in list(blocks):
                self._unclaim(slot, block)
                if block.needed and not block.is_there:
                    self._lose(block)

    def drop_copies_in_place(self, wanted: int, leaving: int | None = None) -> int:
        """Give up copies of rows that stand in a slot as well; bytes that came free.

        They cost nothing to lose now, and a copy again once they are overwritten.

        Args:
            leaving: a slot whose rows are about to be overwritten: they do not count.
        """
        freed = 0
        for claims in self._claims:
            for blocks in list(claims.values()):
                for block in blocks:
                    if freed >= wanted:
                        return freed
                    if block.handle is not None and block.places != {leaving}:
                        freed += self.bytes_of(block)
                        self._drop_copy(block)
        return freed

    def _touching(self, slot: int, start: int, end: int) -> list[KeptBlock]:
        """The blocks some of whose rows in a slot lie in [start, end)."""
        claims = self._claims[slot]
        if not claims or start >= end:
            return []
        numbers = range(start // self._step, (end - 1) // self._step + 1)
        return [
            block
            for number in (numbers if len(numbers) <= len(claims) else sorted(claims))
            if number in numbers
            for block in claims.get(number, ())
            if block.span.end > start
        ]

    def _standing(self, slot: int, start: int, end: int) -> list[KeptBlock]:
        """Those of them that would be lost."""
        return [block for block in self._touching(slot, start, end) if block.only_in(slot)]

    def _move_out(self, slot: int, block: KeptBlock) -> None:
        safe = not block.only_in(slot) or self._capture(slot, block)
        self._unclaim(slot, block)
        if not safe and block.needed:
            self._lose(block)

    def _capture(self, slot: int, block: KeptBlock) -> bool:
        """Copy a block out of a slot; False if there is no room, or nobody needs it any more."""
        size = self.bytes_of(block)
        if self._free() < size and not self._make_room(size):
            return False
        if not block.needed:
            return False
        block.handle = self._states[slot].capture_rows(block.span)
        self.nbytes += size
        self.counts.captured += 1
        return True

    def _swap(self, slot: int, block: KeptBlock, standing: KeptBlock) -> None:
        assert block.handle is not None
        self._states[slot].swap_rows(block.handle)
        # Others whose rows stood there have copies, or stand elsewhere too.
        for overwritten in self._touching(slot, block.span.start, block.span.end):
            self._unclaim(slot, overwritten)
        standing.handle, block.handle = block.handle, None
        self.claim(slot, block)
        self.counts.swapped += 1

    def _carry(self, source: int, slot: int, span: Span) -> None:
        """Copy rows from slot to slot where there is no room for a copy that is kept."""
        views = self._states[slot].layout.views
        rows = {view.name: np.empty(len(span) * view.row_bytes, np.uint8) for view in views}
        self._states[source].export_rows(span, rows)
        self._states[slot].import_rows(span, rows)

    def _drop_copy(self, block: KeptBlock) -> None:
        if block.handle is not None:
            self._copies.release_rows(block.handle)
            block.handle = None
            self.nbytes -= self.bytes_of(block)

    def _unclaim(self, slot: int, block: KeptBlock) -> None:
        block.places.discard(slot)
        number = block.span.start // self._step
        blocks = self._claims[slot].get(number, [])
        if block in blocks:
            blocks.remove(block)
        if not blocks:
            self._claims[slot].pop(number, None)

    def _lose(self, block: KeptBlock) -> None:
        self.counts.lost += 1
        self._lost(block)
