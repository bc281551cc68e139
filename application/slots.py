"""The slots of an engine, and which of them serves a request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..domain.anchor import Anchor, AnchorKind
from ..domain.anchor_budget import AnchorBudget
from ..domain.entry import Source
from ..domain.offers import COLD, Offer, rank
from ..domain.prompt import Prompt
from ..ports.engine import Engine
from .generation import Generation
from .request import Decision, GenerationRequest, Refusal
from .resident_prefix import ResidentPrefix, Survey


@dataclass(slots=True)
class Slot:
    """One slot: what is resident in it, and what runs in it.

    Attributes:
        used: counts placements; the least one is least recently used.
    """

    index: int
    resident: ResidentPrefix
    running: Generation | None = None
    used: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """A request's slot and where its prefill starts there."""

    slot: Slot
    offer: Offer
    decision: Decision


class Slots:
    """All slots of one engine."""

    def __init__(self, engine: Engine, budget: AnchorBudget, *, cache_enabled: bool) -> None:
        """Takes the engine's slots, all empty.

        Args:
            cache_enabled: False starts every request cold; what it reads is forgotten at once.
        """
        self._cache_enabled = cache_enabled
        self._placements = 0
        self.all: Sequence[Slot] = [
            Slot(index, ResidentPrefix(state, engine.profile, budget))
            for index, state in enumerate(engine.slots)
        ]

    def idle(self) -> list[Slot]:
        """The slots nothing runs in."""
        return [slot for slot in self.all if slot.running is None]

    def place(
        self, request: GenerationRequest, prefill_seconds: Callable[[int, int], float]
    ) -> Placement:
        """The idle slot and the offer with the least predicted time to the first token.

        A request that nothing continues takes the least recently used slot. There is an idle one.
        """
        length = len(request.prompt)
        found: list[tuple[float, int, Slot, Survey, list[Offer]]] = []
        for slot in self.idle():
            survey = self._survey(slot, request)
            ranked = rank(survey.offers, length, prefill_seconds)
            ttft = ranked[0].move_seconds + prefill_seconds(ranked[0].line, length)
            found.append((ttft, slot.used, slot, survey, ranked))
        _, _, slot, survey, ranked = min(found, key=lambda choice: choice[:2])
        self._placements += 1
        slot.used = self._placements
        decision = _decision(slot, request.prompt, survey, ranked)
        return Placement(slot, ranked[0], decision)

    def _survey(self, slot: Slot, request: GenerationRequest) -> Survey:
        if not self._cache_enabled:
            return Survey(0, (), ())
        return slot.resident.survey(request.prompt, request.namespace)


def _decision(slot: Slot, prompt: Prompt, survey: Survey, ranked: Sequence[Offer]) -> Decision:
    offer = ranked[0]
    passed_over = [
        Refusal(other.source, other.line, "slower") for other in survey.offers if other is not offer
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
