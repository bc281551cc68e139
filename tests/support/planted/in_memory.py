"""Faults of the tier in memory: rows that leave slots and come back, and who may still use them."""

# pyright: reportPrivateUsage=false
# A fault is planted where it would be made, and that is inside.

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from anchorline.application import ram_tier
from anchorline.application.displacing import Displacing
from anchorline.application.endings import Endings
from anchorline.application.entry_write import Progress
from anchorline.application.forwards import Forwards
from anchorline.application.held_sections import HeldSections
from anchorline.application.kept_blocks import KeptBlock, KeptBlocks
from anchorline.application.kept_state import KeptState
from anchorline.application.memory_budget import MemoryBudget
from anchorline.application.peek import Peek, Peeked
from anchorline.application.preparing import Preparer
from anchorline.application.ram_entry import RamEntry
from anchorline.application.ram_restore import RamRestore
from anchorline.application.ram_tier import RamTier
from anchorline.application.request import GenerationRequest
from anchorline.application.resident_prefix import ResidentPrefix
from anchorline.application.shared_blocks import SharedBlocks
from anchorline.application.slots import Preparation, Slot
from anchorline.application.writes import Write, Writes
from anchorline.domain.anchor import SectionsHandle
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.errors import AnchorlineError
from anchorline.domain.grid import Span
from anchorline.domain.prompt import Prompt
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.ram_retention import RamHolding, Retention, leaves_first

from .in_reads import COST_OF_COLLISIONS, short_keys
from .patching import (
    Planted,
    crowded,
    no_room_to_move,
    remembering,
    replaced,
    saving_all_the_time,
    short_of_memory,
    together,
)


def _moved_too_late() -> AbstractContextManager[None]:
    prefill, vacate = Forwards._prefill, Forwards._vacate

    def faulty(self: Forwards, slot: Slot) -> None:
        late: list[tuple[Slot, Span]] = []

        def later(forwards: Forwards, which: Slot, span: Span) -> None:
            del forwards
            late.append((which, span))

        with replaced(Forwards, "_vacate", later):
            prefill(self, slot)
        for which, span in late:
            vacate(self, which, span)

    return replaced(Forwards, "_prefill", faulty)


def _written_on_over_what_is_kept() -> AbstractContextManager[None]:
    decode = Forwards._decode

    def nothing(self: Forwards, slot: Slot, span: Span) -> None:
        del self, slot, span

    def faulty(self: Forwards, slots: Sequence[Slot]) -> None:
        with replaced(Forwards, "_vacate", nothing):
            decode(self, slots)

    return replaced(Forwards, "_decode", faulty)


def _kept_with_another_taint() -> AbstractContextManager[None]:
    kept_state = ResidentPrefix.kept_state

    def faulty(self: ResidentPrefix, line: int) -> KeptState:
        return replace(kept_state(self, line), taint=line)

    return replaced(ResidentPrefix, "kept_state", faulty)


def _longer_than_its_key() -> AbstractContextManager[None]:
    below = KeptState.below

    def faulty(self: KeptState, line: int) -> KeptState:
        return replace(below(self, line), anchors=self.anchors)

    return replaced(KeptState, "below", faulty)


def _end_with_another_ones_spans() -> AbstractContextManager[None]:
    keep = RamTier._keep

    def faulty(
        self: RamTier,
        state: KeptState,
        blocks: Sequence[KeptBlock],
        chain: PromptChain,
        role: Role,
        session: str | None,
        stored: EntryId | None = None,
    ) -> RamEntry:
        others = [one.state.end for one in self.entries if one.state.end is not None]
        if state.end is not None and others:
            spans = tuple(span for span in others[-1].regions if span.end <= state.end.line)
            state = replace(state, end=replace(state.end, regions=spans))
        return keep(self, state, blocks, chain, role, session, stored)

    return replaced(RamTier, "_keep", faulty)


def _given_up_unwritten() -> AbstractContextManager[None]:
    def faulty(self: Displacing, entries: Sequence[RamEntry]) -> list[Write]:
        del self, entries
        return []

    return replaced(Displacing, "_save_entries", faulty)


