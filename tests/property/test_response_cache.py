"""Answers given again, held against a record of all answers there ever were."""

import random
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.application.request import (
    Decision,
    Event,
    EventSink,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Queued,
    Timings,
    Usage,
    Written,
)
from anchorline.application.response_cache import ResponseCache
from anchorline.domain.conversation import Piece, PieceKind
from anchorline.domain.entry import Source, Tier
from anchorline.domain.errors import EngineError
from anchorline.domain.response_key import ResponseKey
from anchorline.domain.taint_line import Gate
from support.builders import a_prompt, a_request

TTL_S: Final = 50.0
REQUESTS: Final = 6
ENDS: Final = (
    *(FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS),
    *(FinishReason.CANCELLED, None),
)


@dataclass
class _Running:
    """A request that is being answered."""

    number: int
    sink: EventSink
    written: list[Written] = field(default_factory=list[Written])


@dataclass(frozen=True)
class _Given:
    """An answer, when it ended, and how many clears there had been when its request came."""

    written: tuple[Written, ...]
    gate: Gate
    at_s: float


class _Life:
    """A cache whose clients do whatever they like."""

    def __init__(self, seed: int, bytes_max: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.bytes_max = bytes_max
        self.cache = ResponseCache(
            self.clock, RecordingTelemetry(), bytes_max=bytes_max, ttl_s=TTL_S
        )
        self.running: list[_Running] = []
        self.given: dict[int, list[_Given]] = {}
        self.words = 0
        self.hits = 0

    def act(self) -> None:
        rng = self.rng
        action = rng.choice((self.ask, self.ask, self.write, self.write, self.write, self.end))
        action()
        if rng.random() < 0.1:
            self.clock.advance(rng.random() * TTL_S / 2)
        if rng.random() < 0.01:
            self.clear()
        if rng.random() < 0.02:
            self.cache.give_back(rng.randint(0, self.bytes_max))
        assert 0 <= self.cache.held() <= self.bytes_max

    def ask(self) -> None:
        """A request comes: it is answered with what an equal one was told, or has to be served."""
        number = self.rng.randrange(REQUESTS)
        request = _request(number)
        told: list[Event] = []
        last = self.cache.answer(request, told.append)
        if last is None:
            assert told == []
            self.running.append(_Running(number, self.cache.watched(request, lambda _: None)))
            return
        self.hits += 1
        assert (told[0], told[-1]) == (Queued(ahead=0), last)
        now_s = self.clock.monotonic()
        assert any(
            one.written == tuple(told[1:-1])
            and one.gate is last.decision.gate
            and now_s - one.at_s < TTL_S
            for one in self.given.get(number, ())
        )

    def write(self) -> None:
        if self.running:
            one = self.rng.choice(self.running)
            self.words += 1
            word = f"{one.number}-{self.words}"
            event = Written((Piece(PieceKind.CONTENT, word * self.rng.randint(1, 20)),))
            one.written.append(event)
            one.sink(event)

    def end(self) -> None:
        if not self.running:
            return
        one = self.running.pop(self.rng.randrange(len(self.running)))
        reason, gate = self.rng.choice(ENDS), self.rng.choice(list(Gate))
        if reason is None:
            one.sink(Failed(EngineError("it failed")))
            return
        if reason is not FinishReason.CANCELLED:
            given = _Given(tuple(one.written), gate, self.clock.monotonic())
            self.given.setdefault(one.number, []).append(given)
        decision = Decision(Tier.SLOT, Source.END, gate, 2, 1, 0.0, 0, 2, 9)
        one.sink(Finished(reason, Usage(3, 1, 0), decision, Timings(0.0, 0.0, 0.0, 0.0)))

    def clear(self) -> None:
        """No answer from before is given again, nor one that was being written."""
        self.cache.clear()
        assert self.cache.held() == 0
        self.given.clear()
        running, self.running = self.running, []
        for one in running:
            decision = Decision(Tier.NONE, Source.NONE, Gate.COLD, 0, 3, 0.0, 0, 0, 0)
            stale = Finished(FinishReason.STOP, Usage(3, 1, 0), decision, Timings(0, 0, 0, 0))
            one.sink(stale)
        assert self.cache.stats().answers == 0


def _request(number: int) -> GenerationRequest:
    plain = a_request(a_prompt([number // 2, 2, 3]), session=f"s{number}")
    return replace(plain, stop=("x",) if number % 2 else ())


@pytest.mark.parametrize("seed", range(20))
def test_a_replay_is_an_answer_to_that_request_and_the_budget_is_kept(seed: int) -> None:
    life = _Life(seed, bytes_max=(0, 6_000, 20_000, 1 << 20)[seed % 4])

    for _ in range(2_000):
        life.act()
    for one in life.running:
        one.sink(Failed(EngineError("the end")))
    life.cache.give_back(1 << 20)

    assert life.cache.held() == 0
    assert (life.hits > 50) == (life.bytes_max > 6_000)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_where_every_hash_collides(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def zero(_: ResponseKey) -> int:
        return 0

    monkeypatch.setattr(ResponseKey, "__hash__", zero)
    life = _Life(seed, bytes_max=20_000)

    for _ in range(2_000):
        life.act()

    assert life.hits > 50
