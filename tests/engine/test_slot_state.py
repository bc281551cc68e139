"""What the torch slots promise beyond the port's contract, which tests/contract holds them to."""

import gc
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from anchorline.adapters.gpu.cache_layers import RowsLayer
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.domain.errors import EngineError, StateError, WrongLine
from anchorline.domain.grid import Span
from anchorline.domain.tokens import TokenIds
from anchorline.ports.engine import DecodeInput
from anchorline.ports.gpu_state import CopyCounts
from contract.readings import (
    Reading,
    decode_all,
    differences,
    exported_rows,
    exported_sections,
    prefill_to,
    read,
    row_buffers,
    section_buffers,
    some_ids,
)
from support.made_up_model import STATES, STATES_OF_LAYERS, MadeUpModel, Output, made_up_layers
from support.made_up_model import VOCABULARY as MADE_UP_VOCABULARY
from support.tiny_models import VOCABULARY, tiny_model

GRID = 16
WINDOW = 4 * GRID
HYBRID, PLAIN = "qwen3_5_text", "llama"


def engine_on(model: nn.Module, slots: int = 1) -> TorchEngine:
    return TorchEngine(model, window=WINDOW, grid=GRID, slots=slots)


def ids(count: int, seed: int = 1) -> TokenIds:
    return some_ids(count, seed=seed, vocabulary=VOCABULARY)


def raise_once(module: nn.Module, error: BaseException) -> None:
    """The module's next forward raises after its work is done."""

    def fail(_module: nn.Module, _inputs: tuple[Tensor, ...], _output: object) -> None:
        hook.remove()
        raise error

    hook = module.register_forward_hook(fail)


def live_tensor_bytes() -> int:
    """Bytes of all storages that Python holds."""
    gc.collect()
    # By `type`: some library objects answer `isinstance` with a deprecation.
    tensors = [
        cast("Tensor", thing)
        for thing in cast("list[object]", gc.get_objects())
        if issubclass(type(thing), Tensor)
    ]
    # Weights that are packed for a library show no storage.
    plain = [tensor for tensor in tensors if tensor.layout is torch.strided]
    storages = [tensor.untyped_storage() for tensor in plain]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def test_captures_and_forwards_allocate_nothing_in_a_steady_state() -> None:
    engine = engine_on(tiny_model(HYBRID))
    state = engine.slots[0]

    def turn() -> None:
        state.resume_at(0)
        prefill_to(engine, 0, ids(2 * GRID))
        handles = [state.capture_sections() for _ in range(3)]
        blocks = [state.capture_rows(Span(line, line + GRID)) for line in (0, GRID)]
        engine.decode([DecodeInput(0, 1)])
        state.restore_rows(blocks[0])
        state.swap_rows(blocks[1])
        state.restore_sections(handles[1])
        state.resume_at(2 * GRID)
        for handle in handles:
            state.release_sections(handle)
        for block in blocks:
            engine.copies.release_rows(block)

    turn()
    before, counts = live_tensor_bytes(), engine.copies.counts()
    for _ in range(5):
        turn()

    assert live_tensor_bytes() == before
    assert engine.copies.counts() == counts
    assert (counts.sections, counts.rows) == (0, 0)
    assert counts.free_bytes >= 3 * state.layout.section_bytes + 2 * GRID * state.layout.row_bytes


def test_a_copy_is_never_memory_that_a_forward_writes() -> None:
    engine = engine_on(tiny_model(HYBRID))
    state = engine.slots[0]
    prefill_to(engine, 0, ids(GRID))
    kept = exported_sections(state)
    anchor = state.capture_sections()
    state.restore_sections(anchor)
    state.resume_at(GRID)

    # Were the copy lent instead of copied into place, these would write through it.
    prefill_to(engine, 0, ids(2 * GRID, seed=2))
    engine.decode([DecodeInput(0, 1)])

    state.restore_sections(anchor)
    again = exported_sections(state)
    assert {name: data.tobytes() for name, data in again.items()} == {
        name: data.tobytes() for name, data in kept.items()
    }


