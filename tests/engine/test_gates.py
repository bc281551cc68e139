"""The two gates, bit for bit, for every architecture in fp32 and bf16.

Prompts A and B share their first `shared` tokens. A slot that holds A is resumed at the last grid
line that both have, and must then hold what a slot that never saw A holds.
"""

import functools

import numpy as np
import pytest
import torch

from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.domain.anchor import SectionsHandle
from anchorline.domain.grid import Span
from anchorline.domain.tokens import TokenIds
from contract.readings import (
    Reading,
    decode_all,
    differences,
    move_rows,
    move_state,
    prefill_to,
    read,
    some_ids,
)
from support import made_up_model, tiny_models

GRID = 16
WINDOW = 5 * GRID
PROMPT_A = 4 * GRID + 7
MADE_UP = "made up"
VOCABULARY = min(tiny_models.VOCABULARY, made_up_model.VOCABULARY)

CASES = [
    (GRID, GRID + 1),  # a tail of one token, which models forward on another path
    (GRID, 2 * GRID),
    (GRID + 5, 2 * GRID + 9),  # they part inside a chunk
    (2 * GRID - 1, 2 * GRID + 1),
    (2 * GRID, 2 * GRID + 2),
    (3 * GRID, 4 * GRID + 1),
    (3 * GRID + 3, 3 * GRID + 4),
    (4 * GRID, 5 * GRID - 1),
]

matrix = pytest.mark.parametrize(
    ("architecture", "dtype"),
    [
        *(
            (architecture, dtype)
            for architecture in tiny_models.ARCHITECTURES
            for dtype in ("float32", "bfloat16")
        ),
        (MADE_UP, "float32"),
    ],
)


@functools.cache
def engine_of(architecture: str, dtype: str) -> TorchEngine:
    """Two slots; tests leave nothing behind that line 0 does not end."""
    if architecture == MADE_UP:
        model, layers = made_up_model.MadeUpModel(), made_up_model.made_up_layers
        return TorchEngine(model, window=WINDOW, grid=GRID, slots=2, layers=layers)
    model = tiny_models.tiny_model(architecture, getattr(torch, dtype))
    return TorchEngine(model, window=WINDOW, grid=GRID, slots=2)


def prompts(shared: int, length: int) -> tuple[TokenIds, TokenIds]:
    """A, and B of `length` tokens with A's first `shared`."""
    a = some_ids(PROMPT_A, seed=1, vocabulary=VOCABULARY)
    other = some_ids(length - shared, seed=2, vocabulary=VOCABULARY)
    return a, np.concatenate([a[:shared], other])


def cold(engine: TorchEngine, slot: int, ids: TokenIds) -> Reading:
    """The slot after a cold prefill of `ids`."""
    state = engine.slots[slot]
    state.resume_at(0)
    return read(state, prefill_to(engine, slot, ids))


def prefill_with_anchors(engine: TorchEngine, ids: TokenIds) -> dict[int, SectionsHandle]:
    """Prefill slot 0 cold; an anchor at every grid line."""
    state = engine.slots[0]
    state.resume_at(0)
    anchors: dict[int, SectionsHandle] = {}
    for chunk in engine.profile.grid.chunks(0, len(ids)):
        engine.prefill(0, ids[chunk.start : chunk.end])
        if engine.profile.grid.has(chunk.end):
            anchors[chunk.end] = state.capture_sections()
    return anchors


def resume(engine: TorchEngine, anchors: dict[int, SectionsHandle], line: int) -> None:
    """Slot 0 at an anchor; all copies are released."""
    state = engine.slots[0]
    state.restore_sections(anchors[line])
    state.resume_at(line)
    for handle in anchors.values():
        state.release_sections(handle)


@matrix
@pytest.mark.parametrize(("shared", "length"), CASES)
def test_resume_at_a_grid_line_equals_a_cold_prefill(
    architecture: str, dtype: str, shared: int, length: int
) -> None:
    engine = engine_of(architecture, dtype)
    a, b = prompts(shared, length)
    anchors = prefill_with_anchors(engine, a)

    resume(engine, anchors, engine.profile.grid.floor(shared))
    logits = prefill_to(engine, 0, b)

    assert differences(read(engine.slots[0], logits), cold(engine, 1, b)) == []


@matrix
def test_resume_after_a_generation_equals_a_cold_prefill_and_so_does_what_it_generates(
    architecture: str, dtype: str
) -> None:
    engine = engine_of(architecture, dtype)
    shared = 2 * GRID + 3
    a, b = prompts(shared, 3 * GRID + 5)
    tokens = some_ids(5, seed=3, vocabulary=VOCABULARY)
    anchors = prefill_with_anchors(engine, a)
    decode_all(engine, 0, tokens)

    resume(engine, anchors, 2 * GRID)
    logits = prefill_to(engine, 0, b)
    assert differences(read(engine.slots[0], logits), cold(engine, 1, b)) == []

    after, after_cold = decode_all(engine, 0, tokens), decode_all(engine, 1, tokens)
    assert differences(read(engine.slots[0], after), read(engine.slots[1], after_cold)) == []


@matrix
def test_a_grid_anchor_is_bitwise_after_a_passage_through_bytes_into_another_slot(
    architecture: str, dtype: str
) -> None:
    engine = engine_of(architecture, dtype)
    line = 2 * GRID
    a, b = prompts(line, 3 * GRID + 1)
    expected = cold(engine, 0, b)
    cold(engine, 1, some_ids(PROMPT_A, seed=4, vocabulary=VOCABULARY))
    anchors = prefill_with_anchors(engine, a)
    source, target = engine.slots
    move_rows(source, target, Span(0, line))

    resume(engine, anchors, line)
    move_state(source, target)
    logits = prefill_to(engine, 1, b)

    assert differences(read(target, logits), expected) == []


@matrix
def test_an_end_anchor_resumes_as_if_the_conversation_had_never_been_left(
    architecture: str, dtype: str
) -> None:
    engine = engine_of(architecture, dtype)
    prompt = some_ids(GRID + 5, seed=1, vocabulary=VOCABULARY)
    answer = some_ids(6, seed=2, vocabulary=VOCABULARY)
    turn = some_ids(GRID, seed=3, vocabulary=VOCABULARY)
    conversation = np.concatenate([prompt, answer, turn])
    cold(engine, 1, prompt)
    decode_all(engine, 1, answer)
    uninterrupted = read(engine.slots[1], prefill_to(engine, 1, conversation))
    state = engine.slots[0]
    cold(engine, 0, prompt)
    decode_all(engine, 0, answer)
    line, end = state.length, state.capture_sections()
    # Other things run above the line: another turn, and the start of its answer.
    other = some_ids(WINDOW - 4, seed=4, vocabulary=VOCABULARY)
    prefill_to(engine, 0, np.concatenate([prompt, answer, other[line:]]))
    decode_all(engine, 0, answer[:3])

    state.restore_sections(end)
    state.resume_at(line)
    state.release_sections(end)
    logits = prefill_to(engine, 0, conversation)

    assert differences(read(state, logits), uninterrupted) == []
