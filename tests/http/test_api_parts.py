"""Parts of the HTTP adapter that can be looked at without a server."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from anchorline.adapters.http import sse
from anchorline.adapters.http.event_stream import EventStream, submitted
from anchorline.adapters.http.stats_reader import StatsReader
from anchorline.adapters.http.usage import timings_of, usage_of
from anchorline.application.request import (
    Decision,
    Event,
    EventSink,
    Finished,
    FinishReason,
    GenerationRequest,
    Prefilling,
    Queued,
    Timings,
    Usage,
    Written,
)
from anchorline.application.service import Service
from anchorline.application.stats import CacheStats
from anchorline.domain.entry import Source, Tier
from anchorline.domain.errors import Draining, Unavailable
from anchorline.domain.prompt import Prompt, PromptParts
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import token_ids
from support.builders import a_request

PROMPT = token_ids(range(100))
REQUEST = a_request(
    Prompt(PROMPT, PROMPT, parts=PromptParts(system=10, tools=20, history=70)), id="r1", chat=True
)
DECISION = Decision(
    tier=Tier.SLOT,
    source=Source.END,
    gate=Gate.PRESERVED,
    cached=64,
    reread=41,
    restore_s=0.0125,
    slot=0,
    shared=64,
    resident=80,
)
FINISHED = Finished(
    FinishReason.STOP,
    Usage(prompt=100, completion=5, reasoning=2),
    DECISION,
    Timings(queue_s=0.001, prompt_s=0.5, predicted_s=2.0, ttft_s=0.6),
)


class Asked:
    """A service that records what it is asked and answers when it is told to."""

    def __init__(self) -> None:
        self.answers: list[Callable[[CacheStats], None]] = []
        self.sinks: list[EventSink] = []
        self.cancelled: list[str] = []
        self.stopped = False

    def stats(self, answer: Callable[[CacheStats], None]) -> None:
        self._check()
        self.answers.append(answer)

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        del request
        self._check()
        self.sinks.append(sink)

    def cancel(self, request_id: str) -> None:
        self._check()
        self.cancelled.append(request_id)

    def _check(self) -> None:
        if self.stopped:
            raise Draining("stopped", retry_after_s=1)

    def as_service(self) -> Service:
        return cast("Service", self)


STATS = CacheStats(
    enabled=True,
    slots=(),
    anchor_bytes_max=0,
    anchor_count_max=0,
    section_bytes=0,
    row_bytes=0,
    grid=64,
    queued=2,
    running=1,
    requests=3,
    misses=0,
    hits={},
    tokens_cached={},
    tokens_reread=0,
    last=(),
)


# --- usage --------------------------------------------------------------------------------------


def test_tokens_that_were_injected_are_cached_and_reread_beyond_the_prompt() -> None:
    usage = usage_of(REQUEST, FINISHED)

    parts, cache = usage.anchorline.parts, usage.anchorline.cache
    assert parts.injected == 5
    assert parts.system + parts.tools + parts.history + parts.images == usage.prompt_tokens
    assert usage.prompt_tokens + parts.injected == cache.cached + cache.reread
    assert usage.prompt_tokens_details.cached_tokens == cache.cached == 64
    assert cache.restore_ms == 12.5


def test_timings_are_milliseconds_and_rates_leave_out_the_first_token() -> None:
    timings = timings_of(FINISHED)

    assert (timings.queue_ms, timings.prompt_ms, timings.ttft_ms) == (1.0, 500.0, 600.0)
    assert timings.prompt_per_second == 82.0
    assert (timings.predicted_n, timings.predicted_per_second) == (5, 2.0)


def test_a_phase_without_time_or_tokens_has_the_rate_zero() -> None:
    nothing = Finished(FinishReason.LENGTH, Usage(100, 0, 0), DECISION, Timings(0.0, 0.0, 0.0, 0.0))

    timings = timings_of(nothing)

    assert (timings.prompt_per_second, timings.predicted_per_second) == (0.0, 0.0)


# --- comments -----------------------------------------------------------------------------------


def test_a_comment_is_due_an_interval_after_whatever_was_sent_last() -> None:
    progress = sse.Progress(1.0, now_s=10.0)

    assert progress.due_s == 11.0
    progress.sent(10.5)
    assert progress.due_s == 11.5


def test_a_comment_tells_the_newest_event() -> None:
    progress = sse.Progress(1.0, now_s=0.0)
    events: list[tuple[Event | None, bytes]] = [
        (Queued(3), b": queued, 3 ahead\n\n"),
        (None, b": queued, 3 ahead\n\n"),
        (Prefilling(64, 200), b": prefill 64/200\n\n"),
        (Written(()), b": writing\n\n"),
    ]

    for event, comment in events:
        progress.note(event)
        assert progress.comment() == comment


# --- events -------------------------------------------------------------------------------------


def test_events_come_in_order_and_a_wait_that_ends_first_loses_none() -> None:
    async def run() -> list[Event | None]:
        loop = asyncio.get_running_loop()
        events = EventStream(loop)
        early = await events.next(loop.time())
        sent = [Queued(0), Prefilling(1, 2), FINISHED]
        await asyncio.to_thread(lambda: [events.put(event) for event in sent])
        return [early, *[await events.next(loop.time() + 5) for _ in sent]]

    assert asyncio.run(run()) == [None, Queued(0), Prefilling(1, 2), FINISHED]


def test_an_event_after_the_loop_was_closed_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    events = EventStream(loop)
    loop.close()

    events.put(FINISHED)

    assert events.ended


@pytest.mark.parametrize("ends", [False, True])
def test_a_request_is_cancelled_unless_it_has_ended(ends: bool) -> None:
    asked = Asked()

    async def run() -> None:
        async with submitted(asked.as_service(), REQUEST):
            asked.sinks[0](FINISHED if ends else Queued(0))

    asyncio.run(run())

    assert asked.cancelled == ([] if ends else ["r1"])


def test_a_stopped_engine_thread_has_nothing_to_cancel() -> None:
    asked = Asked()

    async def run() -> None:
        async with submitted(asked.as_service(), REQUEST):
            asked.stopped = True

    asyncio.run(run())

    assert asked.cancelled == []


# --- figures ------------------------------------------------------------------------------------


def test_the_engine_thread_is_asked_one_question_at_a_time() -> None:
    asked = Asked()

    async def run() -> None:
        reader = StatsReader(asked.as_service())
        waiting = [asyncio.create_task(reader.fresh(5.0)) for _ in range(3)]
        assert await reader.latest(0.0) is None
        assert len(asked.answers) == 1
        asked.answers[0](STATS)
        assert await asyncio.gather(*waiting) == [STATS] * 3
        again = asyncio.create_task(reader.fresh(5.0))
        await asyncio.sleep(0)
        assert len(asked.answers) == 2
        asked.answers[1](STATS)
        await again

    asyncio.run(run())


def test_the_last_known_figures_are_given_where_none_come_in_time() -> None:
    asked = Asked()

    async def run() -> None:
        reader = StatsReader(asked.as_service())
        first = asyncio.create_task(reader.latest(5.0))
        await asyncio.sleep(0)
        asked.answers[0](STATS)
        assert await first is not None
        known = await reader.latest(0.0)
        assert known is not None
        assert (known.stats, known.age_s >= 0) == (STATS, True)
        with pytest.raises(Unavailable, match="did not answer within"):
            await reader.fresh(0.0)
        asked.stopped = True
        assert await reader.latest(0.0) is not None

    asyncio.run(run())