def test_no_forward_runs_between_a_restore_and_its_resume() -> None:
    engine = engine_on(tiny_model(HYBRID))
    state = engine.slots[0]
    prefill_to(engine, 0, ids(GRID))
    anchor = state.capture_sections()
    prefill_to(engine, 0, ids(2 * GRID))
    state.restore_sections(anchor)

    with pytest.raises(WrongLine, match="of line 16"):
        engine.decode([DecodeInput(0, 1)])
    with pytest.raises(WrongLine, match="of line 16"):
        engine.prefill(0, ids(1))

    state.resume_at(GRID)
    engine.decode([DecodeInput(0, 1)])


def test_copies_of_a_model_without_sections_are_empty_and_still_carry_their_line() -> None:
    engine = engine_on(tiny_model(PLAIN))
    state = engine.slots[0]
    prefill_to(engine, 0, ids(GRID))
    anchor = state.capture_sections()
    prefill_to(engine, 0, ids(2 * GRID))

    assert engine.copies.counts() == CopyCounts(0, 0, 1, 0, 0)
    state.restore_sections(anchor)
    with pytest.raises(WrongLine):
        state.resume_at(2 * GRID)
    state.resume_at(GRID)
    assert state.length == GRID


def test_sections_can_be_cut_back_to_the_line_that_was_restored() -> None:
    engine = engine_on(tiny_model(HYBRID))
    state = engine.slots[0]
    prefill_to(engine, 0, ids(GRID))
    anchor = state.capture_sections()
    prefill_to(engine, 0, ids(2 * GRID))

    state.restore_sections(anchor)

    assert not state.trim(GRID + 1)
    assert state.trim(GRID)
    assert state.length == GRID


def test_a_state_cannot_be_cut_back_to_more_than_it_holds() -> None:
    engine = engine_on(tiny_model(PLAIN))
    prefill_to(engine, 0, ids(GRID))

    with pytest.raises(StateError, match="16 tokens cannot be cut back to 17"):
        engine.slots[0].trim(GRID + 1)


@pytest.mark.parametrize("model_type", [HYBRID, PLAIN])
def test_after_a_failed_forward_nothing_but_line_0_can_be_used(model_type: str) -> None:
    model = tiny_model(model_type)
    engine = engine_on(model)
    state = engine.slots[0]
    prefill_to(engine, 0, ids(GRID))
    anchor = state.capture_sections()
    raise_once(model.get_submodule("model.layers.1"), RuntimeError("out of luck"))

    with pytest.raises(EngineError, match="out of luck") as caught:
        engine.prefill(0, ids(4))

    assert isinstance(caught.value.__cause__, RuntimeError)
    state.restore_sections(anchor)
    for use in (
        lambda: state.resume_at(GRID),
        lambda: state.resume_at(GRID + 4),
        lambda: engine.decode([DecodeInput(0, 1)]),
        state.capture_sections,
        lambda: exported_sections(state),
    ):
        with pytest.raises(WrongLine, match="only line 0"):
            use()
    assert not state.trim(GRID)
    state.resume_at(0)
    prompt = ids(2 * GRID + 3, seed=2)
    other = engine_on(model)
    assert (
        differences(
            read(state, prefill_to(engine, 0, prompt)),
            read(other.slots[0], prefill_to(other, 0, prompt)),
        )
        == []
    )


