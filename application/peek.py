"""What a request would resume from, were it asked now: nothing runs, and nothing is counted."""

from collections.abc import Callable
from dataclasses import dataclass

from ..domain.entry import Source, Tier
from ..domain.grid import Grid
from ..domain.offers import Offer, rank
from ..domain.prompt import Prompt
from ..domain.taint_line import Gate
from .disk_service import DiskService
from .prefetch import Prefetch
from .preparing import Preparer, told
from .request import Decision, GenerationRequest
from .response_cache import ResponseCache
from .slots import Placement, Slots


@dataclass(frozen=True, slots=True)
class Nearest:
    """The kept sequence that has most of a prompt, whether it can be resumed there or not.

    Attributes:
        shares: leading tokens that they have in common: all of them where it stands in a slot,
            else up to a grid line.
        parts_at: at or below this token they part: 0 where nothing is shared, None where all of the
            prompt is.
    """

    shares: int
    parts_at: int | None


@dataclass(frozen=True, slots=True)
class Peeked:
    """What would be told of a request.

    Attributes:
        line: where its prefill would start: tokens that need no forward.
        tokens: of the prompt.
        restore_s: that bringing state in would take, at measured rates.
        first_token_s: that this and the prefill of the rest would take.
        session: the hint that came with it.
    """

    tier: Tier
    source: Source
    gate: Gate
    line: int
    tokens: int
    restore_s: float
    first_token_s: float
    session: str | None
    nearest: Nearest

    @property
    def reread(self) -> int:
        """Prompt tokens that would be forwarded."""
        return self.tokens - self.line


class Peek:
    """Foresees what requests resume from. On the engine thread, between two steps."""

    def __init__(
        self,
        slots: Slots,
        disk: DiskService | None,
        preparer: Preparer,
        prefetch: Prefetch | None,
        responses: ResponseCache | None,
        prefill_seconds: Callable[[int, int], float],
        grid: Grid,
    ) -> None:
        self._slots = slots
        self._disk = disk
        self._preparer = preparer
        self._prefetch = prefetch
        self._responses = responses
        self._prefill_seconds = prefill_seconds
        self._grid = grid

    def look(self, request: GenerationRequest) -> Peeked:
        """What the request would be told if it came now.

        Exact where a slot is idle and every object on the medium can be read; what is being written
        to it is priced by its bytes before they shrink. Where no slot is idle, it is what stands
        there now that is asked, and whoever runs goes on.
        """
        placement = self._slots.foreseen(request, self._prefill_seconds, self._disk)
        nearest = self._nearest(request, placement)
        replayed = None if self._responses is None else self._responses.known(request)
        if replayed is not None:
            return _replayed(replayed.decision, request, nearest)
        offer, tier, source = self._foreseen(placement, request)
        prefill_s = self._prefill_seconds(offer.line, len(request.prompt))
        return Peeked(
            tier=tier,
            source=source,
            gate=offer.gate,
            line=offer.line,
            tokens=len(request.prompt),
            restore_s=offer.move_seconds,
            first_token_s=offer.move_seconds + prefill_s,
            session=request.session,
            nearest=nearest,
        )

    def _foreseen(
        self, placement: Placement, request: GenerationRequest
    ) -> tuple[Offer, Tier, Source]:
        """The offer that would be taken in the end, and where it would be said to come from."""
        offer = placement.offer
        awaited = self._written(placement, request.prompt)
        if awaited is not None:
            return awaited, awaited.tier, awaited.source
        if self._prefetch is not None and self._prefetch.will_bring(placement.continuation):
            return offer, Tier.RAM, Source.PARK
        decision = told(placement.slot, placement.decision)
        return offer, decision.tier, decision.source

    def _written(self, placement: Placement, prompt: Prompt) -> Offer | None:
        """What a write would offer that the request would wait for, if that is better."""
        write = self._preparer.awaited(placement)
        if write is None or self._disk is None or placement.chain is None:
            return None
        coming = self._disk.promised(write, placement.chain, placement.decision.shared)
        best = rank([placement.offer, *coming], len(prompt), self._prefill_seconds)[0]
        return best if any(best is one for one in coming) else None

    def _nearest(self, request: GenerationRequest, placement: Placement) -> Nearest:
        tokens = len(request.prompt)
        surveys = [
            slot.resident.survey(request.prompt, request.namespace) for slot in self._slots.all
        ]
        in_slots = max((survey.shared for survey in surveys), default=0)
        below = placement.decision.nearest
        shares = max(in_slots, below)
        if shares >= tokens:
            return Nearest(tokens, None)
        exact = in_slots > below or shares == 0
        return Nearest(shares, shares if exact else min(below + self._grid.step, tokens))


def _replayed(decision: Decision, request: GenerationRequest, nearest: Nearest) -> Peeked:
    """Of an answer that is given again: nothing is moved, and nothing is read."""
    return Peeked(
        tier=decision.tier,
        source=decision.source,
        gate=decision.gate,
        line=decision.cached,
        tokens=len(request.prompt),
        restore_s=0.0,
        first_token_s=0.0,
        session=request.session,
        nearest=nearest,
    )