def _lent_too_short() -> AbstractContextManager[None]:
    step = RamRestore.step

    def faulty(self: RamRestore) -> Progress | None:
        self.close()
        return step(self)

    return replaced(RamRestore, "step", faulty)


def _consumed_by_its_reader() -> AbstractContextManager[None]:
    used = RamTier.used

    def faulty(self: RamTier, entry: RamEntry) -> None:
        used(self, entry)
        self.drop(entry)

    return replaced(RamTier, "used", faulty)


def _best_leaves_first() -> AbstractContextManager[None]:
    def faulty(holding: RamHolding, policy: Retention, now_s: float) -> tuple[float, ...]:
        return tuple(-float(part) for part in leaves_first(holding, policy, now_s))

    return replaced(ram_tier, "leaves_first", faulty)


def _anchor_released_by_its_slot() -> AbstractContextManager[None]:
    def faulty(
        self: HeldSections, counts: dict[SectionsHandle, int], handle: SectionsHandle
    ) -> None:
        counts[handle] -= 1
        if not counts[handle]:
            del counts[handle]
            if handle not in self._slots:
                self._copies.release_sections(handle)

    return replaced(HeldSections, "_count_down", faulty)


def _anchor_written_over() -> AbstractContextManager[None]:
    def faulty(self: HeldSections, handle: SectionsHandle) -> bool:
        return self._slots.get(handle) == 1

    return replaced(HeldSections, "_is_alone", faulty)


def _second_claim_forgotten() -> AbstractContextManager[None]:
    def faulty(self: KeptBlocks, slot: int, block: KeptBlock, standing: KeptBlock) -> None:
        assert block.handle is not None
        self._states[slot].swap_rows(block.handle)
        self._unclaim(slot, standing)
        standing.handle, block.handle = block.handle, None
        self.claim(slot, block)
        self.counts.swapped += 1

    return replaced(KeptBlocks, "_swap", faulty)


def _claims_outlive_their_rows() -> AbstractContextManager[None]:
    move_out = KeptBlocks._move_out

    def faulty(self: KeptBlocks, slot: int, block: KeptBlock) -> None:
        if block.only_in(slot):
            move_out(self, slot, block)

    return replaced(KeptBlocks, "_move_out", faulty)


def _lost_and_not_told() -> AbstractContextManager[None]:
    def faulty(self: KeptBlocks, block: KeptBlock) -> None:
        del block
        self.counts.lost += 1

    return replaced(KeptBlocks, "_lose", faulty)


def _copy_not_given_back() -> AbstractContextManager[None]:
    def faulty(self: KeptBlocks, block: KeptBlock) -> None:
        block.needed -= 1
        if not block.needed:
            for slot in list(block.places):
                self._unclaim(slot, block)

    return replaced(KeptBlocks, "release", faulty)


def _copied_before_there_is_room() -> AbstractContextManager[None]:
    def faulty(self: KeptBlocks, slot: int, block: KeptBlock) -> bool:
        block.handle = self._states[slot].capture_rows(block.span)
        self.nbytes += self.bytes_of(block)
        self.counts.captured += 1
        if self._free() >= 0 or self._make_room(0):
            return True
        self._drop_copy(block)
        return False

    return replaced(KeptBlocks, "_capture", faulty)


def _claims_after_a_failed_forward() -> AbstractContextManager[None]:
    fail, forget = Endings.fail, KeptBlocks.forget

    def nothing(self: KeptBlocks, slot: int) -> None:
        del self, slot

    def faulty(self: Endings, slot: Slot, error: AnchorlineError) -> None:
        with replaced(KeptBlocks, "forget", nothing):
            fail(self, slot, error)

    del forget
    return replaced(Endings, "fail", faulty)


