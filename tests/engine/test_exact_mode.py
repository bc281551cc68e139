"""Exact mode, bit for bit: decode equals prefill, in whatever pieces tokens were forwarded.

By default with few tokens, and across the line where attention reads a further block of keys for
one architecture of each kind. With ANCHORLINE_EXHAUSTIVE set: every architecture, 1 and 2 threads,
prompts across the lines 512 and 1,024, 200 tokens of decode.
"""

import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig

import anchorline
from anchorline.adapters.gpu.cache_layers import layers_of
from anchorline.adapters.gpu.exact import arithmetic
from anchorline.adapters.gpu.exact.arithmetic import (
    DECODE_COST_MAX,
    READING,
    ArithChoice,
    Arithmetic,
    choose_arithmetic,
)
from anchorline.adapters.gpu.exact.attention import NAME
from anchorline.adapters.gpu.exact.binding import Binding
from anchorline.adapters.gpu.exact.proof import proof_ids, prove
from anchorline.adapters.gpu.exact.verdict import Verdict, VerdictStore
from anchorline.adapters.gpu.loading import DtypeChoice, load_engine
from anchorline.adapters.gpu.model_store import ModelStore
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.container import proved_arithmetic
from anchorline.domain.errors import ModelNotFound
from anchorline.domain.tokens import TokenIds
from anchorline.settings import ServeSettings
from contract.readings import Reading, decode_all, differences, read, some_ids
from support.tiny_models import VOCABULARY, tiny_model

EXHAUSTIVE = bool(os.environ.get("ANCHORLINE_EXHAUSTIVE"))

EXACT = (
    "llama",
    "qwen3",
    "gemma3_text",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "olmo_hybrid",
    "lara_mini",
    "kimi_linear",
    "bailing_hybrid",
    "granitemoehybrid",
    "bamba",
    "nemotron_h",
    "mamba2",
    "falcon_h1",
    "zamba2",
    "lfm2",
    "lfm2_moe",
    "lfm3",
)
"""Architectures that pass."""

OF_EACH_KIND = ("gemma3_text", "qwen3_5_text", "bamba")

PIECES = (1, 16, 37, 64, 256, 1 << 20)
SHORT = 45
SHORT_DECODED = 12
"""Tokens in all, and how many of them the reference run decodes."""

matrix = pytest.mark.parametrize(
    ("architecture", "dtype"),
    [(name, dtype) for name in EXACT for dtype in (torch.float32, torch.bfloat16)],
)
exhaustive = pytest.mark.skipif(not EXHAUSTIVE, reason="runs with ANCHORLINE_EXHAUSTIVE=1")


def bound(architecture: str, dtype: torch.dtype) -> nn.Module:
    # What a model of so few tokens learned about long texts does not matter here.
    long = {} if architecture == "mamba2" else {"max_position_embeddings": 2048}
    model = tiny_model(architecture, dtype, **long)
    Binding(model)
    return model


def exact_engine(model: nn.Module, window: int, *, slots: int = 1) -> TorchEngine:
    """The grid is as long as the window, so that pieces may end anywhere."""
    layers = layers_of(config_of(model), READING)
    return TorchEngine(
        model, window=window, grid=window, slots=slots, layers=layers, row_invariant=True
    )


def config_of(model: nn.Module) -> PreTrainedConfig:
    return cast("PreTrainedConfig", model.config)


def decoded(engine: TorchEngine, ids: TokenIds, prompt: int) -> Reading:
    """Slot 0 after a prompt and the rest token by token."""
    engine.slots[0].resume_at(0)
    engine.prefill(0, ids[:prompt])
    return read(engine.slots[0], decode_all(engine, 0, ids[prompt:]))


def cold(engine: TorchEngine, ids: TokenIds, piece: int) -> Reading:
    """Slot 0 after a cold prefill in pieces of this size."""
    state = engine.slots[0]
    state.resume_at(0)
    logits = None
    for start in range(0, len(ids), piece):
        logits = engine.prefill(0, ids[start : start + piece])
    return read(state, logits)


def departures(engine: TorchEngine, length: int, prompt: int, pieces: Sequence[int]) -> list[str]:
    ids = some_ids(length, seed=1, vocabulary=VOCABULARY)
    reference = decoded(engine, ids, prompt)
    return [
        f"in pieces of {piece}: {part}"
        for piece in pieces
        for part in differences(cold(engine, ids, piece), reference)
    ]


@contextmanager
def threads(count: int) -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@matrix
def test_what_decode_wrote_equals_a_cold_prefill_in_any_pieces(
    architecture: str, dtype: torch.dtype
) -> None:
    engine = exact_engine(bound(architecture, dtype), SHORT)

    assert departures(engine, SHORT, SHORT - SHORT_DECODED, (16, 37, SHORT)) == []


