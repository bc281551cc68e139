"""The slots of an engine, and which of them serves a request."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..domain.anchor import Anchor, AnchorKind
from ..domain.anchor_budget import AnchorBudget
from ..domain.disk_index import Continuation
from ..domain.entry import EntryId, Source
from ..domain.offers import COLD, Offer, rank
from ..domain.prompt import Prompt
from ..domain.prompt_chain import PromptChain
from ..domain.stored_entry import StoredEntry
from ..ports.engine import Engine
from .disk_service import DiskService
from .fetch import Fetch
from .generation import Generation
from .held_sections import HeldSections
from .kept_state import Survey
from .live_verify_seals import Seals
from .ram_entry import RamEntry
from .ram_restore import RamRestore
from .ram_tier import RamTier, RamWay
from .request import Decision, EventSink, GenerationRequest, Refusal
from .resident_prefix import ResidentPrefix
from .restore import Restore
from .writes import Write


@dataclass(slots=True)
class Slot:
    """One slot: what is resident in it, and what happens in it.

    Attributes:
        running: a request whose prefill has begun.
        preparing: a request that waits for its state, or for another's to be saved.
        used: counts placements; the least one is least recently used.
        stepped: counts prefill chunks; the least one waits longest for its next.
        session: the hint of the conversation that is resident.
        read_back: what is resident came from the medium ahead of a request, and was not used yet.
        used_s: when a request last ended in it, on the monotonic clock.
        warming: brings in what a request to come will resume from.
    """

    index: int
    resident: ResidentPrefix
    running: Generation | None = None
    preparing: "Preparation | None" = None
    used: int = 0
    stepped: int = 0
    session: str | None = None
    read_back: bool = False
    used_s: float = -math.inf
    warming: "Preparation | None" = None

    @property
    def idle(self) -> bool:
        return self.running is None and self.preparing is None and self.warming is None


@dataclass(frozen=True, slots=True)
class Placement:
    """A request's slot and where its prefill starts there.

    Attributes:
        continuation: what has to be brought in from the medium first, if anything.
        way: what has to be brought in from memory first, if anything.
        chain: the prompt's keys; None without a tier besides the slots.
    """

    slot: Slot
    offer: Offer
    decision: Decision
    continuation: Continuation | None
    way: RamWay | None
    chain: PromptChain | None

    @property
    def stands(self) -> bool:
        """Whether the prefill may start from what stands in the slot."""
        return self.continuation is None and self.way is None

    @property
    def line_in_place(self) -> int:
        """Up to where it needs the rows that stand in the slot as its resident's."""
        return self.offer.line if self.stands else 0