def _shared_across_namespaces() -> AbstractContextManager[None]:
    block_of = SharedBlocks._block

    def faulty(
        self: SharedBlocks,
        slot: int,
        span: Span,
        below: KeptBlock | None,
        state: KeptState,
        chain: PromptChain,
    ) -> KeptBlock:
        ids = state.ids[span.start : span.end]
        for block in self._clean.values() if span.end <= state.taint else ():
            same = block.span == span and block.below is below
            if same and block.is_there and np.array_equal(block.ids, ids):
                self._blocks.claim(slot, block)
                return block
        return block_of(self, slot, span, below, state, chain)

    return replaced(SharedBlocks, "_block", faulty)


def _tainted_taken_for_clean() -> AbstractContextManager[None]:
    block_of = SharedBlocks._block

    def faulty(
        self: SharedBlocks,
        slot: int,
        span: Span,
        below: KeptBlock | None,
        state: KeptState,
        chain: PromptChain,
    ) -> KeptBlock:
        return block_of(self, slot, span, below, replace(state, taint=state.line), chain)

    return replaced(SharedBlocks, "_block", faulty)


def _session_for_identity() -> AbstractContextManager[None]:
    def faulty(older: RamEntry, newer: RamEntry) -> bool:
        return older.session is not None and older.session == newer.session

    return replaced(ram_tier, "is_part_of", faulty)


def _kept_tokens_not_compared() -> AbstractContextManager[None]:
    def faulty(
        self: RamTier, entry: RamEntry, line: int, prompt: Prompt, chain: PromptChain
    ) -> bool:
        del self, prompt
        return entry.namespace == chain.namespace and len(entry.ids) >= line

    return together(short_keys(), replaced(RamTier, "_is_prefix", faulty))


def _no_fence_before_rows_come_back() -> AbstractContextManager[None]:
    step_ram = Preparer._step_ram

    def nothing(self: Writes, slot: int, line: int) -> None:
        del self, slot, line

    def faulty(self: Preparer, ram: RamTier, preparation: Preparation) -> bool:
        with replaced(Writes, "fence", nothing):
            return step_ram(self, ram, preparation)

    return replaced(Preparer, "_step_ram", faulty)


def _memory_not_foreseen() -> AbstractContextManager[None]:
    look = Peek.look

    def faulty(self: Peek, request: GenerationRequest) -> Peeked:
        ram, self._slots._ram = self._slots._ram, None
        try:
            return look(self, request)
        finally:
            self._slots._ram = ram

    return replaced(Peek, "look", faulty)


def _best_reason_first() -> AbstractContextManager[None]:
    give_back = MemoryBudget._give_back

    def faulty(self: MemoryBudget, reason: str, missing: Callable[[], int]) -> int:
        caches, self._caches = self._caches, self._caches[::-1]
        try:
            return give_back(self, reason, missing)
        finally:
            self._caches = caches

    return replaced(MemoryBudget, "_give_back", faulty)


