"""The tier in memory: conversations that lost their slot, and come back without a prefill."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from ..domain.anchor import Anchor, AnchorKind
from ..domain.entry import EntryId, Role, Source, Tier
from ..domain.grid import Grid
from ..domain.measured_rate import MeasuredRate
from ..domain.offers import Offer, usable_line
from ..domain.prompt import Prompt
from ..domain.prompt_chain import PromptChain
from ..domain.ram_retention import RamHolding, Retention, greedy_dual_credit, leaves_first
from ..domain.taint_line import TaintLine
from ..domain.way_index import WayIndex
from ..ports.clock import Clock
from ..ports.engine import Engine
from .held_sections import HeldSections
from .kept_blocks import KeptBlock, KeptBlocks
from .kept_seals import KeptSeals
from .kept_state import KeptState
from .leaving import Leaving, Order
from .ram_entry import RamEntry, is_part_of
from .resident_prefix import ResidentPrefix
from .shared_blocks import SharedBlocks

WAYS_MAX: Final = 8
"""Ways to start that are priced: the highest lines, of which most entries share the rows."""

COPY_BYTES_PER_S: Final = 4e9
BLOCK_S: Final = 2e-5
"""Assumed of copies in memory before the first is measured."""


@dataclass(frozen=True, slots=True)
class RamWay:
    """A verified way to start: the tokens were compared."""

    entry: RamEntry
    anchor: Anchor


@dataclass(slots=True)
class RamCounts:
    """What became of entries since the start."""

    kept: int = 0
    restored: int = 0
    superseded: int = 0
    evicted: int = 0
    demoted: int = 0
    healed: int = 0
    cut: int = 0
    collisions: int = 0


class RamTier:
    """All entries in memory, and the budget of their bytes. On the engine thread.

    Attributes:
        limit: of the bytes that it may hold, by those that it does.
        is_safe: whether an entry may leave memory and nothing is lost.
        given_up: whether the medium had an entry, and let it go for others since its last use.
        in_session: whether an entry is the conversation of an open session.
        cut: told of an entry whose rows from a line on are gone.
        entered: told of an entry that is kept now.
        left: told of one that is not any more.
        reserved: bytes of what is on its way here.
        give_way: gives up what is on its way here, for what memory is needed for now.
        rate: of copies between slots and memory.
        seals: seals what is kept, where it is to be verified.
    """

    def __init__(
        self,
        engine: Engine,
        sections: HeldSections,
        clock: Clock,
        bytes_max: int,
        retention: Retention = Retention.VALUE,
    ) -> None:
        """Keeps nothing yet."""
        self._grid: Grid = engine.profile.grid
        self._invariant = engine.profile.row_invariant
        self._section_bytes = engine.profile.layout.section_bytes
        self._sections = sections
        self._clock = clock
        self._retention = retention
        self.limit: Callable[[int], int] = lambda held: bytes_max
        self.is_safe: Callable[[RamEntry], bool] = lambda entry: True
        self.given_up: Callable[[RamEntry], bool] = lambda entry: False
        self.in_session: Callable[[RamEntry], bool] = lambda entry: False
        self.cut: Callable[[RamEntry, int], None] = lambda entry, line: None
        self.reserved: Callable[[], int] = lambda: 0
        self.give_way: Callable[[], None] = lambda: None
        self.entered: Callable[[RamEntry], None] = lambda entry: None
        self.left: Callable[[RamEntry], None] = lambda entry: None
        self.rate = MeasuredRate(COPY_BYTES_PER_S, BLOCK_S)
        self.seals: KeptSeals | None = None
        self.blocks = KeptBlocks(engine, self.free, self.make_room, self._lost)
        self.counts = RamCounts()
        self._entries: dict[EntryId, RamEntry] = {}
        self._index: WayIndex[Anchor] = WayIndex()
        self._shared = SharedBlocks(self.blocks, self._grid)
        self._numbers = count(1)
        self._inflation = 0.0

    # --- what there is ----------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[RamEntry, ...]:
        return tuple(self._entries.values())

    @property
    def nbytes(self) -> int:
        """Bytes that the budget counts."""
        return self.blocks.nbytes + self._sections.entry_bytes + self.reserved()

    @property
    def bytes_max(self) -> int:
        """Of copies of rows, and of sections that entries hold, with slots or alone."""
        return self.limit(self.nbytes)

    def free(self) -> int:
        """Bytes that may be taken with nothing given up."""
        return self.bytes_max - self.nbytes

    def room(self) -> int:
        """Bytes that may be taken once all is given up that nobody is bringing in."""
        lent = [entry for entry in self._entries.values() if entry.lent]
        copies = {block for entry in lent for block in entry.blocks if block.handle is not None}
        anchors = {anchor.handle for entry in lent for anchor in entry.state.anchors}
        rows = sum(self.blocks.bytes_of(block) for block in copies)
        return self.bytes_max - rows - len(anchors) * self._section_bytes

    def bytes_alone(self, entry: RamEntry) -> int:
        """Bytes that come free with an entry."""
        rows = sum(
            self.blocks.bytes_of(block)
            for block in entry.blocks
            if block.needed == 1 and block.handle is not None
        )
        handles = {anchor.handle for anchor in entry.state.anchors}
        return rows + self._sections.freed_without(handles)

    def bytes_all(self, entry: RamEntry) -> int:
        """Bytes of all that it needs, wherever that stands."""
        sections = len({anchor.handle for anchor in entry.state.anchors}) * self._section_bytes
        return sections + sum(self.blocks.bytes_of(block) for block in entry.blocks)

    def has(self, entry: RamEntry) -> bool:
        return self._entries.get(entry.id) is entry

    # --- keeping ----------------------------------------------------------------------------------

    def keep(
        self, slot: int, resident: ResidentPrefix, line: int, role: Role, session: str | None
    ) -> RamEntry:
        """Keep a slot's conversation up to a line at which it has an anchor. Moves nothing.

        The slot may be cut or forget it from now on: what is written over its rows is told to
        `blocks.vacate` before.
        """
        state = resident.kept_state(line)
        chain = PromptChain(state.key_ids, state.namespace, self._grid)
        blocks = self._shared.in_place(slot, state, chain)
        if self.seals is not None and resident.seals is not None:
            self.seals.keep(state, blocks, resident.seals)
        return self._keep(state, blocks, chain, role, session)

    def take(
        self,
        state: KeptState,
        blocks: Sequence[KeptBlock],
        role: Role,
        session: str | None,
        stored: EntryId,
    ) -> RamEntry:
        """Keep a state that was read into memory; the copies of its sections are this tier's now.

        Args:
            blocks: all of its rows.
            stored: the entry on the medium that it was read from.
        """
        chain = PromptChain(state.key_ids, state.namespace, self._grid)
        self._shared.note(blocks, chain)
        if self.seals is not None:
            self.seals.take(state, blocks)
        return self._keep(state, blocks, chain, role, session, stored)

    def standing(self, prompt: Prompt, chain: PromptChain, line: int) -> list[KeptBlock]:
        """The blocks of a prompt, from row 0 up to a line, that any cold prefill would write."""
        return self._shared.standing(prompt, chain, line)

    def hold(self, blocks: Sequence[KeptBlock]) -> None:
        """Somebody who is no entry needs these blocks too, until `let_go`."""
        for block in blocks:
            self.blocks.need(block)

    def let_go(self, blocks: Sequence[KeptBlock], chain: PromptChain) -> None:
        """Not any more.

        Args:
            chain: over the tokens of the blocks, or of more.
        """
        self._shared.release(blocks, chain)

    def _keep(
        self,
        state: KeptState,
        blocks: Sequence[KeptBlock],
        chain: PromptChain,
        role: Role,
        session: str | None,
        stored: EntryId | None = None,
    ) -> RamEntry:
        now_s = self._clock.monotonic()
        entry = RamEntry(
            id=EntryId(f"ram-{next(self._numbers)}"),
            role=role,
            state=state,
            blocks=tuple(blocks),
            chain=chain,
            session=session,
            created_s=now_s,
            last_used_s=now_s,
            stored=stored,
        )
        for block in entry.blocks:
            self.blocks.need(block)
        for anchor in state.anchors:
            self._sections.keep(anchor.handle)
        self._enter(entry)
        self.counts.kept += 1
        entry.credit = greedy_dual_credit(self._inflation, entry.line, self.bytes_all(entry))
        self._supersede(entry)
        self.entered(entry)
        return entry

    def used(self, entry: RamEntry) -> None:
        """A request has resumed from it."""
        entry.hits += 1
        entry.last_used_s = self._clock.monotonic()
        entry.credit = greedy_dual_credit(self._inflation, entry.line, self.bytes_all(entry))
        self.counts.restored += 1

    def drop(self, entry: RamEntry) -> None:
        """Give an entry up, with all that nobody else needs."""
        if self._entries.pop(entry.id, None) is None:
            return
        self._index.remove(entry.id)
        self._shared.release(entry.blocks, entry.chain)
        for anchor in entry.state.anchors:
            self._sections.give_up(anchor.handle)
        self.left(entry)

    def healed(self, entry: RamEntry) -> None:
        """Give an entry up whose tokens stand in a slot again, healed."""
        self.drop(entry)
        self.counts.healed += 1

    def demote(self, entry: RamEntry) -> None:
        """Give an entry up that the medium has as well."""
        self.drop(entry)
        self.counts.demoted += 1

    def distrust(self, entry: RamEntry) -> None:
        """Give up an entry that may be wrong, whoever is writing it."""
        self.cut(entry, 0)
        self.drop(entry)

    def clear(self) -> int:
        """Forget what nobody is bringing in; tokens that this were."""
        idle = [entry for entry in self._entries.values() if not entry.lent]
        for entry in idle:
            self.drop(entry)
        return sum(entry.line for entry in idle)

    # --- finding ----------------------------------------------------------------------------------

    def ways(self, prompt: Prompt, chain: PromptChain, *, counts: bool = True) -> list[RamWay]:
        """How entries continue a prompt: the highest lines first, each token compared.

        Args:
            counts: False counts no collision: nothing is to be told of the question.
        """
        found: list[RamWay] = []
        ways = deque(self._index.choices(chain, usable_line(len(prompt))))
        while ways and len(found) < WAYS_MAX:
            way = ways.popleft()
            entry = self._entries[way.owner]
            if self._is_prefix(entry, way.line, prompt, chain):
                found.append(RamWay(entry, way.what))
                continue
            self.counts.collisions += counts
            lower = self._index.lower(chain, way) if way.kind is AnchorKind.GRID else None
            if lower is not None:
                ways.append(lower)
        return found

    def shared_line(self, chain: PromptChain) -> int:
        """The highest grid line up to which some entry has the prompt's rows."""
        return self._index.shared_line(chain)

    def offer(self, way: RamWay, slot: int) -> Offer:
        """What a way costs in a slot: the rows that do not stand there yet."""
        missing = [
            self.blocks.bytes_of(block)
            for block in way.entry.blocks_below(way.anchor.line)
            if slot not in block.places
        ]
        entry, anchor = way.entry, way.anchor
        nbytes = sum(missing) + self._section_bytes if missing else 0
        return Offer(
            line=anchor.line,
            gate=TaintLine(entry.state.taint).gate(anchor.line, anchor.kind, self._invariant),
            tier=Tier.RAM,
            source=Source(entry.role.value),
            move_bytes=nbytes,
            move_seconds=self.rate.seconds(nbytes, len(missing)) if missing else 0.0,
        )

    # --- room -------------------------------------------------------------------------------------

    def make_room(self, nbytes: int, leaving: int | None = None) -> bool:
        """Give up what is worth least until so many bytes are free; whether they are.

        First what costs nothing: copies of rows that stand in a slot as well. No entry goes in
        vain.

        Args:
            leaving: a slot whose rows are about to be overwritten.
        """
        if self.free() < nbytes:
            self.blocks.drop_copies_in_place(nbytes - self.free(), leaving)
        if self.free() < nbytes:
            self.give_way()
        if self.free() < nbytes and nbytes > self.room():
            return False
        return self.free() >= nbytes or self._evict(nbytes)

    def sections_at_most(self, resident: ResidentPrefix) -> int:
        """Bytes of a slot's copies of sections that would be kept, whoever holds them already."""
        return len(resident.kept_state(resident.highest).anchors) * self._section_bytes

    def sections_needed(self, resident: ResidentPrefix) -> int:
        """Bytes of a slot's copies of sections that no entry holds yet."""
        handles = {anchor.handle for anchor in resident.kept_state(resident.highest).anchors}
        return self._sections.bytes_not_kept(handles)

    def unsafe_victims(self, nbytes: int, borrowed: RamEntry | None = None) -> list[RamEntry]:
        """Entries that would go for so many bytes and would be lost, in the order they would go.

        But for those that the medium has given up: written again, each would take another's place.

        Args:
            borrowed: an entry that has to stay for now, and may have to go before all is taken.
        """
        freed = self.free()
        unsafe: list[RamEntry] = []
        for entry in self._by_retention(borrowed):
            if freed >= nbytes:
                break
            freed += self.bytes_alone(entry)
            if not (self.is_safe(entry) or self.given_up(entry)):
                unsafe.append(entry)
        return unsafe

    def give_back(self, wanted: int, roles: Sequence[Role] = tuple(Role)) -> int:
        """Give up entries of some roles until so many bytes came free; how many did."""
        if wanted > 0:
            self.give_way()  # what was reserved may not have been taken: it is not counted
        before = self.nbytes
        for entry in self._by_retention():
            if before - self.nbytes >= wanted:
                break
            if entry.role in roles:
                self.drop(entry)
                self.counts.evicted += 1
        return before - self.nbytes

    def held(self, roles: Sequence[Role]) -> int:
        """Bytes that would come free with all entries of some roles, or less."""
        return sum(self.bytes_alone(one) for one in self._entries.values() if one.role in roles)

    # --- private ----------------------------------------------------------------------------------

    def _enter(self, entry: RamEntry) -> None:
        self._entries[entry.id] = entry
        self._index.add(entry.id, entry.ways(), entry.block_ends())

    def _supersede(self, newer: RamEntry) -> None:
        """Give up what the newer entry can do as well."""
        for older in self.entries:
            same = older is not newer and older.namespace == newer.namespace and not older.lent
            if same and is_part_of(older, newer):
                newer.hits = max(newer.hits, older.hits)
                self.drop(older)
                self.counts.superseded += 1

    def _is_prefix(self, entry: RamEntry, line: int, prompt: Prompt, chain: PromptChain) -> bool:
        """Whether an entry's tokens up to a line are the prompt's, one by one."""
        return (
            entry.namespace == chain.namespace
            and len(entry.ids) >= line
            and np.array_equal(entry.state.key_ids[:line], prompt.key_ids[:line])
            and np.array_equal(entry.ids[:line], prompt.ids[:line])
        )

    def _by_retention(self, borrowed: RamEntry | None = None) -> list[RamEntry]:
        now_s = self._clock.monotonic()
        idle = [one for one in self._entries.values() if not one.lent or one is borrowed]
        return sorted(
            idle, key=lambda one: leaves_first(self._holding(one), self._retention, now_s)
        )

    def _evict(self, nbytes: int) -> bool:
        """Give entries up until so many bytes are free; whether they are.

        First those with which anything comes free.
        """
        leaving = self._leaving()
        while self.free() < nbytes:
            victim = leaving.next()
            if victim is None:
                return False
            self._inflation = max(self._inflation, victim.credit)
            shared = self._shared_by_two(victim)
            self.drop(victim)
            self.counts.evicted += 1
            if shared:
                leaving = self._leaving()  # another holds alone now what both held
        return True

    def _leaving(self) -> Leaving:
        now_s = self._clock.monotonic()

        def order(entry: RamEntry) -> Order:
            holding = self._holding(entry)
            return not holding.alone_bytes, *leaves_first(holding, self._retention, now_s)

        return Leaving([one for one in self._entries.values() if not one.lent], order)

    def _shared_by_two(self, entry: RamEntry) -> bool:
        """Whether just one other entry needs some of what this one does."""
        return any(block.needed == 2 for block in entry.blocks) or any(
            self._sections.holders(anchor.handle) == 2 for anchor in entry.state.anchors
        )

    def _holding(self, entry: RamEntry) -> RamHolding:
        safe = self.is_safe(entry)
        return RamHolding(
            tokens=entry.line,
            alone_bytes=self.bytes_alone(entry),
            hits=entry.hits,
            last_used_s=entry.last_used_s,
            credit=entry.credit,
            safe=safe,
            given_up=not safe and self.given_up(entry),
            in_session=self.in_session(entry),
        )

    def _lost(self, block: KeptBlock) -> None:
        """The rows of a block are gone: entries reach no higher than below it."""
        for entry in [one for one in self._entries.values() if block in one.blocks]:
            self._cut(entry, block.span.start)

    def _cut(self, entry: RamEntry, line: int) -> None:
        # Above a line inside a block there would be rows without a key.
        ends = {block.span.end for block in entry.blocks if block.span.end <= line}
        lines = [anchor.line for anchor in entry.state.anchors if anchor.line in ends]
        self.cut(entry, max(lines, default=0))  # what stands above is given up with it
        self.counts.cut += 1
        if not lines:
            self.drop(entry)
            return
        state = entry.state.below(lines[-1])
        kept = entry.blocks_below(state.line)
        gone = [anchor for anchor in entry.state.anchors if anchor.line > state.line]
        self._index.remove(entry.id)
        lost = entry.blocks[len(kept) :]
        chain = entry.chain
        entry.state, entry.blocks = state, tuple(kept)
        entry.chain = PromptChain(state.key_ids, state.namespace, self._grid)
        self._shared.release(lost, chain)
        for anchor in gone:
            self._sections.give_up(anchor.handle)
        self._index.add(entry.id, entry.ways(), entry.block_ends())
