"""Healing where bits matter: what decode wrote is prefilled again, on tiny hybrids on torch."""

import pytest

from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import token_ids
from contract.readings import Reading, differences, prefill_to, read, some_ids, without_logits
from support import tiny_models
from support.torch_serving import GRID, HYBRIDS, Serving, alone, engine_of

WINDOW = 20 * GRID
PLENTY = 1 << 28
IDLE_S = 0.05
CHUNKS = 3
"""That healing reads again: the answer reaches so far."""

architectures = pytest.mark.parametrize("architecture", [*HYBRIDS, "llama"])


def words(seed: int, count: int) -> list[int]:
    return some_ids(count, seed=seed, vocabulary=tiny_models.VOCABULARY).tolist()


def told(architecture: str, *, heals: bool = True) -> tuple[Serving, list[int]]:
    """A server with a conversation most of which its own decode has written; its tokens."""
    engine = engine_of(architecture, 2, WINDOW)
    serving = Serving(engine, ram_bytes_max=PLENTY, heal_idle_s=IDLE_S if heals else None)
    decision = serving.ask(words(1, 2 * GRID + 5), max_tokens=CHUNKS * GRID)
    return serving, serving.held(decision.slot).tolist()


def idle(serving: Serving, steps: int) -> None:
    """So many steps while nobody asks for anything, after long enough a time."""
    serving.clock.advance(2 * IDLE_S)
    for _ in range(steps):
        serving.scheduler.step()
        serving.clock.advance(0.001)


def cold(architecture: str, tokens: list[int]) -> Reading:
    """What a prefill of all these tokens leaves, in an engine that did nothing else."""
    return alone(engine_of(architecture, 1, WINDOW), token_ids(tokens))


@architectures
def test_a_healed_conversation_is_what_a_cold_prefill_leaves_and_goes_on_as_one(
    architecture: str,
) -> None:
    serving, held = told(architecture)
    top = len(held) // GRID * GRID
    decoded = read(serving.engine.slots[0])

    idle(serving, 60)
    more = words(2, GRID - 3)
    decision = serving.ask([*held, *more])

    assert (decision.gate, decision.cached) == (Gate.BITWISE, top)
    state = read(serving.engine.slots[decision.slot])
    expected = cold(architecture, [*held, *more])
    assert differences(state, without_logits(expected)) == []
    unhealed = engine_of(architecture, 1, WINDOW)
    unhealed.slots[0].resume_at(0)
    prefill_to(unhealed, 0, token_ids(held))
    assert differences(decoded, read(unhealed.slots[0])) != [], "else there is nothing to heal"


@architectures
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_turn_that_comes_meanwhile_finds_the_conversation_as_it_was(
    architecture: str, steps: int
) -> None:
    more = words(2, 5)
    undisturbed, held = told(architecture, heals=False)
    undisturbed.ask([*held, *more])
    expected = read(undisturbed.engine.slots[0])
    serving, same = told(architecture)
    assert same == held

    idle(serving, steps)
    decision = serving.ask([*held, *more])

    assert (decision.gate, decision.cached) == (Gate.PRESERVED, len(held))
    assert differences(read(serving.engine.slots[decision.slot]), expected) == []
