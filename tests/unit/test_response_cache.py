"""Answers given again: to which requests, how, and for how long."""

import contextlib
import gc
import tracemalloc
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import pytest

from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.application.held_bytes import ALLOCATION_STEP
from anchorline.application.request import (
    NO_SLOT,
    Decision,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Prefilling,
    Queued,
    Refusal,
    Timings,
    Usage,
    Written,
)
from anchorline.application.response_cache import ResponseCache, key_of
from anchorline.domain.conversation import Piece, PieceKind, ToolCall
from anchorline.domain.entry import Source, Tier
from anchorline.domain.errors import EngineError
from anchorline.domain.namespace import Namespace
from anchorline.domain.prompt import Prompt
from anchorline.domain.response_key import ResponseKey
from anchorline.domain.sampling import Sampled, SamplingParams
from anchorline.domain.taint_line import Gate
from anchorline.ports import telemetry as names
from support.builders import a_prompt, a_request, ids, random_ids

TTL_S: Final = 100.0
PROMPT: Final = a_prompt([1, 2, 3, 4, 5])
ASKED: Final = a_request(PROMPT, max_tokens=4)


def text(*words: str) -> list[Written]:
    return [Written((Piece(PieceKind.CONTENT, word),)) for word in words]


def finished(
    reason: FinishReason = FinishReason.STOP, *, prompt: int = 5, gate: Gate = Gate.COLD
) -> Finished:
    decision = Decision(
        tier=Tier.SLOT,
        source=Source.END,
        gate=gate,
        cached=3,
        reread=prompt - 3,
        restore_s=0.5,
        slot=1,
        shared=4,
        resident=9,
        nearest=2,
        refused=(Refusal(Source.RESIDENT, 2, "slower"),),
        quarantined=1,
    )
    return Finished(reason, Usage(prompt, 7, 2), decision, Timings(1.0, 2.0, 3.0, 4.0))


@dataclass
class Kept:
    """A cache, and what its clients were told."""

    bytes_max: int = 1 << 20
    ttl_s: float = TTL_S
    clock: ManualClock = field(default_factory=ManualClock)
    telemetry: RecordingTelemetry = field(default_factory=RecordingTelemetry)

    def __post_init__(self) -> None:
        self.cache = ResponseCache(
            self.clock, self.telemetry, bytes_max=self.bytes_max, ttl_s=self.ttl_s
        )

    def serve(
        self,
        request: GenerationRequest = ASKED,
        written: Sequence[Written] = (),
        last: Finished | Failed | None = None,
    ) -> list[Event]:
        """Answer a request as an engine would; what its client was told."""
        told: list[Event] = []
        sink = self.cache.watched(request, told.append)
        for event in (Queued(0), Prefilling(5, 5), *(written or text("one")), last or finished()):
            sink(event)
        return told

    def ask(self, request: GenerationRequest = ASKED) -> list[Event]:
        """What a request is told by the cache alone."""
        told: list[Event] = []
        last = self.cache.answer(request, told.append)
        assert last is (told[-1] if told else None)
        return told

    def knows(self, request: GenerationRequest = ASKED) -> bool:
        return bool(self.ask(request))


def numbered(number: int) -> GenerationRequest:
    return a_request(a_prompt([number, 2, 3]))


# --- what is told ---------------------------------------------------------------------------------


def test_the_first_time_its_client_is_told_everything_as_it_comes() -> None:
    kept = Kept()

    told = kept.serve(written=text("a", "b"))

    assert told == [Queued(0), Prefilling(5, 5), *text("a", "b"), finished()]


