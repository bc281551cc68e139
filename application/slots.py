"""The slots of an engine, and which of them serves a request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..domain.anchor import Anchor, AnchorKind
from ..domain.anchor_budget import AnchorBudget
from ..domain.disk_index import Continuation
from ..domain.entry import Source
from ..domain.offers import COLD, Offer, rank
from ..domain.prompt import Prompt
from ..domain.prompt_chain import PromptChain
from ..domain.stored_entry import StoredEntry
from ..ports.engine import Engine
from .disk_service import DiskService
from .generation import Generation
from .live_verify_seals import Seals
from .request import Decision, EventSink, GenerationRequest, Refusal
from .resident_prefix import ResidentPrefix, Survey
from .restore import Restore
from .writes import Write


@dataclass(slots=True)
class Slot:
    """One slot: what is resident in it, and what happens in it.

    Attributes:
        running: a request whose prefill has begun.
        preparing: a request that waits for its state, or for another's to be saved.
        used: counts placements; the least one is least recently used.
        session: the hint of the conversation that is resident.
        read_back: what is resident came from the medium at the start, and was not used yet.
    """

    index: int
    resident: ResidentPrefix
    running: Generation | None = None
    preparing: "Preparation | None" = None
    used: int = 0
    session: str | None = None
    read_back: bool = False

    @property
    def idle(self) -> bool:
        return self.running is None and self.preparing is None


@dataclass(frozen=True, slots=True)
class Placement:
    """A request's slot and where its prefill starts there.

    Attributes:
        continuation: what has to be brought in first; None where the state stands in the slot.
        chain: the prompt's keys; None without a disk tier.
    """

    slot: Slot
    offer: Offer
    decision: Decision
    continuation: Continuation | None
    chain: PromptChain | None


@dataclass(slots=True)
class Preparation:
    """A request that has a slot and whose prefill cannot begin yet.

    Attributes:
        awaited: a write that will continue the prompt once it is durable; None when it is.
        save: the conversation that is about to lose its rows; None when they are copied.
        held: the entry that is to be restored, until the restore holds it.
        restore: under way; None before it begins.
        began_s: when the restore began.
    """

    request: GenerationRequest
    sink: EventSink
    placement: Placement
    started_s: float
    awaited: Write | None = None
    save: Write | None = None
    held: StoredEntry | None = None
    restore: Restore | None = None
    began_s: float = 0.0
    refused: tuple[Refusal, ...] = ()
    quarantined: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether the prefill may begin at once."""
        waits = self.awaited is not None or self.save is not None
        return not waits and self.placement.continuation is None


class Slots:
    """All slots of one engine that requests get.

    Attributes:
        cache_enabled: whether requests resume from anything; may become False while it runs.
    """

    def __init__(
        self, engine: Engine, budget: AnchorBudget, *, cache_enabled: bool, verified: bool = False
    ) -> None:
        """Takes the engine's slots, all empty.

        Args:
            cache_enabled: False starts every request cold; what it reads is forgotten at once.
            verified: what is kept is to be verified: it is sealed, and the last slot is spare.
        """
        self.cache_enabled: bool = cache_enabled
        self._placements = 0
        grid = engine.profile.grid
        states = engine.slots[:-1] if verified else engine.slots
        self.all: Sequence[Slot] = [
            Slot(
                index,
                ResidentPrefix(
                    state, engine.profile, budget, Seals(state, grid) if verified else None
                ),
            )
            for index, state in enumerate(states)
        ]

    def idle(self) -> list[Slot]:
        """The slots nothing runs in."""
        return [slot for slot in self.all if slot.idle]

    def place(
        self,
        request: GenerationRequest,
        prefill_seconds: Callable[[int, int], float],
        disk: DiskService | None,
    ) -> Placement:
        """The idle slot and the offer with the least predicted time to the first token.

        A request that nothing continues takes the least recently used slot. There is an idle one.
        """
        chain = None if disk is None or not self.cache_enabled else disk.chain(request)
        found = [
            self._place_in(slot, request, prefill_seconds, disk, chain) for slot in self.idle()
        ]
        _, _, placement = min(found, key=lambda choice: choice[:2])
        self._placements += 1
        placement.slot.used = self._placements
        return placement

    def place_again(
        self,
        slot: Slot,
        request: GenerationRequest,
        prefill_seconds: Callable[[int, int], float],
        disk: DiskService | None,
    ) -> Placement:
        """The best offer in a slot the request has already, after its first one failed."""
        chain = None if disk is None or not self.cache_enabled else disk.chain(request)
        return self._place_in(slot, request, prefill_seconds, disk, chain)[2]

    def _place_in(
        self,
        slot: Slot,
        request: GenerationRequest,
        prefill_seconds: Callable[[int, int], float],
        disk: DiskService | None,
        chain: PromptChain | None,
    ) -> tuple[float, int, Placement]:
        length = len(request.prompt)
        survey = self._survey(slot, request)
        stored = [] if disk is None or chain is None else disk.offers(chain, survey.shared)
        offers = (*survey.offers, *(found.offer for found in stored))
        ranked = rank(offers, length, prefill_seconds)
        offer = ranked[0]
        ttft = offer.move_seconds + prefill_seconds(offer.line, length)
        continuation = next((found.continuation for found in stored if found.offer is offer), None)
        decision = _decision(slot, request.prompt, survey, offers, offer)
        if disk is not None and chain is not None:
            decision = replace(decision, nearest=disk.tier.index.shared_line(chain))
        return ttft, slot.used, Placement(slot, offer, decision, continuation, chain)

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