@pytest.mark.parametrize("architecture", OF_EACH_KIND)
def test_it_does_where_attention_reads_a_further_block_of_keys(architecture: str) -> None:
    engine = exact_engine(bound(architecture, torch.float32), 520)

    assert departures(engine, 520, 500, (64, 520)) == []


@exhaustive
@pytest.mark.parametrize("count", [1, 2])
@matrix
def test_the_whole_grid_of_pieces(architecture: str, dtype: torch.dtype, count: int) -> None:
    with threads(count):
        engine = exact_engine(bound(architecture, dtype), 1100)

        assert departures(engine, 600, 400, PIECES) == []
        assert departures(engine, 1100, 900, PIECES) == []


@pytest.mark.parametrize("architecture", ["llama", "qwen3_5_text", "bamba", "qwen3_5_moe_text"])
def test_it_is_the_models_own_function_with_sums_in_another_order(architecture: str) -> None:
    ids = some_ids(SHORT, seed=1, vocabulary=VOCABULARY)
    model = tiny_model(architecture)
    usual = TorchEngine(model, window=SHORT, grid=SHORT).score(0, ids)

    Binding(model)
    ours = exact_engine(model, SHORT).score(0, ids)

    assert abs(ours - usual).max() < 1e-3 * usual.std()


def test_an_anchor_off_the_grid_resumes_bitwise() -> None:
    engine = exact_engine(bound("qwen3_5_text", torch.float32), 64, slots=2)
    ids = some_ids(SHORT, seed=1, vocabulary=VOCABULARY)
    state = engine.slots[0]
    engine.prefill(0, ids[:9])
    decode_all(engine, 0, ids[9:17])
    anchor = state.capture_sections()
    decode_all(engine, 0, some_ids(5, seed=2, vocabulary=VOCABULARY))

    state.restore_sections(anchor)
    state.resume_at(17)
    logits = engine.prefill(0, ids[17:])

    whole = engine.prefill(1, ids)
    assert differences(read(state, logits), read(engine.slots[1], whole)) == []


# --- binding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["qwen3_5_text", "kimi_linear", "zamba2", "lfm2_moe"])
def test_a_binding_is_undone_to_the_bit(architecture: str) -> None:
    ids = some_ids(SHORT, seed=1, vocabulary=VOCABULARY)
    model = tiny_model(architecture)
    before = TorchEngine(model, window=SHORT, grid=SHORT)
    usual, facts = before.score(0, ids), before.profile.facts

    Binding(model).undo()

    after = TorchEngine(model, window=SHORT, grid=SHORT)
    assert after.score(0, ids).tobytes() == usual.tobytes()
    assert after.profile.facts == facts


def test_a_binding_changes_no_other_model() -> None:
    ids = some_ids(SHORT, seed=1, vocabulary=VOCABULARY)
    other = TorchEngine(tiny_model("qwen3_5_text"), window=SHORT, grid=SHORT)
    before = other.score(0, ids)
    torch_sigmoid, torch_linear = torch.sigmoid, functional.linear

    bound("qwen3_5_text", torch.float32)

    other.slots[0].resume_at(0)
    assert other.score(0, ids).tobytes() == before.tobytes()
    assert (torch.sigmoid, functional.linear) == (torch_sigmoid, torch_linear)


# --- the proof ----------------------------------------------------------------------------------


def test_the_proof_passes_for_a_bound_model() -> None:
    model = bound("qwen3_5_text", torch.float32)

    assert prove(model, layers_of(config_of(model), READING), window=96) is None


def test_the_proof_names_the_first_module_that_departs() -> None:
    model = bound("llama", torch.float32)
    up = cast("Any", model).model.layers[1].mlp.up_proj
    forward = up.forward

    def parted(rows: Tensor) -> Tensor:
        result: Tensor = forward(rows)
        return result if rows.shape[1] > 1 else result * (1 + 1e-6)

    up.forward = parted

    found = prove(model, layers_of(config_of(model), READING), window=96)

    assert found is not None
    assert found.endswith("the first module that departs is model.layers.1.mlp.up_proj")


def test_a_model_that_computes_another_function_does_not_pass() -> None:
    model = bound("llama", torch.float32)
    layers = layers_of(config_of(model), READING)
    engine = TorchEngine(model, window=96, grid=96, layers=layers)
    stock = engine.score(0, proof_ids(VOCABULARY, 64))

    assert prove(model, layers, window=96, stock=stock) is None
    found = prove(model, layers, window=96, stock=stock + 0.1 * stock.std())
    assert found is not None
    assert "differ from the model's own" in found


# --- the choice ---------------------------------------------------------------------------------

FACTS = {"weights": "these"}