def test_an_equal_request_is_told_the_very_events_that_were_written() -> None:
    kept = Kept()
    call = Piece(PieceKind.TOOL_CALL, call=ToolCall("call_1", "weather", "{}"))
    written = [
        Written((Piece(PieceKind.REASONING, "hm"),), (Sampled(9, -0.5, ((9, -0.5), (8, -1.5))),)),
        Written((), (Sampled(3, -2.0),)),
        Written((Piece(PieceKind.CONTENT, "so"), call), (Sampled(1, -0.1),)),
    ]
    kept.serve(written=written)

    for _ in range(2):
        first, *between, last = kept.ask(replace(ASKED, id="another"))

        assert first == Queued(ahead=0)
        assert between == written
        assert isinstance(last, Finished)
        assert (last.reason, last.usage) == (FinishReason.STOP, Usage(5, 7, 2))


@pytest.mark.parametrize("gate", list(Gate))
def test_a_replay_says_that_it_is_one_under_the_gate_of_the_first_time(gate: Gate) -> None:
    kept = Kept()
    kept.serve(last=finished(gate=gate))

    last = kept.ask()[-1]

    assert isinstance(last, Finished)
    assert last.decision == Decision(
        tier=Tier.RAM,
        source=Source.RESPONSE,
        gate=gate,
        cached=5,
        reread=0,
        restore_s=0.0,
        slot=NO_SLOT,
        shared=0,
        resident=0,
    )


def test_a_replay_tells_its_own_times() -> None:
    kept = Kept()
    kept.serve()
    kept.clock.advance(20.0)

    last = kept.ask(replace(ASKED, arrived_s=19.5))[-1]

    assert isinstance(last, Finished)
    assert last.timings == Timings(queue_s=0.5, prompt_s=0.0, predicted_s=0.0, ttft_s=0.5)


def test_a_miss_tells_nothing() -> None:
    kept = Kept()
    kept.serve()

    assert kept.ask(numbered(9)) == []


# --- which requests -------------------------------------------------------------------------------

PLAIN: Final = a_request(PROMPT, stop=("x",), sampling=SamplingParams(logit_bias={1: 2.0}))

DECIDES: Final[dict[str, list[Any]]] = {
    "prompt": [
        a_prompt([1, 2, 3, 4]),
        a_prompt([1, 2, 3, 4, 6]),
        Prompt(PROMPT.ids, ids(1, 2, 3, 4, 9)),
        Prompt(ids(1, 2, 3, 4, 9), PROMPT.key_ids),
    ],
    "namespace": [Namespace(salt="b"), Namespace(adapter="b"), Namespace(kv_scheme="int8")],
    "sampling": [
        SamplingParams(),
        SamplingParams(logit_bias={1: 2.5}),
        replace(PLAIN.sampling, repetition_penalty=1.1),
        replace(PLAIN.sampling, presence_penalty=0.1),
        replace(PLAIN.sampling, frequency_penalty=0.1),
        replace(PLAIN.sampling, top_logprobs=0),
        replace(PLAIN.sampling, top_logprobs=2),
    ],
    "max_tokens": [3, 5],
    "stop": [(), ("y",), ("x", "y")],
    "chat": [True],
    "opens_reasoning": [True],
    "tools": [True],
    "ignore_end": [False],
}
"""By field: values under which the same prompt may be answered otherwise."""

DECIDES_NOTHING: Final[dict[str, list[Any]]] = {
    "id": ["another"],
    "session": ["mine"],
    "arrived_s": [-5.0],
    "prompt": [replace(PROMPT, last_user=3), replace(PROMPT, first_answer=2)],
    "sampling": [
        replace(PLAIN.sampling, seed=7),
        replace(PLAIN.sampling, top_p=0.5),
        replace(PLAIN.sampling, top_k=1),
        replace(PLAIN.sampling, min_p=0.5),
        replace(PLAIN.sampling, temperature=1e-6),
    ],
}


