"""The scheduler: one prefill chunk, or one decode step over the slots, per step.

Nothing else touches the engine. All methods are called on one thread, the engine's; in tests that
is the test.
"""

import enum
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..domain.anchor_budget import AnchorBudget
from ..domain.errors import (
    AnchorlineError,
    Cancelled,
    Draining,
    EngineError,
    QueueFull,
    StateError,
)
from ..domain.offers import COLD
from ..domain.prefill_rate import PrefillRate
from ..domain.sampling import Logits
from ..ports.clock import Clock
from ..ports.engine import Engine
from ..ports.telemetry import Telemetry
from ..ports.tokenizer import Tokenizer
from .generation import Generation
from .recorder import Recorder
from .request import Decision, EventSink, Failed, GenerationRequest, Queued
from .slots import Placement, Slot, Slots, cold_decision
from .stats import CacheStats, SlotStats

RETRY_AFTER_S: Final = 5
"""What a client is told when the queue is full."""

DRAIN_RETRY_AFTER_S: Final = 30
"""What a client is told when the server stops."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the scheduler.

    Attributes:
        queue_max: requests that wait for a slot.
        anchors: the budget of each slot's grid anchors.
        cache_enabled: False serves every request cold.
    """

    queue_max: int
    anchors: AnchorBudget
    cache_enabled: bool


class _Turn(enum.Enum):
    """Whose step comes next when both kinds of work are there."""

    PREFILL = "prefill"
    DECODE = "decode"