def test_an_interrupted_forward_leaves_no_state_to_go_on_from() -> None:
    model = tiny_model(HYBRID)
    engine = engine_on(model)
    raise_once(model.get_submodule("model.layers.0"), KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        engine.prefill(0, ids(GRID))

    with pytest.raises(WrongLine, match="only line 0"):
        engine.decode([DecodeInput(0, 1)])


def test_a_failed_step_breaks_every_slot_it_names_and_no_other() -> None:
    model = tiny_model(HYBRID)
    engine = engine_on(model, slots=3)
    for slot in range(3):
        prefill_to(engine, slot, ids(GRID, seed=slot))
    raise_once(model.get_submodule("model.layers.0"), RuntimeError("out of luck"))

    with pytest.raises(EngineError):
        engine.decode([DecodeInput(0, 1), DecodeInput(1, 1)])

    for slot in (0, 1):
        with pytest.raises(WrongLine):
            engine.slots[slot].resume_at(GRID)
    engine.decode([DecodeInput(2, 1)])


def test_a_refused_step_moves_no_slot() -> None:
    engine = engine_on(tiny_model(HYBRID), slots=2)
    prefill_to(engine, 0, ids(GRID))
    prefill_to(engine, 1, ids(WINDOW))

    with pytest.raises(StateError, match="1 tokens do not fit beside 64 in a window of 64"):
        engine.decode([DecodeInput(0, 1), DecodeInput(1, 1)])

    assert [state.length for state in engine.slots] == [GRID, WINDOW]


def test_a_token_that_no_vocabulary_has_is_refused_before_the_device_sees_it() -> None:
    engine = engine_on(tiny_model(HYBRID))

    with pytest.raises(ValueError, match="no token 96 in 96"):
        engine.prefill(0, np.array([1, VOCABULARY], dtype=np.uint32))
    with pytest.raises(ValueError, match="no token 96 in 96"):
        engine.decode([DecodeInput(0, VOCABULARY)])

    assert engine.slots[0].length == 0


def test_logits_are_the_callers_own_although_a_model_returns_one_buffer_again_and_again() -> None:
    class ReusesItsOutput(MadeUpModel):
        def __init__(self) -> None:
            super().__init__()
            self.buffer = torch.zeros((1, GRID, MADE_UP_VOCABULARY))

        def forward(self, *args: Any, **kwargs: Any) -> Output:  # noqa: ANN401
            logits = super().forward(*args, **kwargs).logits
            return Output(self.buffer[:, : logits.shape[1]].copy_(logits))

    engine = TorchEngine(ReusesItsOutput(), window=WINDOW, grid=GRID, layers=made_up_layers)
    first = engine.prefill(0, np.array([1], dtype=np.uint32))
    kept = first.copy()

    engine.decode([DecodeInput(0, 4)])

    assert np.array_equal(first, kept)


def test_a_failed_import_leaves_sections_of_no_line() -> None:
    engine = engine_on(tiny_model(HYBRID), slots=2)
    prefill_to(engine, 0, ids(GRID))
    sections = exported_sections(engine.slots[0])
    prefill_to(engine, 1, ids(GRID, seed=2))
    target = engine.slots[1]
    last = list(sections)[-1]

    with pytest.raises(StateError, match="is not 1024 bytes"):
        target.import_sections(GRID, {**sections, last: sections[last][:-1]})

    for line in (GRID, GRID + 1):
        with pytest.raises(WrongLine):
            target.resume_at(line)
    target.import_sections(GRID, sections)
    target.resume_at(GRID)


@pytest.mark.parametrize("span", [Span(WINDOW, WINDOW + 1), Span(0, WINDOW + 1)])
def test_rows_beyond_the_window_do_not_exist(span: Span) -> None:
    state = engine_on(tiny_model(PLAIN)).slots[0]

    with pytest.raises(StateError, match="and no"):
        state.export_rows(span, row_buffers(state.layout, span))
    with pytest.raises(StateError, match="and no"):
        state.import_rows(span, row_buffers(state.layout, span))


def test_read_only_bytes_can_be_imported() -> None:
    engine = engine_on(tiny_model(HYBRID), slots=2)
    prefill_to(engine, 0, ids(GRID))
    source, target = engine.slots
    rows, sections = exported_rows(source, Span(0, GRID)), exported_sections(source)
    for data in (*rows.values(), *sections.values()):
        data.flags.writeable = False

    target.import_rows(Span(0, GRID), rows)
    target.import_sections(GRID, sections)
    target.resume_at(GRID)

    assert differences(read(target), read(source)) == []


def test_a_span_of_rows_is_one_block_per_view() -> None:
    engine = engine_on(tiny_model(HYBRID))
    prefill_to(engine, 0, ids(GRID))

    # Rows of 2 heads of 8 numbers: token-major means that row 3 starts 3 rows after row 0.
    view = engine.profile.layout.views[0]
    whole = exported_rows(engine.slots[0], Span(0, GRID))[view.name]
    third = exported_rows(engine.slots[0], Span(3, 4))[view.name]
    assert view.row_shape == (2, 8)
    assert whole[3 * view.row_bytes : 4 * view.row_bytes].tobytes() == third.tobytes()


def test_fresh_slots_hold_zeros_only_although_forwards_have_warmed_them_up() -> None:
    for state in engine_on(tiny_model(HYBRID), slots=2).slots:
        parts: Mapping[str, Any] = {
            **exported_rows(state, Span(0, WINDOW)),
            **exported_sections(state),
        }

        assert not any(data.any() for data in parts.values())


def test_a_layout_of_any_dtypes_and_shapes_is_kept() -> None:
    engine = TorchEngine(MadeUpModel(), window=WINDOW, grid=GRID, layers=made_up_layers)
    layout = engine.profile.layout

    assert [section.name for section in layout.sections] == [
        f"layer{layer}.state{state}"
        for layer, states in enumerate(STATES_OF_LAYERS)
        for state in range(states)
    ]
    assert {(section.dtype, section.shape) for section in layout.sections} == {
        (str(dtype).removeprefix("torch."), shape) for dtype, shape in STATES
    }
    assert [view.row_shape for view in layout.views] == [(3, 5), (7,), (), (3, 5)]
    buffers = section_buffers(layout)
    engine.slots[0].export_sections(buffers)
    assert sum(len(data) for data in buffers.values()) == layout.section_bytes


def test_the_profile_says_what_a_chunk_needs_and_how_fast_it_is() -> None:
    profile = engine_on(tiny_model(HYBRID)).profile

    assert profile.prefill_tokens_per_s > 0
    assert 0 < profile.workspace_floor_bytes < profile.workspace_bytes_max
    assert profile.workspace_row_bytes > 0
    assert profile.vocabulary == VOCABULARY
    assert not profile.row_invariant


@pytest.mark.parametrize("model_type", [HYBRID, PLAIN, "gemma3_text", "zamba2"])
def test_the_window_decides_no_bits(model_type: str) -> None:
    """So it is no part of the fingerprint: a state goes on in a larger window."""
    model = tiny_model(model_type)
    small, large = (TorchEngine(model, window=window, grid=GRID) for window in (WINDOW, 500))
    readings: list[Reading] = []
    for engine in (small, large):
        prefill_to(engine, 0, ids(2 * GRID + 3))
        readings.append(read(engine.slots[0], decode_all(engine, 0, ids(3, seed=2))))

    assert differences(*readings) == []


def test_a_sliding_layer_keeps_every_row_and_shows_the_window_only() -> None:
    layer = RowsLayer(WINDOW, sliding_window=5)
    rows = torch.arange(12.0).reshape(1, 1, 12, 1)
    layer.update(rows[:, :, :8], -rows[:, :, :8])

    assert layer.get_mask_sizes(4) == (8, 4)
    keys, values = layer.update(rows[:, :, 8:], -rows[:, :, 8:])

    assert torch.equal(keys.flatten(), torch.arange(4.0, 12.0))
    assert torch.equal(values.flatten(), -torch.arange(4.0, 12.0))
    buffer = layer.row_buffers()[0]
    assert buffer.signature == "kv:sliding"
    assert torch.equal(buffer.tensor[:12].flatten(), torch.arange(12.0))


@pytest.mark.gpu
def test_a_cuda_slot_resumes_bit_for_bit() -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    engine = engine_on(tiny_model(HYBRID).cuda(), slots=2)
    state, other = engine.slots
    prompt = ids(2 * GRID + 3)
    prefill_to(engine, 0, prompt, GRID)
    anchor = state.capture_sections()
    prefill_to(engine, 0, np.concatenate([prompt[:GRID], ids(GRID, seed=2)]))

    state.restore_sections(anchor)
    state.resume_at(GRID)
    resumed = read(state, prefill_to(engine, 0, prompt))

    assert differences(resumed, read(other, prefill_to(engine, 1, prompt))) == []
