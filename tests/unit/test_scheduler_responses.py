"""A scheduler that gives answers again: who gets one, and what it costs nobody."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.limits import Limits
from anchorline.application.request import NO_SLOT, Event, Finished, FinishReason, Queued, Written
from anchorline.application.response_cache import ResponseCache
from anchorline.application.scheduler import Scheduler
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.entry import Source, Tier
from anchorline.domain.errors import Draining, QueueFull
from anchorline.domain.namespace import Namespace
from anchorline.domain.sampling import SamplingParams
from anchorline.domain.taint_line import Gate
from anchorline.ports import telemetry as names
from support.builders import a_prompt, a_request
from support.verified import VerifiedServer

STEPS_MAX: Final = 10_000


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


@dataclass
class Answering:
    """A scheduler with a response cache."""

    slots: int = 1
    queue_max: int = 4
    cache_enabled: bool = True
    clock: ManualClock = field(default_factory=ManualClock)
    telemetry: RecordingTelemetry = field(default_factory=RecordingTelemetry)

    def __post_init__(self) -> None:
        self.engine = CheckableEngine(slots=self.slots, grid=8, window=256)
        self.scheduler = Scheduler(
            self.engine,
            ToyTokenizer(),
            self.clock,
            self.telemetry,
            Limits(
                queue_max=self.queue_max,
                anchors=AnchorBudget(1 << 20),
                cache_enabled=self.cache_enabled,
            ),
            responses=ResponseCache(self.clock, self.telemetry, bytes_max=1 << 20, ttl_s=60.0),
        )
        self.asked = 0

    def submit(self, prompt: Sequence[int], **said: Any) -> list[Event]:  # noqa: ANN401
        events: list[Event] = []
        request = a_request(
            a_prompt(prompt), id=f"r{self.asked}", arrived_s=self.clock.monotonic(), **said
        )
        self.asked += 1
        self.scheduler.submit(request, events.append)
        return events

    def run(self) -> None:
        for _ in range(STEPS_MAX):
            if self.scheduler.idle:
                return
            self.scheduler.step()
            self.clock.advance(0.001)
        raise AssertionError("it never ends")

    def ask(self, prompt: Sequence[int], **said: Any) -> list[Event]:  # noqa: ANN401
        events = self.submit(prompt, **said)
        self.run()
        return events

    def held(self) -> list[object]:
        """Everything that slots hold, and which of them is taken next."""
        return [
            (slot.resident.ids.tolist(), slot.resident.anchors, slot.resident.end, slot.used)
            for slot in self.scheduler.slots
        ]


def written(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, Written)]


def last(events: Sequence[Event]) -> Finished:
    assert isinstance(events[-1], Finished), events
    return events[-1]


def was_replayed(events: Sequence[Event]) -> bool:
    return last(events).decision.source is Source.RESPONSE


def test_an_equal_request_is_answered_without_a_forward_or_a_slot() -> None:
    answering = Answering()
    told = SamplingParams(top_logprobs=2)
    first = answering.ask(ids(0, 20), sampling=told)
    answering.ask(ids(40, 30))
    forwarded, held = answering.engine.tokens_forwarded, answering.held()

    again = answering.submit(ids(0, 20), sampling=told)

    assert written(again) == written(first) != []
    assert again[0] == Queued(ahead=0)
    assert (last(again).usage, last(again).reason) == (last(first).usage, last(first).reason)
    assert answering.engine.tokens_forwarded == forwarded
    assert answering.held() == held
    assert answering.scheduler.idle


def test_a_replay_counts_all_of_its_prompt_as_cached_under_the_first_gate() -> None:
    answering = Answering()
    first = answering.ask(ids(0, 20))
    conversation = [*answering.scheduler.slots[0].resident.ids.tolist(), 5]
    resumed = answering.ask(conversation)

    replays = answering.submit(ids(0, 20)), answering.submit(conversation)

    assert [last(one).decision.gate for one in (first, resumed)] == [Gate.COLD, Gate.PRESERVED]
    for replay, gate, count in zip(replays, (Gate.COLD, Gate.PRESERVED), (20, 24), strict=True):
        decision = last(replay).decision
        assert (decision.gate, decision.cached, decision.reread) == (gate, count, 0)
        assert (decision.tier, decision.source) == (Tier.RAM, Source.RESPONSE)
        assert decision.slot == NO_SLOT


@pytest.mark.parametrize(
    "said",
    [
        {"namespace": Namespace(salt="b")},
        {"max_tokens": 5},
        {"stop": ("x",)},
        {"ignore_end": False},
        {"sampling": SamplingParams(presence_penalty=1.0)},
    ],
)
def test_a_request_that_differs_is_served(said: dict[str, Any]) -> None:
    answering = Answering()
    answering.ask(ids(0, 20))

    assert not was_replayed(answering.ask(ids(0, 20), **said))


def test_an_answer_that_was_cancelled_is_written_again() -> None:
    answering = Answering()
    given_up = answering.submit(ids(0, 20), max_tokens=50)
    for _ in range(6):
        answering.scheduler.step()
    answering.scheduler.cancel("r0")

    again = answering.ask(ids(0, 20), max_tokens=50)

    assert last(given_up).reason is FinishReason.CANCELLED
    assert not was_replayed(again)
    assert last(again).usage.completion == 50


def test_a_request_that_waits_for_a_slot_is_watched_too() -> None:
    answering = Answering()
    answering.submit(ids(40, 20))
    waiting = answering.submit(ids(0, 20))
    answering.run()

    again = answering.submit(ids(0, 20))

    assert written(again) == written(waiting) != []


def test_a_full_queue_still_gives_answers_again() -> None:
    answering = Answering(queue_max=0)
    answering.ask(ids(0, 20))
    answering.submit(ids(40, 20))
    answering.scheduler.step()

    assert was_replayed(answering.submit(ids(0, 20)))
    with pytest.raises(QueueFull):
        answering.submit(ids(41, 20))


def test_a_server_that_drains_gives_none() -> None:
    answering = Answering()
    answering.ask(ids(0, 20))
    answering.scheduler.drain()

    with pytest.raises(Draining):
        answering.submit(ids(0, 20))


def test_cancelling_a_request_that_was_answered_so_changes_nothing() -> None:
    answering = Answering()
    answering.ask(ids(0, 20))
    again = answering.submit(ids(0, 20))
    before = list(again)

    answering.scheduler.cancel("r1")

    assert again == before
    assert was_replayed(answering.submit(ids(0, 20)))


def test_clearing_memory_forgets_answers_and_those_being_written() -> None:
    answering = Answering(slots=2)
    answering.ask(ids(0, 20))
    answering.submit(ids(1, 20))
    answering.scheduler.step()
    answering.scheduler.clear(ram=True, disk=False)
    answering.run()

    assert not was_replayed(answering.ask(ids(0, 20)))
    assert not was_replayed(answering.ask(ids(1, 20)))
    assert was_replayed(answering.ask(ids(1, 20)))


def test_clearing_the_disk_keeps_them() -> None:
    answering = Answering()
    answering.ask(ids(0, 20))
    answering.scheduler.clear(ram=False, disk=True)

    assert was_replayed(answering.submit(ids(0, 20)))


def test_a_server_without_a_cache_gives_none() -> None:
    answering = Answering(cache_enabled=False)
    answering.ask(ids(0, 20))

    assert not was_replayed(answering.ask(ids(0, 20)))


def test_figures_and_journal_tell_of_replays() -> None:
    answering = Answering()
    answering.ask(ids(0, 20))
    answering.clock.advance(1.0)
    answering.submit(ids(0, 20))

    stats, counted = answering.scheduler.stats(), answering.telemetry
    assert (stats.requests, stats.misses, stats.hits) == (2, 1, {"response": 1})
    assert (stats.tokens_cached["response"], stats.tokens_reread) == (20, 20)
    assert [one.decision.cached for one in stats.last] == [0, 20]
    assert stats.responses is not None
    assert (stats.responses.answers, stats.responses.hits, stats.responses.misses) == (1, 1, 1)
    assert counted.counted(names.HITS, {"tier": "ram", "source": "response"}) == 1
    assert counted.counted_in_all(names.TOKENS_GENERATED) == 4
    assert counted.counted(names.REQUESTS, {"outcome": "length"}) == 2
    assert counted.samples(names.TTFT_SECONDS, {"tier": "ram"}) == [0.0]
    first, second = counted.records
    assert set(first) == set(second)
    assert (second["request"], second["source"], second["slot"]) == ("r1", "response", NO_SLOT)


def test_answers_that_a_wrong_state_may_have_given_are_forgotten_when_it_is_found() -> None:
    responses = ResponseCache(ManualClock(), RecordingTelemetry(), bytes_max=1 << 20, ttl_s=60.0)
    server = VerifiedServer(disk_enabled=False, responses=responses)
    server.ask(ids(0, 60))
    kept = responses.stats().answers
    server.spoil_row(13)

    server.verify()

    assert kept == 1
    assert responses.stats().answers == 0
    assert server.ask(ids(0, 60)).decision.source is not Source.RESPONSE