def test_every_field_of_a_request_is_known_to_decide_its_answer_or_not_to() -> None:
    known = DECIDES.keys() | DECIDES_NOTHING.keys()

    assert known == {one.name for one in fields(GenerationRequest)}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in DECIDES.items() for value in values]
)
def test_a_request_that_differs_in_what_decides_is_not_answered(name: str, value: object) -> None:
    kept = Kept()
    kept.serve(PLAIN)

    assert not kept.knows(replace(PLAIN, **{name: value}))
    assert kept.knows(PLAIN)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in DECIDES_NOTHING.items() for value in values],
)
def test_a_request_that_differs_in_nothing_that_decides_is(name: str, value: object) -> None:
    kept = Kept()
    kept.serve(PLAIN)

    assert kept.knows(replace(PLAIN, **{name: value}))


@pytest.mark.usefixtures("all_hashes_collide")
def test_a_hash_never_answers() -> None:
    kept = Kept()
    requests = [numbered(number) for number in range(20)]
    for number, request in enumerate(requests[:10]):
        kept.serve(request, text(str(number)))

    assert [kept.ask(request)[1:2] for request in requests[:10]] == [
        text(str(number)) for number in range(10)
    ]
    assert not any(kept.knows(request) for request in requests[10:])


@pytest.fixture
def all_hashes_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    def seven(_: ResponseKey) -> int:
        return 7

    monkeypatch.setattr(ResponseKey, "__hash__", seven)


@pytest.mark.parametrize("temperature", [1.0, 1e-5])
def test_what_is_drawn_is_neither_kept_nor_answered(temperature: float) -> None:
    kept = Kept()
    drawn = replace(ASKED, sampling=SamplingParams(temperature=temperature, seed=3))
    kept.serve(drawn)

    assert not kept.knows(drawn)
    assert kept.cache.held() == 0


def test_a_request_for_no_tokens_is_always_read() -> None:
    kept = Kept()
    kept.serve(replace(ASKED, max_tokens=0), last=finished(FinishReason.LENGTH))

    assert not kept.knows(replace(ASKED, max_tokens=0))


# --- which answers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "is_kept"),
    [
        (finished(FinishReason.STOP), True),
        (finished(FinishReason.LENGTH), True),
        (finished(FinishReason.TOOL_CALLS), True),
        (finished(FinishReason.CANCELLED), False),
        (Failed(EngineError("it failed")), False),
    ],
)
def test_only_answers_that_ended_as_they_should_are_kept(
    last: Finished | Failed, *, is_kept: bool
) -> None:
    kept = Kept()
    told = kept.serve(last=last)

    assert told[-1] == last
    assert kept.knows() == is_kept
    assert (kept.cache.held() > 0) == is_kept


def test_an_answer_that_is_not_complete_is_not_given() -> None:
    kept = Kept()
    sink = kept.cache.watched(ASKED, lambda _: None)
    for event in (Queued(0), *text("one", "two")):
        sink(event)

    assert not kept.knows()


def test_of_two_equal_requests_at_once_the_answer_that_ended_first_is_kept() -> None:
    kept = Kept()
    first, second = (kept.cache.watched(ASKED, lambda _: None) for _ in range(2))
    for sink, word in ((first, "early"), (second, "late")):
        sink(text(word)[0])
    held = kept.cache.held()
    first(finished(gate=Gate.COLD))
    second(finished(gate=Gate.PRESERVED))

    last = kept.ask()[-1]

    assert kept.ask()[1:2] == text("early")
    assert isinstance(last, Finished)
    assert last.decision.gate is Gate.COLD
    assert kept.cache.stats().answers == 1
    assert kept.cache.held() > held / 2


# --- how long -------------------------------------------------------------------------------------


def test_an_answer_is_given_for_so_long_from_when_it_was_first_given() -> None:
    kept = Kept()
    kept.serve()
    kept.clock.advance(TTL_S / 2)
    assert kept.knows()  # which does not prolong it
    kept.clock.advance(TTL_S / 2 - 0.25)
    assert kept.knows()
    kept.clock.advance(0.25)

    assert not kept.knows()
    assert kept.cache.held() == 0


