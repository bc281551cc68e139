"""The scheduler: brings requests into slots, and what runs there forward, a piece per step.

Nothing else touches the engine. All methods are called on one thread, the engine's; in tests that
is the test.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ..domain.errors import (
    AnchorlineError,
    Draining,
    EngineError,
    MemoryShort,
    QueueFull,
    StateError,
)
from ..domain.namespace import Namespace
from ..domain.offers import COLD, Offer
from ..domain.prefill_rate import PrefillRate
from ..domain.taint_line import Gate
from ..ports.clock import Clock
from ..ports.engine import Engine
from ..ports.memory import Memory
from ..ports.telemetry import Telemetry
from ..ports.tokenizer import Tokenizer
from .beside import Beside
from .disk_service import DiskService
from .durability import FlushReport
from .endings import Endings
from .figures import cache_stats, ram_entries, resident_entries
from .forwards import Forwards
from .generation import Generation
from .held_sections import HeldSections
from .kept_seals import KeptSeals
from .limits import Limits
from .live_verify import LiveVerifier
from .live_verify_report import LiveReport, VerifyPolicy
from .memory_pools import MemoryPools
from .peek import Peek, Peeked
from .prefetch import Prefetch
from .preparing import Preparer
from .prewarm import PrewarmReport
from .ram_setup import ram_tier
from .ram_tier import RamTier
from .recorder import Recorder
from .request import Decision, EventSink, Failed, GenerationRequest, Queued
from .response_cache import ResponseCache
from .sessions import Sessions
from .slots import Preparation, Slot, Slots, cold_decision
from .stats import CacheStats, Cleared, EntryStats

RETRY_AFTER_S: Final = 5
"""What a client is told when the queue is full."""

DRAIN_RETRY_AFTER_S: Final = 30
"""What a client is told when the server stops."""


class Scheduler:
    """Brings requests into slots and their work to the engine, one step at a time."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        clock: Clock,
        telemetry: Telemetry,
        limits: Limits,
        disk: DiskService | None = None,
        memory: Memory | None = None,
        verify: VerifyPolicy | None = None,
        responses: ResponseCache | None = None,
        pools: MemoryPools | None = None,
    ) -> None:
        """Takes an engine whose slots are empty.

        Args:
            disk: the tier on a medium; None serves without one.
            memory: what the server runs in, for the metrics.
            verify: how what is kept is verified, in the engine's last slot, which no request gets;
                None verifies nothing.
            responses: answers that are given again; None gives none.
            pools: memory that each request has to fit; None lets each try.
        """
        self._pools = pools
        self._disk = disk if limits.cache_enabled else None
        self._engine = engine
        self._tokenizer = tokenizer
        self._clock = clock
        self._limits = limits
        sections = HeldSections(engine.copies, engine.profile.layout.section_bytes)
        self._ram = ram_tier(engine, sections, clock, limits, self._disk)
        self._sessions = Sessions(clock)
        if self._ram is not None and pools is not None:
            self._ram.limit = pools.host.tier_bytes_max
        if self._ram is not None:
            self._ram.in_session = self._sessions.is_newest
            self._ram.entered, self._ram.left = self._sessions.kept, self._sessions.dropped
            self._ram.seals = None if verify is None else KeptSeals(engine, sections)
        self._slots = Slots(
            engine,
            limits.anchors,
            sections,
            self._ram,
            cache_enabled=limits.cache_enabled,
            verified=verify is not None,
        )
        self._queue: deque[tuple[GenerationRequest, EventSink]] = deque()
        self._rate = PrefillRate(engine.profile.prefill_tokens_per_s)
        self._recorder = Recorder(telemetry, engine.profile.model, memory)
        self._responses = responses if limits.cache_enabled else None
        self._draining = False
        self._prefetch = (
            Prefetch(engine, self._disk, self._ram, self._slots, self._rate.seconds, clock)
            if limits.prefetch and self._disk is not None and self._ram is not None
            else None
        )
        self._preparer = Preparer(
            engine, self._disk, self._ram, self._slots, self._rate, clock, self._prefetch
        )
        self._peek = Peek(
            self._slots,
            self._disk,
            self._preparer,
            self._prefetch,
            self._responses,
            self._rate.seconds,
            engine.profile.grid,
        )
        self._endings = Endings(
            engine,
            self._slots,
            self._disk,
            self._ram,
            self._sessions,
            self._recorder,
            clock,
            self._ended,
        )
        self._forwards = Forwards(
            engine,
            self._disk,
            self._ram,
            pools,
            self._rate,
            clock,
            self._recorder,
            self._endings,
        )
        self._beside = Beside(
            engine,
            self._slots,
            self._disk,
            self._ram,
            clock,
            limits,
            self._preparer,
            self._endings,
            self._rate.seconds,
            self._prefetch,
            None
            if verify is None
            else LiveVerifier(
                engine,
                self._slots.all,
                self._disk,
                self._ram,
                clock,
                telemetry,
                verify,
                sections,
                forget=self._endings.forget,
                found=self._forget_answers,
                serve_cold=self._serve_cold,
            ),
        )

    @property
    def slots(self) -> Sequence[Slot]:
        """All slots, to look at."""
        return self._slots.all

    @property
    def idle(self) -> bool:
        """Whether no request waits or runs."""
        return not self._queue and all(slot.idle for slot in self._slots.all)

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        """Queue a request; its first event is sent before this returns.

        Raises:
            QueueFull: as many requests wait as may.
            MemoryShort: its prefill would not fit.
            Draining: `drain` was called.
        """
        if self._draining:
            raise Draining("the server is stopping", retry_after_s=DRAIN_RETRY_AFTER_S)
        if self._responses is not None:
            replayed = self._responses.answer(request, sink)
            if replayed is not None:
                self._recorder.replayed(request, replayed)
                return
        # Those that the next step gives the idle slots do not wait for one.
        waiting = len(self._queue) - len(self._slots.idle())
        if waiting >= self._limits.queue_max:
            raise QueueFull(
                f"{waiting} requests wait already, as many as may",
                retry_after_s=RETRY_AFTER_S,
            )
        if self._pools is not None:
            # With the first event a response may begin, and then there is no status any more.
            begins = not self._queue and self._slots.idle()
            fit = self._pools.before_prefill if begins else self._pools.before_response
            fit(len(request.prompt), self._contexts())
        if self._responses is not None:
            sink = self._responses.watched(request, sink)
        sink(Queued(ahead=len(self._queue)))
        self._queue.append((request, sink))
        self._report_load()

    def cancel(self, request_id: str) -> None:
        """Stop a request; one that is unknown or has ended is ignored.

        A prefill keeps the anchors it took, so that a retry resumes there.
        """
        for waiting in [pair for pair in self._queue if pair[0].id == request_id]:
            self._queue.remove(waiting)
            self._endings.drop_unstarted(*waiting)
            self._beside.forget(request_id)
        for slot in self._slots.all:
            generation, preparing = slot.running, slot.preparing
            if generation is not None and generation.request.id == request_id:
                generation.cancel()
                self._endings.close(slot, generation)
            elif preparing is not None and preparing.request.id == request_id:
                self._give_up(slot, preparing)

    def drain(self) -> None:
        """Take no new requests; those that wait or run go on, and nothing else does any more."""
        self._draining = True
        self._beside.stop()

    def abort(self, error: AnchorlineError) -> None:
        """Fail everything that waits or runs, and forget all state; for faults of our own."""
        while self._queue:
            request, sink = self._queue.popleft()
            self._recorder.failed(request, error)
            sink(Failed(error))
        self._beside.give_up()
        for slot in self._slots.all:
            if slot.preparing is not None:
                preparation = slot.preparing
                self._give_up(slot, preparation)
            self._endings.fail(slot, error)
        self._beside.failed(str(error))
        self._report_load()

    def step(self) -> bool:
        """Do one piece of work; False if there was none."""
        if self._queue:
            self._beside.give_way()
        self._admit()
        worked = self._step_requests()
        waiting = [request for request, _ in self._queue]
        return self._beside.step(waiting, worked=worked, running=bool(self._running()))

    def _step_requests(self) -> bool:
        """A piece of preparation, and one of the forwards."""
        running = self._running()
        prepared = self._prepare(wait=not running)
        return self._forwards.step(running) or prepared

    def _prepare(self, *, wait: bool) -> bool:
        """One piece of what keeps requests from their prefill; whether any waits."""
        preparing = [(slot, slot.preparing) for slot in self._slots.all if slot.preparing]
        for slot, preparation in preparing:
            if self._preparer.step(preparation, wait=wait and not self._running()):
                self._start(slot, preparation)
        return bool(preparing)

    def _start(self, slot: Slot, preparation: Preparation) -> None:
        """Everything a prefill needs is there: begin it."""
        request, placement = preparation.request, preparation.placement
        slot.preparing = None
        offer, decision = self._preparer.outcome(preparation)
        decision = self._begin(request, slot, offer, decision)
        if self._disk is not None and placement.chain is not None:
            clean = decision.gate is not Gate.PRESERVED
            self._disk.heads.began(
                slot.index, request, placement.chain, decision.cached, clean=clean
            )
        slot.session = request.session
        slot.running = Generation(
            request,
            preparation.sink,
            decision,
            self._engine.profile,
            self._tokenizer,
            preparation.started_s,
        )
        self._recorder.started(slot.running)
        self._report_load()

    def _give_up(self, slot: Slot, preparation: Preparation) -> None:
        """The client of a request that is being prepared has left."""
        slot.preparing = None
        self._preparer.give_up(preparation)
        self._endings.drop_unstarted(preparation.request, preparation.sink)

    def flush(self, answer: Callable[[FlushReport], None]) -> None:
        """Make every conversation durable that can be resumed; `answer` is told how that went.

        A slot that is busy is written once its request has ended. Answered by later steps.
        """
        self._beside.flush(answer)

    def peek(self, request: GenerationRequest) -> Peeked:
        """What a request would resume from; it is not run, and nothing is counted."""
        return self._peek.look(request)

    def prewarm(self, request: GenerationRequest, answer: Callable[[PrewarmReport], None]) -> None:
        """Bring what a request would resume from into an idle slot, if the medium has it.

        Answered by a later step, or at once. It gives way to the first request that comes.
        """
        self._beside.prewarm(request, answer, busy=self._draining or bool(self._queue))

    def read_back(self) -> int:
        """Bring the newest conversations into the empty slots, before the first request.

        Blocks; returns how many tokens stand in slots now.
        """
        return self._beside.read_back()

    def close_session(self, session: str, namespace: Namespace | None = None) -> int:
        """End a session's precedence in memory; what is kept stays. How many places were known.

        Args:
            namespace: the only one that is meant; None where all are.
        """
        return self._sessions.close(session, namespace)

    def clear_ram(self) -> int:
        """Forget what idle slots and memory hold; how many tokens that were."""
        self._beside.let_slots_go()
        self._forget_answers()
        kept = 0 if self._ram is None else self._ram.clear()
        return kept + sum(self._endings.forget(slot) for slot in self._slots.idle())

    @property
    def responses(self) -> ResponseCache | None:
        """Answers that are given again, if any are."""
        return self._responses

    @property
    def ram(self) -> RamTier | None:
        """The tier in memory, if there is one."""
        return self._ram

    @property
    def prefetch(self) -> Prefetch | None:
        """What is read ahead for the queue, where there are both tiers."""
        return self._prefetch

    @property
    def disk(self) -> DiskService | None:
        """The tier on a medium, if there is one."""
        return self._disk

    def stats(self) -> CacheStats:
        """The figures of this moment."""
        stats = cache_stats(
            self._engine,
            self._slots,
            self._limits.anchors,
            self._recorder,
            self._disk,
            self._ram,
            self._beside.verifier,
            self._responses,
            queued=len(self._queue),
            running=len(self._running()),
        )
        return replace(stats, prefetch=None if self._prefetch is None else self._prefetch.stats())

    def entries(self) -> tuple[EntryStats, ...]:
        """Everything that is kept: residents first."""
        kept = [] if self._ram is None else ram_entries(self._ram, self._engine, self._clock)
        stored = [] if self._disk is None else self._disk.tier.entry_stats()
        return (*resident_entries(self._engine, self._slots.all), *kept, *stored)

    @property
    def verifies(self) -> bool:
        """Whether `verify` can be asked for; constant."""
        return self._beside.verifier is not None

    def verify(self, samples: int, entry: str | None, answer: Callable[[LiveReport], None]) -> None:
        """Verify so many entries, or the one of this id, while nobody asks for anything.

        Answered by a later step. Only where it `verifies`.
        """
        assert self._beside.verifier is not None
        self._beside.verifier.ask(samples, entry, answer)

    def clear(self, *, ram: bool, disk: bool) -> Cleared:
        """Forget what nothing is using."""
        return Cleared(
            ram_tokens=self.clear_ram() if ram else 0,
            disk_bytes=self._disk.tier.clear() if disk and self._disk is not None else 0,
        )

    def _serve_cold(self) -> None:
        """Resume from nothing any more, and keep nothing."""
        self._slots.cache_enabled = False
        self.clear_ram()
        self._responses = None

    def _forget_answers(self) -> None:
        if self._responses is not None:
            self._responses.clear()

    def _running(self) -> list[Slot]:
        return [slot for slot in self._slots.all if slot.running is not None]

    def _admit(self) -> None:
        """Give waiting requests the idle slots, in the order they came."""
        while self._queue and self._slots.idle():
            request, sink = self._queue.popleft()
            if not self._fits(request, sink):
                continue
            placement = self._slots.place(request, self._rate.seconds, self._disk)
            slot = placement.slot
            preparation = self._preparer.begin(request, sink, placement)
            if preparation.is_ready:
                self._start(slot, preparation)
            else:
                slot.preparing = preparation
            self._report_load()

    def _fits(self, request: GenerationRequest, sink: EventSink) -> bool:
        """Whether its prefill fits the memory; else its client is told to come back."""
        if self._pools is None:
            return True
        try:
            self._pools.before_prefill(len(request.prompt), self._contexts())
        except MemoryShort as short:
            self._recorder.failed(request, short)
            sink(Failed(short))
            self._ended()
            return False
        return True

    def _contexts(self) -> list[int]:
        """Tokens of the prompts that are being served."""
        return [
            len(work.request.prompt)
            for slot in self._slots.all
            for work in (slot.running, slot.preparing)
            if work is not None
        ]

    def _begin(
        self, request: GenerationRequest, slot: Slot, offer: Offer, decision: Decision
    ) -> Decision:
        """Put the slot at the offer's line, or at that of a cold start if that fails."""
        self._endings.fence(slot, offer.line)
        try:
            slot.resident.begin(request.prompt, request.namespace, offer)
        except (EngineError, StateError) as error:
            slot.resident.forget()
            slot.resident.begin(request.prompt, request.namespace, COLD)
            return cold_decision(decision, request.prompt, str(error))
        return decision

    def _ended(self) -> None:
        """A request runs no more."""
        self._report_load()
        if self._pools is not None:
            self._pools.after_request(self._contexts())

    def _report_load(self) -> None:
        self._recorder.load(queued=len(self._queue), running=len(self._running()))
