"""Several slots at once, where bits matter: tiny hybrids and plain attention on torch.

Who decodes waits for one chunk of others at most, and what each conversation reads and writes is
what it does alone, on an engine of the same weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import pytest

from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.application.request import Decision, Written
from anchorline.domain.sampling import Logits
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import TokenIds
from anchorline.ports.engine import DecodeInput
from contract.readings import Reading, differences, read, some_ids
from support import tiny_models
from support.torch_serving import GRID, HYBRIDS, Serving, SteadyEngine, engine_of

WINDOW: Final = 20 * GRID
PLENTY: Final = 1 << 28
LONG: Final = 8 * GRID + 5
"""Tokens of a prompt of nine chunks."""
ANSWER: Final = 40

architectures = pytest.mark.parametrize("architecture", [*HYBRIDS, "llama"])


@dataclass(frozen=True)
class Forward:
    """A call of the engine: a chunk of one slot, or a token of each of several."""

    chunk: bool
    slots: tuple[int, ...]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[TorchEngine], list[Forward]]:
    """Lists all calls of an engine from now on, in order."""

    def watched(engine: TorchEngine) -> list[Forward]:
        calls: list[Forward] = []
        prefill, decode = engine.prefill, engine.decode

        def prefills(slot: int, tokens: TokenIds) -> Logits:
            calls.append(Forward(True, (slot,)))
            return prefill(slot, tokens)

        def decodes(inputs: Sequence[DecodeInput]) -> Sequence[Logits]:
            calls.append(Forward(False, tuple(one.slot for one in inputs)))
            return decode(inputs)

        monkeypatch.setattr(engine, "prefill", prefills)
        monkeypatch.setattr(engine, "decode", decodes)
        return calls

    return watched


def words(seed: int, count: int) -> TokenIds:
    return some_ids(count, seed=seed, vocabulary=tiny_models.VOCABULARY)


def text(serving: Serving, request: str) -> str:
    written = (one for one in serving.events[request] if isinstance(one, Written))
    return "".join(piece.text for one in written for piece in one.pieces)


def writes(serving: Serving, request: str) -> bool:
    return any(isinstance(event, Written) for event in serving.events[request])


def step_until_writing(serving: Serving, *requests: str) -> None:
    while not all(writes(serving, request) for request in requests):
        assert serving.scheduler.step()


def chunks(calls: Sequence[Forward]) -> list[int]:
    """The slots of all chunks, in order."""
    return [call.slots[0] for call in calls if call.chunk]


def waits(calls: Sequence[Forward], slot: int) -> list[int]:
    """How many chunks ran between each two tokens of a slot."""
    at = [number for number, call in enumerate(calls) if not call.chunk and slot in call.slots]
    return [len(chunks(calls[one:other])) for one, other in pairwise(at)]


@dataclass(frozen=True)
class Turn:
    """What a turn was told, wrote and left."""

    told: tuple[Gate, int, int]
    text: str
    held: list[int]
    state: Reading


def told(decision: Decision) -> tuple[Gate, int, int]:
    return decision.gate, decision.cached, decision.reread


def turn_of(serving: Serving, request: str) -> Turn:
    """Of the last request of its slot."""
    decision = serving.decision(request)
    return Turn(
        told(decision),
        text(serving, request),
        serving.held(decision.slot).tolist(),
        read(serving.engine.slots[decision.slot]),
    )


class Alone:
    """One conversation, led by itself on an engine that was built for nothing else."""

    def __init__(self, architecture: str) -> None:
        model = tiny_models.tiny_model(architecture)
        self.serving = Serving(SteadyEngine(model, window=WINDOW, grid=GRID, slots=1))

    def turn(self, prompt: Sequence[int] | TokenIds, answer: int) -> Turn:
        request = self.serving.submit(prompt, answer)
        self.serving.run()
        return turn_of(self.serving, request)


def assert_same(found: Turn, expected: Turn) -> None:
    assert (found.told, found.text, found.held) == (expected.told, expected.text, expected.held)
    assert differences(found.state, expected.state) == []


@architectures
def test_two_slots_decode_while_a_third_prompt_prefills_and_each_is_what_it_is_alone(
    architecture: str, watch: Callable[[TorchEngine], list[Forward]]
) -> None:
    serving = Serving(engine_of(architecture, 3, WINDOW))
    asked = [(words(seed, 2 * GRID + seed), ANSWER) for seed in (3, 5)]
    talking = [serving.submit(*one) for one in asked]
    step_until_writing(serving, *talking)
    calls = watch(serving.engine)
    asked.append((words(7, LONG), 5))
    requests = [*talking, serving.submit(*asked[2])]
    serving.run()
    first = [turn_of(serving, request) for request in requests]
    beside = list(calls)
    # And on: the same three again, the prompts' tails in three slots at once.
    more = [
        ([*turn.held, *words(20 + number, count)], ANSWER)
        for number, (turn, count) in enumerate(zip(first, (3, 5, 4 * GRID), strict=True))
    ]
    again = [serving.submit(*one) for one in more]
    serving.run()

    for slot in (serving.decision(request).slot for request in talking):
        assert max(waits(beside, slot)) == 1
        assert sum(waits(beside, slot)) == 9
    for number, request in enumerate(again):
        alone = Alone(architecture)
        assert_same(first[number], alone.turn(*asked[number]))
        found, expected = turn_of(serving, request), alone.turn(*more[number])
        assert_same(found, expected)
        assert found.told[:2] == (Gate.PRESERVED, len(first[number].held))


@architectures
def test_a_prompt_that_waited_for_one_of_two_slots_prefills_beside_the_other(
    architecture: str, watch: Callable[[TorchEngine], list[Forward]]
) -> None:
    serving = Serving(engine_of(architecture, 2, WINDOW), ram_bytes_max=PLENTY)
    asked = [(words(3, 2 * GRID + 3), 6), (words(5, 2 * GRID + 5), ANSWER), (words(7, LONG), 5)]
    short, talking = (serving.submit(*one) for one in asked[:2])
    step_until_writing(serving, short, talking)
    calls = watch(serving.engine)
    waiting = serving.submit(*asked[2])
    serving.run()
    beside, long = turn_of(serving, talking), turn_of(serving, waiting)
    left, stays = serving.decision(short).slot, serving.decision(talking).slot

    assert serving.decision(waiting).slot == left
    assert chunks(calls) == [left] * 9
    assert max(waits(calls, stays)) == 1
    assert_same(beside, Alone(architecture).turn(*asked[1]))
    assert_same(long, Alone(architecture).turn(*asked[2]))


@architectures
def test_two_prompts_prefill_in_turn_beside_a_slot_that_decodes(
    architecture: str, watch: Callable[[TorchEngine], list[Forward]]
) -> None:
    serving = Serving(engine_of(architecture, 3, WINDOW))
    asked = [(words(3, 2 * GRID + 3), ANSWER), (words(5, LONG), 5), (words(7, LONG), 5)]
    talking = serving.submit(*asked[0])
    step_until_writing(serving, talking)
    calls = watch(serving.engine)
    requests = [talking, *(serving.submit(*one) for one in asked[1:])]
    serving.run()

    one, other = (serving.decision(request).slot for request in requests[1:])
    assert chunks(calls) == [one, other] * 9
    assert max(waits(calls, serving.decision(talking).slot)) == 1
    for (prompt, answer), request in zip(asked, requests, strict=True):
        assert_same(turn_of(serving, request), Alone(architecture).turn(prompt, answer))