def test_a_wall_clock_that_jumps_changes_nothing() -> None:
    kept = Kept()
    kept.serve()

    kept.clock.jump(10 * TTL_S)

    assert kept.knows()


def test_an_answer_that_was_too_old_is_given_again_once_it_is_made_again() -> None:
    kept = Kept()
    kept.serve(written=text("old"))
    kept.clock.advance(TTL_S)
    kept.serve(written=text("new"))

    assert kept.ask()[1:2] == text("new")


def test_what_is_too_old_takes_no_memory_once_somebody_asks() -> None:
    kept = Kept()
    for number in range(5):
        kept.serve(numbered(number))
        kept.clock.advance(TTL_S / 5)
    kept.clock.advance(TTL_S / 5)

    stats = kept.cache.stats()

    assert stats.answers == 3
    assert stats.dropped == {"expired": 2}


# --- how much -------------------------------------------------------------------------------------


def size_of_one() -> int:
    """Of an answer to a numbered request, or a few bytes more: hashes are numbers of any length."""
    kept = Kept()
    kept.serve(numbered(0))
    return kept.cache.held() + 2 * ALLOCATION_STEP


def test_the_least_recently_used_answer_goes_first() -> None:
    kept = Kept(bytes_max=4 * size_of_one())
    for number in range(4):
        kept.serve(numbered(number))
    assert kept.knows(numbered(0))

    kept.serve(numbered(4))

    assert [kept.knows(numbered(number)) for number in range(5)] == [True, False, True, True, True]
    assert kept.cache.stats().dropped == {"evicted": 1}


def test_the_budget_is_kept_at_every_moment_by_answers_that_are_being_written_too() -> None:
    kept = Kept(bytes_max=20_000)
    sinks = [kept.cache.watched(numbered(number), lambda _: None) for number in range(60)]
    for _ in range(4):
        for sink in sinks:
            sink(text("word")[0])
            assert 0 < kept.cache.held() <= 20_000
    for sink in sinks:
        sink(finished(prompt=3))
        assert kept.cache.held() <= 20_000

    stats = kept.cache.stats()
    assert 0 < stats.answers < 60
    assert stats.dropped["no_room"] > 0


def test_an_answer_of_more_than_a_quarter_of_the_budget_pushes_nothing_out() -> None:
    kept = Kept(bytes_max=8 * size_of_one())
    for number in range(5):
        kept.serve(numbered(number))

    told = kept.serve(numbered(9), text(*["long"] * 40))

    assert len(told) == 43
    assert not kept.knows(numbered(9))
    assert all(kept.knows(numbered(number)) for number in range(5))
    assert kept.cache.stats().dropped == {"too_large": 1}


def test_a_prompt_counts_with_its_answer() -> None:
    kept = Kept(bytes_max=100_000)

    kept.serve(a_request(a_prompt(random_ids(7000))))

    assert kept.cache.stats().dropped == {"too_large": 1}
    assert kept.cache.held() == 0


def test_no_more_memory_is_taken_than_is_counted() -> None:
    kept = Kept(bytes_max=1 << 30)
    with traced() as taken_by_now:
        for number in range(300):
            request = a_request(a_prompt(random_ids(50 + number, seed=number)))
            words = [f"{number} {word}" for word in range(30)]
            written = [
                replace(one, tokens=(Sampled(at, -0.5 * at, ((at, -0.25 * at),)),))
                for at, one in enumerate(text(*words), start=1000)
            ]
            kept.serve(request, written, finished(prompt=50 + number))
            del request, words, written
        taken = taken_by_now()

    assert kept.cache.stats().answers == 300
    assert taken <= kept.cache.held() <= 2 * taken


def test_an_answer_that_is_given_up_while_it_is_written_takes_no_memory() -> None:
    kept = Kept(bytes_max=100_000)
    sink = kept.cache.watched(ASKED, lambda _: None)
    with traced() as taken_by_now:
        for number in range(24):
            sink(text(f"{number}" * 500)[0])
        sink(text("x" * 20_000)[0])
        taken = taken_by_now()

    assert kept.cache.held() == 0
    assert taken < 4000


