"""Faults of caches that were met in the field elsewhere, where bits matter: tiny hybrids on torch.

What a scheduler does with a slot, and with a disk behind it, is held against an engine of the same
weights that does nothing but the one conversation. The rules stand in docs/testing.md.
"""

import pytest

from anchorline.domain.entry import Tier
from anchorline.domain.taint_line import Gate
from contract.readings import differences, read, some_ids, without_logits
from support import tiny_models
from support.torch_serving import GRID, HYBRIDS, Serving, alone, engine_of

hybrids = pytest.mark.parametrize("architecture", HYBRIDS)


@hybrids
def test_who_shares_a_prefix_and_then_parts_changes_no_bit_of_what_it_shared(
    architecture: str,
) -> None:
    serving = Serving(engine_of(architecture, 1))
    one = some_ids(5 * GRID + 5, seed=1, vocabulary=tiny_models.VOCABULARY)
    other = [*one[: 3 * GRID + 2], *some_ids(2 * GRID, seed=2, vocabulary=tiny_models.VOCABULARY)]
    serving.ask(one)

    serving.ask(other, max_tokens=5)
    decision = serving.ask(one)

    assert (decision.gate, decision.cached) == (Gate.BITWISE, 3 * GRID)
    found = read(serving.engine.slots[0])
    assert differences(found, without_logits(alone(engine_of(architecture, 1), one))) == []


@hybrids
def test_a_prefill_beside_a_generation_leaves_no_bit_of_either_other_than_alone(
    architecture: str,
) -> None:
    serving = Serving(engine_of(architecture, 2))
    prompts = [
        some_ids(length, seed=length, vocabulary=tiny_models.VOCABULARY)
        for length in (2 * GRID + 3, 5 * GRID + 1)
    ]
    serving.submit(prompts[0], max_tokens=20)
    while serving.scheduler.slots[0].resident.length < len(prompts[0]) + 2:
        serving.scheduler.step()
    serving.submit(prompts[1], max_tokens=4)
    serving.run()

    for slot, prompt in enumerate(prompts):
        held = serving.held(slot)
        found = read(serving.engine.slots[slot])
        expected = alone(engine_of(architecture, 1), prompt, held[len(prompt) :])
        assert differences(found, without_logits(expected)) == []


@hybrids
@pytest.mark.parametrize("chunks", [1, 3])
def test_a_retry_after_a_client_has_left_equals_a_cold_run_bit_for_bit(
    architecture: str, chunks: int
) -> None:
    serving = Serving(engine_of(architecture, 1))
    prompt = some_ids(4 * GRID + 5, seed=3, vocabulary=tiny_models.VOCABULARY)
    request = serving.submit(prompt, max_tokens=3)
    while serving.scheduler.slots[0].resident.length < chunks * GRID:
        serving.scheduler.step()
    serving.scheduler.cancel(request)
    serving.run()

    decision = serving.ask(prompt)

    assert (decision.gate, decision.cached) == (Gate.BITWISE, chunks * GRID)
    found = read(serving.engine.slots[0])
    assert differences(found, without_logits(alone(engine_of(architecture, 1), prompt))) == []


@hybrids
def test_a_conversation_that_comes_back_from_the_disk_goes_on_bit_for_bit(
    architecture: str,
) -> None:
    serving = Serving(engine_of(architecture, 1), disk=True)
    prompt = some_ids(3 * GRID + 5, seed=4, vocabulary=tiny_models.VOCABULARY)
    serving.ask(prompt, max_tokens=6)
    held = serving.held(0)
    question = some_ids(GRID, seed=5, vocabulary=tiny_models.VOCABULARY)
    for seed in (6, 7):  # they take the slot
        other = some_ids(4 * GRID, seed=seed, vocabulary=tiny_models.VOCABULARY)
        serving.ask(other, max_tokens=2)

    decision = serving.ask([*held, *question])

    told = (decision.tier, decision.gate, decision.cached)
    assert told == (Tier.DISK, Gate.PRESERVED, len(held))
    found = read(serving.engine.slots[0])
    expected = alone(engine_of(architecture, 1), prompt, held[len(prompt) :], question)
    assert differences(found, without_logits(expected)) == []


@hybrids
def test_two_prompts_with_one_head_and_room_for_one_never_answer_for_each_other(
    architecture: str,
) -> None:
    head = some_ids(2 * GRID, seed=8, vocabulary=tiny_models.VOCABULARY)
    prompts = [
        [*head, *some_ids(7, seed=seed, vocabulary=tiny_models.VOCABULARY)] for seed in (9, 10)
    ]
    serving = Serving(engine_of(architecture, 1), disk=True)

    def answer(prompt: list[int]) -> tuple[list[int], int]:
        decision = serving.ask(prompt, max_tokens=8)
        return serving.held(0)[len(prompt) :].tolist(), decision.cached

    first = [answer(prompt) for prompt in prompts]
    again = [answer(prompt) for prompt in prompts]

    assert [tokens for tokens, _ in again] == [tokens for tokens, _ in first]
    assert first[0][0] != first[1][0]
    assert all(cached >= 2 * GRID for _, cached in again)