FAULTS = (
    Planted(
        "moved too late",
        "moves what stands in a prefill's way when the chunk has run",
        "application.forwards.Forwards._prefill",
        _moved_too_late,
        world=remembering,
    ),
    Planted(
        "written on over what is kept",
        "shares a conversation's last block with the slot, which goes on to write there",
        "application.forwards.Forwards._decode",
        _written_on_over_what_is_kept,
        world=remembering,
    ),
    Planted(
        "kept with another taint",
        "keeps a conversation as clean up to its end",
        "application.resident_prefix.ResidentPrefix.kept_state",
        _kept_with_another_taint,
        world=remembering,
    ),
    Planted(
        "longer than its key",
        "cuts the tokens of a state to a line, and leaves the anchors above it",
        "application.kept_state.KeptState.below",
        _longer_than_its_key,
        world=remembering,
    ),
    Planted(
        "end with another one's spans",
        "keeps an end with the spans of the conversation that was kept before",
        "application.ram_tier.RamTier._keep",
        _end_with_another_ones_spans,
        world=remembering,
    ),
    Planted(
        "given up unwritten",
        "makes room in memory and does not have written what the medium lacks",
        "application.displacing.Displacing._save_entries",
        _given_up_unwritten,
        world=short_of_memory,
    ),
    Planted(
        "lent too short",
        "lets an entry leave again once the first of its blocks has been brought in",
        "application.ram_restore.RamRestore.step",
        _lent_too_short,
        world=remembering,
    ),
    Planted(
        "consumed by its reader",
        "moves an entry into the slot that resumes from it, and keeps none",
        "application.ram_tier.RamTier.used",
        _consumed_by_its_reader,
        world=remembering,
    ),
    Planted(
        "best leaves first",
        "sorts the entries by what they are worth, and takes the wrong end",
        "application.ram_tier.leaves_first",
        _best_leaves_first,
        world=short_of_memory,
    ),
    Planted(
        "anchor released by its slot",
        "counts the slots that have a copy of sections, and not the entries",
        "application.held_sections.HeldSections._count_down",
        _anchor_released_by_its_slot,
        world=remembering,
    ),
    Planted(
        "anchor written over",
        "takes the buffer of the last end for the next one, though an entry has it too",
        "application.held_sections.HeldSections._is_alone",
        _anchor_written_over,
        world=remembering,
    ),
    Planted(
        "second claim forgotten",
        "exchanges rows with a copy, and tells one of the two blocks that stood there",
        "application.kept_blocks.KeptBlocks._swap",
        _second_claim_forgotten,
        world=no_room_to_move,
    ),
    Planted(
        "claims outlive their rows",
        "goes on to count on rows in a slot that were overwritten, where it has a copy of them",
        "application.kept_blocks.KeptBlocks._move_out",
        _claims_outlive_their_rows,
        world=remembering,
    ),
    Planted(
        "lost and not told",
        "counts rows for which there was no room, and leaves the entry as long as it was",
        "application.kept_blocks.KeptBlocks._lose",
        _lost_and_not_told,
        world=short_of_memory,
    ),
    Planted(
        "copy not given back",
        "forgets a block that nobody needs, and leaves its copy with the engine",
        "application.kept_blocks.KeptBlocks.release",
        _copy_not_given_back,
        world=remembering,
    ),
    Planted(
        "copied before there is room",
        "holds the budget after a copy was made",
        "application.kept_blocks.KeptBlocks._capture",
        _copied_before_there_is_room,
        world=short_of_memory,
    ),
    Planted(
        "claims after a failed forward",
        "counts on rows that a failed forward has left undefined",
        "application.endings.Endings.fail",
        _claims_after_a_failed_forward,
        world=remembering,
    ),
    Planted(
        "shared across namespaces",
        "shares the rows of equal tokens, for whomever they were read",
        "application.shared_blocks.SharedBlocks._block",
        _shared_across_namespaces,
        world=remembering,
    ),
    Planted(
        "tainted taken for clean",
        "shares the rows of equal tokens, whoever wrote them",
        "application.shared_blocks.SharedBlocks._block",
        _tainted_taken_for_clean,
        world=remembering,
    ),
    Planted(
        "session for identity",
        "takes the newest entry of a session for all of that session's",
        "application.ram_tier.is_part_of",
        _session_for_identity,
        world=remembering,
    ),
    Planted(
        "kept tokens not compared",
        "believes the key of an entry; keys have 8 bits here, so that they collide",
        "application.ram_tier.RamTier._is_prefix",
        _kept_tokens_not_compared,
        world=remembering,
        tolerated=COST_OF_COLLISIONS,
    ),
    Planted(
        "no fence before rows come back",
        "brings rows into a slot while a save goes on copying from it",
        "application.preparing.Preparer._step_ram",
        _no_fence_before_rows_come_back,
        world=saving_all_the_time,
    ),
    Planted(
        "memory not foreseen",
        "foresees what a request resumes from without a look at memory",
        "application.peek.Peek.look",
        _memory_not_foreseen,
        world=remembering,
    ),
    Planted(
        "best reason first",
        "asks for memory from the most valuable cache on",
        "application.memory_budget.MemoryBudget._give_back",
        _best_reason_first,
        world=crowded,
    ),
)