class Scheduler:
    """Brings requests into slots and their work to the engine, one step at a time."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        clock: Clock,
        telemetry: Telemetry,
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._clock = clock
        self._limits = limits
        self._slots = Slots(engine, limits.anchors, cache_enabled=limits.cache_enabled)
        self._queue: deque[tuple[GenerationRequest, EventSink]] = deque()
        self._rate = PrefillRate(engine.profile.prefill_tokens_per_s)
        self._recorder = Recorder(telemetry, engine.profile.model)
        self._turn = _Turn.PREFILL
        self._draining = False

    @property
    def slots(self) -> Sequence[Slot]:
        """All slots, to look at."""
        return self._slots.all

    @property
    def idle(self) -> bool:
        """Whether no request waits or runs."""
        return not self._queue and not self._running()

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        """Queue a request; its first event is sent before this returns.

        Raises:
            QueueFull: as many requests wait as may.
            Draining: `drain` was called.
        """
        if self._draining:
            raise Draining("the server is stopping", retry_after_s=DRAIN_RETRY_AFTER_S)
        if len(self._queue) >= self._limits.queue_max and not self._slots.idle():
            raise QueueFull(
                f"{len(self._queue)} requests wait already, as many as may",
                retry_after_s=RETRY_AFTER_S,
            )
        sink(Queued(ahead=len(self._queue)))
        self._queue.append((request, sink))
        self._report_load()

    def cancel(self, request_id: str) -> None:
        """Stop a request; one that is unknown or has ended is ignored.

        A prefill keeps the anchors it took, so that a retry resumes there.
        """
        for waiting in [pair for pair in self._queue if pair[0].id == request_id]:
            self._queue.remove(waiting)
            self._drop_unstarted(*waiting)
        for slot in self._running():
            generation = slot.running
            assert generation is not None
            if generation.request.id == request_id:
                generation.cancel()
                self._close(slot, generation)

    def drain(self) -> None:
        """Take no new requests; those that wait or run go on."""
        self._draining = True

    def abort(self, error: AnchorlineError) -> None:
        """Fail everything that waits or runs, and forget all state; for faults of our own."""
        while self._queue:
            request, sink = self._queue.popleft()
            self._recorder.failed(request, error)
            sink(Failed(error))
        for slot in self._slots.all:
            self._fail(slot, error)
        self._report_load()

    def step(self) -> bool:
        """Do one piece of work; False if there was none."""
        self._admit()
        running = self._running()
        prefills = [slot for slot in running if slot.running and slot.running.prefilling]
        decodes = [slot for slot in running if slot.running and not slot.running.prefilling]
        if prefills and (not decodes or self._turn is _Turn.PREFILL):
            self._turn = _Turn.DECODE
            # The one that was placed first: its client waits longest.
            self._prefill(min(prefills, key=lambda slot: slot.used))
        elif decodes:
            self._turn = _Turn.PREFILL
            self._decode(decodes)
        return bool(running)

    def stats(self) -> CacheStats:
        """The figures of this moment."""
        profile, anchors = self._engine.profile, self._limits.anchors
        return CacheStats(
            enabled=self._limits.cache_enabled,
            slots=tuple(self._slot_stats(slot) for slot in self._slots.all),
            anchor_bytes_max=anchors.bytes_max,
            anchor_count_max=anchors.capacity(profile.layout.section_bytes),
            section_bytes=profile.layout.section_bytes,
            row_bytes=profile.layout.row_bytes,
            grid=profile.grid.step,
            queued=len(self._queue),
            running=len(self._running()),
            requests=self._recorder.requests,
            misses=self._recorder.misses,
            hits=dict(self._recorder.hits),
            tokens_cached=dict(self._recorder.tokens_cached),
            tokens_reread=self._recorder.tokens_reread,
            last=tuple(self._recorder.last),
        )

    def _running(self) -> list[Slot]:
        return [slot for slot in self._slots.all if slot.running is not None]

    def _admit(self) -> None:
        """Give waiting requests the idle slots, in the order they came."""
        while self._queue and self._slots.idle():
            request, sink = self._queue.popleft()
            placement = self._slots.place(request, self._rate.seconds)
            slot = placement.slot
            decision = self._begin(request, placement)
            slot.running = Generation(
                request,
                sink,
                decision,
                self._engine.profile,
                self._tokenizer,
                self._clock.monotonic(),
            )
            self._recorder.started(slot.running)
            self._report_load()

    def _begin(self, request: GenerationRequest, placement: Placement) -> Decision:
        """Put the slot at the line of the placement's offer, or of a cold start if that fails."""
        resident = placement.slot.resident
        try:
            resident.begin(request.prompt, request.namespace, placement.offer)
        except (EngineError, StateError) as error:
            resident.forget()
            resident.begin(request.prompt, request.namespace, COLD)
            return cold_decision(placement.decision, request.prompt, str(error))
        return placement.decision

    def _prefill(self, slot: Slot) -> None:
        generation = slot.running
        assert generation is not None
        span, chunk = generation.next_chunk()
        began_s = self._clock.monotonic()
        try:
            logits = self._engine.prefill(slot.index, chunk)
            now_s = self._clock.monotonic()
            slot.resident.advanced(span, generation.request.prompt)
            generation.chunk_done(span, logits, now_s)
        except EngineError as error:
            self._fail(slot, error)
            return
        if len(span) == self._engine.profile.grid.step:
            # Short chunks say little about the rate: their fixed costs weigh too much.
            self._rate.observe(span.start, len(span), now_s - began_s)
        self._after(slot, generation)

    def _decode(self, slots: Sequence[Slot]) -> None:
        generations = [slot.running for slot in slots if slot.running is not None]
        inputs = [generation.next_input() for generation in generations]
        try:
            outputs = self._engine.decode(inputs)
        except EngineError as error:
            for slot in slots:
                self._fail(slot, error)
            return
        now_s = self._clock.monotonic()
        for slot, generation, logits in zip(slots, generations, outputs, strict=True):
            self._token_done(slot, generation, logits, now_s)

    def _token_done(self, slot: Slot, generation: Generation, logits: Logits, now_s: float) -> None:
        previous_s = generation.marks.last_token_s
        slot.resident.decoded(generation.next_input().token)
        try:
            generation.token_done(logits, now_s)
        except EngineError as error:
            self._fail(slot, error)
            return
        if previous_s is not None:
            self._recorder.token(now_s - previous_s)
        self._after(slot, generation)

    def _after(self, slot: Slot, generation: Generation) -> None:
        if generation.finished:
            self._close(slot, generation)

    def _close(self, slot: Slot, generation: Generation) -> None:
        """Keep the end and free the slot, then tell the client."""
        if not self._limits.cache_enabled:
            slot.resident.forget()
        elif not generation.prefilling:
            self._keep_end(slot, generation)
        slot.running = None
        finished = generation.close(self._clock.monotonic())
        self._recorder.finished(generation, finished)
        self._report_slot(slot)
        self._report_load()

    def _keep_end(self, slot: Slot, generation: Generation) -> None:
        try:
            kept = slot.resident.keep_end(len(generation.request.prompt))
        except EngineError:
            # The answer is complete; only what could have been kept of it is lost.
            slot.resident.forget()
            kept = False
        self._recorder.end(kept=kept)

    def _fail(self, slot: Slot, error: AnchorlineError) -> None:
        """Forget a slot's state and tell its client, if it has one."""
        slot.resident.forget()
        generation, slot.running = slot.running, None
        if generation is not None:
            self._recorder.failed(generation.request, error)
            generation.fail(error)
        self._report_slot(slot)
        self._report_load()

    def _drop_unstarted(self, request: GenerationRequest, sink: EventSink) -> None:
        self._recorder.cancelled_waiting(request)
        sink(Failed(Cancelled("the request was cancelled while it waited")))
        self._report_load()

    def _slot_stats(self, slot: Slot) -> SlotStats:
        resident = slot.resident
        _, anchor_bytes = self._engine.slots[slot.index].captured()
        return SlotStats(
            slot=slot.index,
            length=resident.length,
            taint=resident.taint.line,
            anchors=tuple(anchor.line for anchor in resident.anchors),
            end=None if resident.end is None else resident.end.line,
            anchor_bytes=anchor_bytes,
            busy=slot.running is not None,
        )

    def _report_slot(self, slot: Slot) -> None:
        self._recorder.slot(self._slot_stats(slot))

    def _report_load(self) -> None:
        self._recorder.load(queued=len(self._queue), running=len(self._running()))
