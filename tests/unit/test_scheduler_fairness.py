"""Fair steps: who decodes waits for one chunk at most, and prefills take turns."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import pytest

from anchorline.adapters.memory.checkable_engine import Forward
from anchorline.application.request import FinishReason, Written
from anchorline.domain.taint_line import Gate, Writer
from anchorline.simulation.history import History

GRID: Final = 8
WINDOW: Final = 512


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def a_history(slots: int) -> History:
    return History(slots=slots, window=WINDOW, grid=GRID)


def step_until_writing(history: History, requests: Sequence[str]) -> None:
    """Step until each of the requests has written something."""
    while not all(
        any(isinstance(event, Written) for event in history.events[request]) for request in requests
    ):
        history.step()


def slot_of(history: History, request: str) -> int:
    return history.started[request].slot


def forwards_since(history: History, count: int) -> list[Forward]:
    return list(history.engine.forwards)[count:]


def chunks(forwards: Sequence[Forward]) -> list[int]:
    """The slots of all prefill chunks, in order."""
    return [forward.slot for forward in forwards if forward.writer is Writer.PREFILL]


def chunks_between_tokens(forwards: Sequence[Forward], slot: int) -> list[int]:
    """How many chunks of others ran between each two tokens of a slot."""
    at = [
        number
        for number, forward in enumerate(forwards)
        if forward.slot == slot and forward.writer is Writer.DECODE
    ]
    return [len(chunks(forwards[one:other])) for one, other in pairwise(at)]


def while_all_prefill(prefills: Sequence[int]) -> list[int]:
    """The chunks before the first one of the slots has had its last."""
    last = {slot: number for number, slot in enumerate(prefills)}
    return list(prefills[: min(last.values()) + 1])


def largest_gap(served: Sequence[int], slot: int) -> int:
    """The most chunks of others from one of a slot's own to the next."""
    at = [number for number, one in enumerate(served) if one == slot]
    return max((other - one - 1 for one, other in pairwise(at)), default=0)


# --- tokens beside chunks -------------------------------------------------------------------------


@pytest.mark.parametrize("prefilling", [1, 2])
def test_between_two_tokens_of_a_slot_runs_one_chunk_at_most(prefilling: int) -> None:
    history = a_history(slots=2 + prefilling)
    talking = [history.submit(ids(start, 10), max_tokens=120) for start in (0, 1)]
    step_until_writing(history, talking)
    begun = len(history.engine.forwards)
    long = [history.submit(ids(30 + number, 300), max_tokens=4) for number in range(prefilling)]
    history.run()
    forwards = forwards_since(history, begun)

    assert len(chunks(forwards)) == prefilling * 38
    for request in talking:
        between = chunks_between_tokens(forwards, slot_of(history, request))
        assert max(between) == 1
        assert sum(between) == prefilling * 38
    for request in (*talking, *long):
        finished = history.finished(request)
        assert finished is not None
        assert finished.reason is FinishReason.LENGTH


def test_slots_that_decode_do_so_together_in_every_turn_of_theirs() -> None:
    history = a_history(slots=3)
    talking = [history.submit(ids(start, 10), max_tokens=60) for start in (0, 1)]
    step_until_writing(history, talking)
    begun = len(history.engine.forwards)
    history.submit(ids(30, 200), max_tokens=1)
    for _ in range(40):
        history.step()

    tokens = [one for one in forwards_since(history, begun) if one.writer is Writer.DECODE]

    assert len(tokens) >= 30
    assert all({one.slot, other.slot} == {0, 1} for one, other in pairwise(tokens))


def test_a_prefill_gets_a_chunk_between_any_two_tokens_of_others() -> None:
    history = a_history(slots=2)
    talking = history.submit(ids(0, 10), max_tokens=200)
    step_until_writing(history, [talking])
    begun = len(history.engine.forwards)
    long = history.submit(ids(30, 300), max_tokens=1)
    step_until_writing(history, [long])

    between = chunks_between_tokens(forwards_since(history, begun), slot_of(history, talking))

    assert set(between) == {1}


# --- chunks beside chunks -------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_long_prefills_take_turns(count: int) -> None:
    history = a_history(slots=count)
    for number in range(count):
        history.submit(ids(number, 160 + 8 * number), max_tokens=1)
    history.run()

    served = while_all_prefill(chunks(history.engine.forwards))

    assert len(served) >= count * 19
    for at in range(len(served) - count + 1):
        assert set(served[at : at + count]) == set(range(count))