def test_nothing_is_left_of_requests_whose_answers_were_not_kept() -> None:
    kept = Kept()
    failed = Failed(EngineError("it failed"))
    kept.serve(last=failed)
    with traced() as taken_by_now:
        for number in range(1000):
            kept.serve(numbered(number), last=failed)
        taken = taken_by_now()

    assert taken < 10_000


@contextlib.contextmanager
def traced() -> Generator[Callable[[], int]]:
    """How many bytes more are taken than at the beginning of the block."""

    def taken() -> int:
        gc.collect()  # which empties Python's lists of objects to be used again too
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = taken()
        yield lambda: taken() - before
    finally:
        tracemalloc.stop()


def test_without_a_budget_nothing_is_kept() -> None:
    kept = Kept(bytes_max=0)
    told = kept.serve()

    assert len(told) == 4
    assert not kept.knows()


# --- forgetting -----------------------------------------------------------------------------------


def test_a_clear_forgets_all_answers_and_says_how_much_that_was() -> None:
    kept = Kept()
    for number in range(3):
        kept.serve(numbered(number))
    held = kept.cache.held()

    assert kept.cache.clear() == held > 0
    assert not any(kept.knows(numbered(number)) for number in range(3))
    assert kept.cache.held() == 0
    assert kept.cache.stats().dropped == {"cleared": 3}


def test_an_answer_that_was_being_written_at_a_clear_is_not_kept() -> None:
    kept = Kept()
    silent, speaking = (kept.cache.watched(numbered(number), lambda _: None) for number in (1, 2))
    speaking(text("one")[0])
    kept.cache.clear()
    assert kept.cache.held() == 0
    for sink in (silent, speaking):
        sink(text("two")[0])
        sink(finished())

    assert not kept.knows(numbered(1))
    assert not kept.knows(numbered(2))


def test_memory_that_is_wanted_back_comes_from_the_least_recently_used() -> None:
    kept = Kept()
    for number in range(4):
        kept.serve(numbered(number))
    held = kept.cache.held()

    freed = kept.cache.give_back(size_of_one())

    assert freed == held - kept.cache.held() >= size_of_one()
    assert [kept.knows(numbered(number)) for number in range(4)] == [False, False, True, True]
    assert kept.cache.give_back(held) == held - freed
    assert kept.cache.held() == 0
    assert kept.cache.give_back(1) == 0


# --- figures --------------------------------------------------------------------------------------


def test_hits_and_misses_are_counted_of_requests_that_could_be_answered() -> None:
    kept = Kept()
    for request in (ASKED, replace(ASKED, sampling=SamplingParams(temperature=1.0))):
        kept.ask(request)
    kept.serve()
    kept.ask()
    kept.ask()

    stats = kept.cache.stats()

    assert (stats.answers, stats.hits, stats.misses) == (1, 2, 1)
    assert (stats.bytes_held, stats.bytes_max) == (kept.cache.held(), 1 << 20)


def test_metrics_tell_of_bytes_and_of_what_was_dropped() -> None:
    kept = Kept()
    kept.serve()
    told, held = kept.telemetry.gauged(names.RESPONSE_BYTES), kept.cache.held()
    kept.cache.clear()

    assert told == held > 0
    assert kept.telemetry.gauged(names.RESPONSE_BYTES) == 0
    assert kept.telemetry.counted(names.RESPONSES_DROPPED, {"reason": "cleared"}) == 1


def test_a_request_whose_answers_are_not_kept_has_no_key() -> None:
    assert key_of(replace(ASKED, sampling=SamplingParams(temperature=0.5))) is None
    assert key_of(ASKED) == key_of(replace(ASKED, id="another"))