def chosen(choice: ArithChoice, verdicts: VerdictStore, model: nn.Module) -> Arithmetic:
    return choose_arithmetic(model, config_of(model), choice, window=96, verdicts=verdicts)


@pytest.mark.parametrize(
    ("choice", "decode_cost", "exact"),
    [("exact", 9.0, True), ("auto", 1.25, True), ("auto", 1.26, False), ("grid", 1.0, False)],
)
def test_auto_takes_exact_arithmetic_where_it_costs_little(
    tmp_path: Path, choice: ArithChoice, decode_cost: float, exact: bool
) -> None:
    verdicts = VerdictStore(tmp_path, FACTS)
    verdicts.keep(Verdict(None, decode_cost, prefill_cost=1.0, seconds=2.0))
    model = tiny_model("llama")

    found = chosen(choice, verdicts, model)

    assert found.exact is exact
    assert (cast("Any", model).config._attn_implementation == NAME) is exact


def test_a_model_that_departs_keeps_its_own_arithmetic_and_it_is_said_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finds_a_departure(*_: object, **__: object) -> str:
        return "layer 7 departs"

    monkeypatch.setattr(arithmetic, "prove", finds_a_departure)
    model = tiny_model("llama")
    ids = some_ids(9, seed=1, vocabulary=VOCABULARY)
    usual = TorchEngine(model, window=9, grid=9).score(0, ids)

    found = chosen("exact", VerdictStore(tmp_path, FACTS), model)

    assert not found.exact
    assert found.report == "grid: not row-invariant: layer 7 departs"
    assert TorchEngine(model, window=9, grid=9).score(0, ids).tobytes() == usual.tobytes()


def test_a_verdict_is_found_again_for_the_same_facts_only(tmp_path: Path) -> None:
    verdict = Verdict(None, 1.1, 1.0, 2.0)
    VerdictStore(tmp_path / "new", FACTS).keep(verdict)

    assert VerdictStore(tmp_path / "new", FACTS).find() == verdict
    assert VerdictStore(tmp_path / "new", {"weights": "others"}).find() is None
    assert VerdictStore(None, FACTS).find() is None


def test_a_verdict_that_cannot_be_read_is_found_out_again(tmp_path: Path) -> None:
    verdicts = VerdictStore(tmp_path, FACTS)
    verdicts.keep(Verdict(None, 1.1, 1.0, 2.0))
    (file,) = tmp_path.iterdir()
    file.write_text("torn")

    assert verdicts.find() is None


def test_the_grid_is_no_fact_of_exact_arithmetic() -> None:
    model = bound("llama", torch.float32)
    layers = layers_of(config_of(model), READING)
    engines = [
        TorchEngine(model, window=64, grid=grid, layers=layers, row_invariant=True)
        for grid in (16, 32)
    ]

    one, other = (engine.profile.facts for engine in engines)

    assert one == other
    assert one["arith"] == "exact-1"
    assert "grid" not in one


# --- the models at hand -------------------------------------------------------------------------

TOY = Path(anchorline.__file__ or "").parent / "models" / "toy"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_toy_is_served_exactly_in_both_dtypes(tmp_path: Path, dtype: DtypeChoice) -> None:
    engine = load_engine(str(TOY), dtype=dtype, window=600, arith="exact", verdicts=tmp_path)

    assert engine.profile.row_invariant
    assert len(list(tmp_path.iterdir())) == 1


def test_a_model_is_proved_for_the_command_line(tmp_path: Path) -> None:
    settings = ServeSettings(model="toy", dtype="float32", window=96, cache_dir=tmp_path)

    assert proved_arithmetic(settings).startswith("exact: proved row-invariant in ")


def test_auto_decides_by_what_it_measured(tmp_path: Path) -> None:
    engine = load_engine(str(TOY), window=600, arith="auto", verdicts=tmp_path)

    (file,) = tmp_path.iterdir()
    costs_little = json.loads(file.read_text())["decode_cost"] <= DECODE_COST_MAX
    assert engine.profile.row_invariant is costs_little
    assert engine.profile.arithmetic.startswith("exact: " if costs_little else "grid: ")


@exhaustive
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["toy", "smollm2"])
def test_the_whole_grid_of_pieces_with_weights_that_were_learned(
    name: str, dtype: DtypeChoice, count: int
) -> None:
    try:
        source = ModelStore(ServeSettings().models_path).resolve(name).source
    except ModelNotFound as error:
        pytest.skip(str(error))
    with threads(count):
        engine = load_engine(
            source, dtype=dtype, window=1100, grid=1100, threads=count, arith="exact"
        )

        assert engine.profile.row_invariant, engine.profile.arithmetic
        assert departures(engine, 600, 400, PIECES) == []
        assert departures(engine, 1100, 900, PIECES) == []
