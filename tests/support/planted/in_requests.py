"""Faults of what becomes of a request: the queue, cancels, figures."""

# pyright: reportPrivateUsage=false
# A fault is planted where it would be made, and that is inside.

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from anchorline.application.disk_service import DiskService
from anchorline.application.disk_tier import DiskTier
from anchorline.application.durability import Flush, FlushReport
from anchorline.application.generation import Generation
from anchorline.application.heads import Heads
from anchorline.application.preparing import Preparer
from anchorline.application.recorder import Recorder
from anchorline.application.request import EventSink, Finished, GenerationRequest
from anchorline.application.restore import Restore
from anchorline.application.scheduler import Scheduler
from anchorline.application.slots import Preparation
from anchorline.domain.prompt_chain import PromptChain

from .patching import Planted, one_head_and_rough, replaced

QUEUE_KEPT = 2


def _request_dropped() -> AbstractContextManager[None]:
    submit = Scheduler.submit

    def faulty(self: Scheduler, request: GenerationRequest, sink: EventSink) -> None:
        submit(self, request, sink)
        while len(self._queue) > QUEUE_KEPT:
            self._queue.popleft()

    return replaced(Scheduler, "submit", faulty)


def _cancelled_prefill_goes_on() -> AbstractContextManager[None]:
    cancel = Scheduler.cancel

    def faulty(self: Scheduler, request_id: str) -> None:
        for slot in self.slots:
            running = slot.running
            if running is not None and running.prefilling and running.request.id == request_id:
                return
        cancel(self, request_id)

    return replaced(Scheduler, "cancel", faulty)


def _negative_counter() -> AbstractContextManager[None]:
    finished = Recorder.finished

    def faulty(self: Recorder, generation: Generation, ended: Finished) -> None:
        usage = replace(ended.usage, completion=ended.usage.completion - 1)
        finished(self, generation, replace(ended, usage=usage))

    return replaced(Recorder, "finished", faulty)


def _unread_counted_as_read() -> AbstractContextManager[None]:
    def faulty(self: Generation) -> int:
        return len(self.request.prompt) - self.decision.cached

    return replaced(Generation, "forwarded_of_prompt", property(faulty))


def _resumed_counted_as_cold() -> AbstractContextManager[None]:
    count_cold = DiskTier.count_cold

    def faulty(self: DiskTier, chain: PromptChain, lines: Sequence[int]) -> dict[int, int]:
        every = list(chain.grid.lines(0, max(lines, default=0)))
        return count_cold(self, chain, every)

    return replaced(DiskTier, "count_cold", faulty)


def _tainted_heads() -> AbstractContextManager[None]:
    began = Heads.began

    def faulty(
        self: Heads,
        slot: int,
        request: GenerationRequest,
        chain: PromptChain,
        start: int,
        *,
        clean: bool,
    ) -> None:
        del clean
        began(self, slot, request, chain, start, clean=True)

    return replaced(Heads, "began", faulty)


def _lend_not_given_back() -> AbstractContextManager[None]:
    def faulty(self: DiskService, restore: Restore) -> None:
        del self
        restore.abandon()

    return replaced(DiskService, "abandoned", faulty)


def _reads_not_taken_back() -> AbstractContextManager[None]:
    def faulty(self: Preparer, preparation: Preparation) -> None:
        if preparation.restore is not None and self._disk is not None:
            self._disk.tier.unlend(preparation.restore.continuation.entry.id)

    return replaced(Preparer, "give_up", faulty)


def _flush_always_durable() -> AbstractContextManager[None]:
    report = Flush._report

    def faulty(self: Flush) -> FlushReport:
        return replace(report(self), durable=True, missing=0)

    return replaced(Flush, "_report", faulty)


FAULTS = (
    Planted(
        "request dropped",
        "bounds the queue by a deque's `maxlen`, which lets the oldest fall out",
        "application.scheduler.Scheduler.submit",
        _request_dropped,
    ),
    Planted(
        "cancelled prefill goes on",
        "looks for a cancel only among what is decoding",
        "application.scheduler.Scheduler.cancel",
        _cancelled_prefill_goes_on,
    ),
    Planted(
        "negative counter",
        "does not count the end token, also where there was none",
        "application.recorder.Recorder.finished",
        _negative_counter,
    ),
    Planted(
        "unread counted as read",
        "counts the whole rest of a prompt whose prefill was cancelled",
        "application.generation.Generation.forwarded_of_prompt",
        _unread_counted_as_read,
    ),
    Planted(
        "resumed counted as cold",
        "counts every line of a prompt, not only those that this prefill forwards",
        "application.disk_tier.DiskTier.count_cold",
        _resumed_counted_as_cold,
    ),
    Planted(
        "tainted heads",
        "plans a head without asking whether what it resumed is clean",
        "application.heads.Heads.began",
        _tainted_heads,
        world=one_head_and_rough,
    ),
    Planted(
        "lend not given back",
        "forgets that an entry is in use when the client leaves during a restore",
        "application.disk_service.DiskService.abandoned",
        _lend_not_given_back,
    ),
    Planted(
        "reads not taken back",
        "gives the entry back when the client leaves, and not the reads' buffers",
        "application.preparing.Preparer.give_up",
        _reads_not_taken_back,
    ),
    Planted(
        "flush always durable",
        "reports what was to be done, not what came of it",
        "application.durability.Flush._report",
        _flush_always_durable,
    ),
)