def test_they_take_turns_beside_a_slot_that_decodes_too() -> None:
    history = a_history(slots=3)
    talking = history.submit(ids(0, 10), max_tokens=200)
    step_until_writing(history, [talking])
    begun = len(history.engine.forwards)
    for number in range(2):
        history.submit(ids(30 + number, 160), max_tokens=1)
    history.run()

    served = while_all_prefill(chunks(forwards_since(history, begun)))

    assert len(served) >= 38
    assert all(one != other for one, other in pairwise(served))


def test_a_short_prompt_does_not_wait_for_a_long_one_that_came_before_it() -> None:
    history = a_history(slots=2)
    long = history.submit(ids(0, 400), max_tokens=1)
    for _ in range(5):
        history.step()
    begun = len(history.engine.forwards)
    short = history.submit(ids(50, 20), max_tokens=1)
    step_until_writing(history, [short])

    assert history.finished(long) is None
    assert len(chunks(forwards_since(history, begun))) <= 2 * 3


def test_a_long_prompt_does_not_wait_for_short_ones_that_keep_coming() -> None:
    history = a_history(slots=2)
    long = history.submit(ids(0, 400), max_tokens=1)
    history.step()
    short = [history.submit(ids(50, 3 * GRID), max_tokens=1)]
    while history.finished(long) is None:
        if history.ended(short[-1]):
            short.append(history.submit(ids(50 + len(short), 3 * GRID), max_tokens=1))
        history.step()

    assert len(short) > 10
    assert largest_gap(chunks(history.engine.forwards), slot_of(history, long)) <= 1


def test_who_leaves_gives_the_turn_to_the_others() -> None:
    history = a_history(slots=3)
    staying = [history.submit(ids(number, 160), max_tokens=1) for number in range(2)]
    leaving = history.submit(ids(50, 400), max_tokens=1)
    for _ in range(10):
        history.step()
    history.cancel(leaving)
    begun = len(history.engine.forwards)
    history.run()

    served = while_all_prefill(chunks(forwards_since(history, begun)))

    assert len(served) >= 30
    assert all(one != other for one, other in pairwise(served))
    assert all(history.finished(request) is not None for request in staying)


# --- what comes of it -----------------------------------------------------------------------------

TALKS: Final = (
    (ids(0, 10), ids(3, 30), ids(60, 9)),
    (ids(40, 90), ids(41, 12)),
    (ids(20, 170), ids(21, 70), ids(22, 5)),
)
"""By conversation: what is said in each turn after the answer before."""


def turns_of(history: History, talks: Sequence[Sequence[Sequence[int]]]) -> list[list[str]]:
    """Lead all conversations side by side; their requests."""
    asked: list[list[str]] = [[] for _ in talks]
    while True:
        for talk, requests in zip(talks, asked, strict=True):
            before = history.sequences.get(requests[-1]) if requests else None
            waits = bool(requests) and before is None
            if not waits and len(requests) < len(talk):
                said: list[int] = [] if before is None else before.tolist()
                prompt = [*said, *talk[len(requests)]]
                requests.append(history.submit(prompt, max_tokens=20))
        if history.scheduler.idle:
            return asked
        history.step()


@pytest.mark.parametrize("slots", [2, 3])
def test_what_is_written_side_by_side_is_what_is_written_alone(slots: int) -> None:
    together = a_history(slots)
    asked = turns_of(together, TALKS)

    for talk, requests in zip(TALKS, asked, strict=True):
        alone = a_history(1)
        (expected,) = turns_of(alone, [talk])
        assert len(requests) == len(talk)
        for request, same in zip(requests, expected, strict=True):
            assert together.text(request) == alone.text(same)
            assert together.sequences[request].tolist() == alone.sequences[same].tolist()


def test_conversations_with_a_slot_each_are_told_the_gates_they_are_told_alone() -> None:
    together = a_history(len(TALKS))
    asked = turns_of(together, TALKS)

    for talk, requests in zip(TALKS, asked, strict=True):
        alone = a_history(1)
        (expected,) = turns_of(alone, [talk])
        for request, same in zip(requests, expected, strict=True):
            told, decided = together.started[request], alone.started[same]
            assert (told.gate, told.cached) == (decided.gate, decided.cached)
        assert together.started[requests[0]].gate is Gate.COLD
        assert together.started[requests[-1]].gate is Gate.PRESERVED