@dataclass(slots=True)
class Preparation:
    """A request that has a slot and whose prefill cannot begin yet.

    Attributes:
        awaited: a write that will continue the prompt once it is durable; None when it is.
        displaced: what becomes of the slot's conversation is settled.
        saves: entries that must be durable before they leave memory for that conversation.
        tried: those that have been written for it, whatever came of that.
        save: the conversation that is about to lose its rows; None when they are copied.
        held: the stored entry that is to be restored, until the restore holds it.
        lent: the entry in memory that is to be brought in, likewise.
        restore: from the medium, under way; None before it begins.
        ram: from memory, under way; None before it begins.
        fetch: what is being read into memory for it already; None when it is there.
        began_s: when the restore began.
    """

    request: GenerationRequest
    sink: EventSink
    placement: Placement
    started_s: float
    awaited: Write | None = None
    displaced: bool = False
    saves: list[Write] = field(default_factory=list[Write])
    tried: set[EntryId] = field(default_factory=set[EntryId])
    save: Write | None = None
    held: StoredEntry | None = None
    lent: RamEntry | None = None
    restore: Restore | None = None
    ram: RamRestore | None = None
    fetch: Fetch | None = None
    began_s: float = 0.0
    refused: tuple[Refusal, ...] = ()
    quarantined: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether the prefill may begin at once."""
        waits = self.awaited is not None or self.save is not None or not self.displaced
        return not waits and self.placement.stands


class Slots:
    """All slots of one engine that requests get.

    Attributes:
        cache_enabled: whether requests resume from anything; may become False while it runs.
    """

    def __init__(
        self,
        engine: Engine,
        budget: AnchorBudget,
        sections: HeldSections,
        ram: RamTier | None,
        *,
        cache_enabled: bool,
        verified: bool = False,
    ) -> None:
        """Takes the engine's slots, all empty.

        Args:
            ram: the tier in memory; None serves without one.
            cache_enabled: False starts every request cold; what it reads is forgotten at once.
            verified: what is kept is to be verified: it is sealed, and the last slot is spare.
        """
        self.cache_enabled: bool = cache_enabled
        self._placements = 0
        self._ram = ram
        self._grid = engine.profile.grid
        self._window = engine.profile.window
        grid = engine.profile.grid
        states = engine.slots[:-1] if verified else engine.slots
        self.all: Sequence[Slot] = [
            Slot(
                index,
                ResidentPrefix(
                    state,
                    engine.profile,
                    budget,
                    sections,
                    Seals(state, grid, sections) if verified else None,
                ),
            )
            for index, state in enumerate(states)
        ]

    def idle(self) -> list[Slot]:
        """The slots nothing runs in."""
        return [slot for slot in self.all if slot.idle]

    def _free(self) -> list[Slot]:
        """The idle slots, and those in which something gives way to whoever comes."""
        return [slot for slot in self.all if slot.running is None and slot.preparing is None]

    def promised(self, but: Slot | None = None) -> int:
        """Bytes that requests under way will push out of their slots into memory, at most.

        Args:
            but: whose request is not counted.
        """
        promised = 0
        for slot in self.all:
            at_work = slot.running or slot.preparing or slot.warming
            if self._ram is not None and at_work is not None and slot is not but:
                start = 0 if slot.running is None else slot.resident.length
                request = at_work.request
                reach = min(len(request.prompt) + request.max_tokens, self._window)
                promised += self._ram.blocks.at_risk(slot.index, start, reach)
        return promised

    def place(
        self,
        request: GenerationRequest,
        prefill_seconds: Callable[[int, int], float],
        disk: DiskService | None,
    ) -> Placement:
        """The idle slot and the offer with the least predicted time to the first token.

        A request that nothing continues takes the least recently used slot. There is an idle one.
        """
        chain, ways = self._known(request, disk)
        found = [
            self._place_in(slot, request, prefill_seconds, disk, chain, ways)
            for slot in self.idle()
        ]
        placement = min(found, key=lambda choice: choice[0])[1]
        self._placements += 1
        placement.slot.used = self._placements
        return placement

    def foreseen(
        self,
        request: GenerationRequest,
        prefill_seconds: Callable[[int, int], float],
        disk: DiskService | None,
        among: Sequence[Slot] | None = None,
    ) -> Placement:
        """What `place` would say, were the slots idle that are not; changes nothing.

        Args:
            among: the slots to choose from; by default those that a request may have, or all where
                there is none.
        """
        chain, ways = self._known(request, disk, counts=False)
        found = [
            self._place_in(slot, request, prefill_seconds, disk, chain, ways)
            for slot in among or self._free() or self.all
        ]
        return min(found, key=lambda choice: choice[0])[1]

    def place_again(
        self,
        slot: Slot,
        request: GenerationRequest,
        prefill_seconds: Callable[[int, int], float],
        disk: DiskService | None,
        *,
        ram: bool = True,
    ) -> Placement:
        """The best offer in a slot the request has already, after its first one failed.

        Args:
            disk: None asks the medium no more.
            ram: False asks the tier in memory no more.
        """
        chain, ways = self._known(request, disk)
        ways = ways if ram else []
        return self._place_in(slot, request, prefill_seconds, disk, chain, ways)[1]

    def _known(
        self, request: GenerationRequest, disk: DiskService | None, *, counts: bool = True
    ) -> tuple[PromptChain | None, list[RamWay]]:
        """The keys of a prompt where anybody asks for them, and what memory has for it."""
        if not self.cache_enabled or (disk is None and self._ram is None):
            return None, []
        chain = PromptChain(request.prompt.key_ids, request.namespace, self._grid)
        if self._ram is None:
            return chain, []
        return chain, self._ram.ways(request.prompt, chain, counts=counts)

    def _place_in(
        self,
        slot: Slot,
        request: GenerationRequest,
        prefill_seconds: Callable[[int, int], float],
        disk: DiskService | None,
        chain: PromptChain | None,
        ways: Sequence[RamWay],
    ) -> tuple[tuple[float, bool, int], Placement]:
        length = len(request.prompt)
        survey = self._survey(slot, request)
        stored = [] if disk is None or chain is None else disk.offers(chain, survey.shared)
        kept = (
            [] if self._ram is None else [(self._ram.offer(way, slot.index), way) for way in ways]
        )
        offers = (
            *survey.offers,
            *(offer for offer, _ in kept),
            *(found.offer for found in stored),
        )
        offer = rank(offers, length, prefill_seconds)[0]
        continuation = next((found.continuation for found in stored if found.offer is offer), None)
        way = next((way for one, way in kept if one is offer), None)
        decision = _decision(slot, request.prompt, survey, offers, offer)
        if chain is not None:
            nearest = 0 if disk is None else disk.tier.index.shared_line(chain)
            in_memory = 0 if self._ram is None else self._ram.shared_line(chain)
            decision = replace(decision, nearest=max(nearest, in_memory))
        placement = Placement(slot, offer, decision, continuation, way, chain)
        ttft = offer.move_seconds + prefill_seconds(offer.line, length)
        ttft += self._displace_seconds(placement, request)
        known = slot.session is not None and slot.session != request.session
        return (ttft, known and slot.resident.highest > 0, slot.used), placement

    def _displace_seconds(self, placement: Placement, request: GenerationRequest) -> float:
        """What has to be moved out of the way before, or while, the prompt is read."""
        ram, slot = self._ram, placement.slot
        if ram is None:
            return 0.0
        start, reach = placement.line_in_place, len(request.prompt)
        standing = ram.blocks.at_risk(slot.index, start, reach)
        if start < slot.resident.highest:
            rows = min(reach, slot.resident.highest) - start
            standing += max(rows, 0) * ram.blocks.row_bytes
        return ram.rate.seconds(standing, 0)

    def brought(self, placement: Placement, way: RamWay) -> Placement:
        """The same placement, once memory has what was to be brought in from the medium."""
        assert self._ram is not None
        offer = self._ram.offer(way, placement.slot.index)
        decision = replace(placement.decision, tier=offer.tier, source=offer.source)
        return replace(placement, offer=offer, decision=decision, continuation=None, way=way)

    def resident_offer(self, slot: Slot, request: GenerationRequest, line: int) -> Offer:
        """What a slot offers at a line where state has just been brought in."""
        survey = slot.resident.survey(request.prompt, request.namespace)
        return next((offer for offer in survey.offers if offer.line == line), COLD)

    def _survey(self, slot: Slot, request: GenerationRequest) -> Survey:
        if not self.cache_enabled:
            return Survey(0, (), ())
        return slot.resident.survey(request.prompt, request.namespace)


def _decision(
    slot: Slot, prompt: Prompt, survey: Survey, offers: Sequence[Offer], offer: Offer
) -> Decision:
    passed_over = [
        Refusal(other.source, other.line, "slower") for other in offers if other is not offer
    ]
    return Decision(
        tier=offer.tier,
        source=offer.source,
        gate=offer.gate,
        cached=offer.line,
        reread=len(prompt) - offer.line,
        restore_s=0.0,
        slot=slot.index,
        shared=survey.shared,
        resident=slot.resident.length,
        refused=(*passed_over, *_unusable(survey, prompt)),
    )


def _unusable(survey: Survey, prompt: Prompt) -> list[Refusal]:
    """Why the end, and the lowest grid anchor above the line, cannot serve this prompt."""
    grid = [anchor for anchor in survey.unusable if anchor.kind is AnchorKind.GRID][:1]
    ends = [anchor for anchor in survey.unusable if anchor.kind is AnchorKind.END]
    return [
        Refusal(_source(anchor), anchor.line, _why(anchor, survey, prompt))
        for anchor in (*grid, *ends)
    ]


def _source(anchor: Anchor) -> Source:
    return Source.END if anchor.kind is AnchorKind.END else Source.RESIDENT


def _why(anchor: Anchor, survey: Survey, prompt: Prompt) -> str:
    if anchor.line <= survey.shared:
        return f"leaves nothing of {len(prompt)} to forward"
    return f"parts at {survey.shared}"


def cold_decision(failed: Decision, prompt: Prompt, why: str) -> Decision:
    """What is decided when the chosen state could not be put in place: to start over."""
    refused = Refusal(failed.source, failed.cached, why)
    return replace(
        failed,
        tier=COLD.tier,
        source=COLD.source,
        gate=COLD.gate,
        cached=0,
        reread=len(prompt),
        refused=(refused, *failed.refused),
    )
