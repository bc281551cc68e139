"""What happened, for metrics, for the request journal and for the figures of the admin route."""

from collections import deque
from typing import Final

from ..domain.entry import Tier
from ..domain.errors import AnchorlineError
from ..ports import telemetry as names
from ..ports.memory import Memory
from ..ports.telemetry import Telemetry
from .generation import Generation
from .request import Decision, Finished, FinishReason, GenerationRequest
from .stats import RequestStats, SlotStats

LAST_KEPT: Final = 32
"""Decisions of the last requests that the admin route shows."""


class Recorder:
    """Counts, and writes one line per request that explains where its prefill started."""

    def __init__(self, telemetry: Telemetry, model: str, memory: Memory | None = None) -> None:
        """Takes where figures go.

        Args:
            memory: the pool whose figures are told along; None tells none.
        """
        self._memory = memory
        self._telemetry = telemetry
        self._model = model
        self.requests = 0
        self.misses = 0
        self.hits: dict[str, int] = {}
        self.tokens_cached: dict[str, int] = {}
        self.tokens_reread = 0
        self.last: deque[RequestStats] = deque(maxlen=LAST_KEPT)

    def started(self, generation: Generation) -> None:
        """A prefill is about to start at the line of its decision."""
        self._decided(generation.request, generation.decision)
        queued_s = generation.marks.started_s - generation.marks.arrived_s
        self._telemetry.observe(names.QUEUE_SECONDS, queued_s)

    def replayed(self, request: GenerationRequest, finished: Finished) -> None:
        """A request was given the answer of an equal one: nothing was forwarded, or sampled."""
        self._decided(request, finished.decision)
        self._told(request, finished)

    def token(self, seconds: float) -> None:
        """A token came this long after the one before it."""
        self._telemetry.observe(names.INTER_TOKEN_SECONDS, seconds)

    def end(self, *, kept: bool) -> None:
        """A generation stopped, and its state was kept or could not be."""
        outcome = "kept" if kept else "absorbed"
        self._telemetry.count(names.ENDS_KEPT, labels={"outcome": outcome})

    def finished(self, generation: Generation, finished: Finished) -> None:
        """The last event was sent."""
        forwarded = generation.forwarded_of_prompt
        self.tokens_reread += forwarded
        self._telemetry.count(names.TOKENS_REREAD, forwarded)
        self._telemetry.count(names.TOKENS_GENERATED, finished.usage.completion)
        if finished.reason is FinishReason.CANCELLED and generation.prefilling:
            self._telemetry.count(names.PREFILLS_CANCELLED)
        self._told(generation.request, finished)

    def failed(self, request: GenerationRequest, error: AnchorlineError) -> None:
        """A request ended with an error."""
        self._telemetry.count(names.REQUESTS, labels={"outcome": "error"})
        self._telemetry.journal(
            {
                "request": request.id,
                "model": self._model,
                "prompt": len(request.prompt),
                "finish": "error",
                "error": str(error),
            }
        )

    def cancelled_waiting(self, request: GenerationRequest) -> None:
        """A request was cancelled before it had a slot."""
        self._telemetry.count(names.REQUESTS, labels={"outcome": FinishReason.CANCELLED.value})
        self._telemetry.journal(
            {
                "request": request.id,
                "model": self._model,
                "prompt": len(request.prompt),
                "finish": FinishReason.CANCELLED.value,
                "waiting": True,
            }
        )

    def slot(self, slot: SlotStats) -> None:
        """A slot's holdings changed."""
        label = {"slot": str(slot.slot)}
        self._telemetry.gauge(names.ANCHORS, len(slot.anchors), label)
        self._telemetry.gauge(names.ANCHOR_BYTES, slot.anchor_bytes, label)
        self._telemetry.gauge(names.RESIDENT_TOKENS, slot.length, label)

    def load(self, *, queued: int, running: int) -> None:
        """How many requests wait and run."""
        self._telemetry.gauge(names.QUEUED, queued)
        self._telemetry.gauge(names.RUNNING, running)
        if self._memory is not None and not running:
            use = self._memory.use()
            for kind in ("allocated", "reserved", "available", "total"):
                self._telemetry.gauge(names.MEMORY_BYTES, getattr(use, kind), {"kind": kind})

    def _decided(self, request: GenerationRequest, decision: Decision) -> None:
        """It is known where a request starts."""
        source, labels = decision.source.value, _tier_and_source(decision)
        self.requests += 1
        self.last.append(RequestStats(request.id, decision))
        if decision.tier is Tier.NONE:
            self.misses += 1
            self._telemetry.count(names.MISSES)
        else:
            self.hits[source] = self.hits.get(source, 0) + 1
            self._telemetry.count(names.HITS, labels=labels)
        self.tokens_cached[source] = self.tokens_cached.get(source, 0) + decision.cached
        self._telemetry.count(names.TOKENS_CACHED, decision.cached, labels)

    def _told(self, request: GenerationRequest, finished: Finished) -> None:
        """A request's last event was sent."""
        self._telemetry.count(names.REQUESTS, labels={"outcome": finished.reason.value})
        if finished.usage.completion:
            tier = {"tier": finished.decision.tier.value}
            self._telemetry.observe(names.TTFT_SECONDS, finished.timings.ttft_s, tier)
        self._telemetry.journal(self._journal_row(request, finished))

    def _journal_row(self, request: GenerationRequest, finished: Finished) -> dict[str, object]:
        decision, timings, usage = finished.decision, finished.timings, finished.usage
        return {
            "request": request.id,
            "model": self._model,
            "session": request.session or "",
            "slot": decision.slot,
            "prompt": usage.prompt,
            "cached": decision.cached,
            "reread": decision.reread,
            "tier": decision.tier.value,
            "source": decision.source.value,
            "gate": decision.gate.value,
            "resident": decision.resident,
            "shared": decision.shared,
            "nearest": decision.nearest,
            "refused": [f"{no.source.value}@{no.line}: {no.why}" for no in decision.refused],
            "queue_ms": round(timings.queue_s * 1000, 1),
            "ttft_ms": round(timings.ttft_s * 1000, 1),
            "prompt_ms": round(timings.prompt_s * 1000, 1),
            "predicted_ms": round(timings.predicted_s * 1000, 1),
            "completion": usage.completion,
            "finish": finished.reason.value,
        }


def _tier_and_source(decision: Decision) -> dict[str, str]:
    return {"tier": decision.tier.value, "source": decision.source.value}
