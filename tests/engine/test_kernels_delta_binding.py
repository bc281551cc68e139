"""Models bound to the delta rule by tiles: what the open tile keeps is part of a layer's state.

On a CPU, with the rule as torch computes it; on a device the same binding calls the kernels.
"""

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from anchorline.adapters.gpu.cache_layers import layers_of
from anchorline.adapters.gpu.exact import binding
from anchorline.adapters.gpu.exact.arithmetic import READING
from anchorline.adapters.gpu.exact.binding import Binding
from anchorline.adapters.gpu.exact.delta_rule import DeltaRule
from anchorline.adapters.gpu.exact.proof import proof_ids, prove
from anchorline.adapters.gpu.exact.tile_rule import forward_tiles, tiled_rule
from anchorline.adapters.gpu.kernels.delta_tiles import TILE, TileShape
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.domain.grid import Span
from contract.readings import (
    decode_all,
    differences,
    exported_sections,
    move_rows,
    read,
    some_ids,
)
from support.tiny_models import VOCABULARY, tiny_model

WINDOW = 96
LENGTH = 2 * TILE + 9

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
BY_TILES = tiled_rule(forward_tiles)


def bound(
    architecture: str = "qwen3_5_text",
    dtype: torch.dtype = torch.float32,
    rule: DeltaRule = BY_TILES,
) -> nn.Module:
    model = tiny_model(architecture, dtype)
    Binding(model, delta_rule=rule)
    return model


def engine_of(model: nn.Module, slots: int = 1) -> TorchEngine:
    layers = layers_of(cast("Any", model).config, READING)
    return TorchEngine(
        model, window=WINDOW, grid=WINDOW, slots=slots, layers=layers, row_invariant=True
    )


@dtypes
@pytest.mark.parametrize(
    "architecture",
    ["qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "olmo_hybrid", "lara_mini", "kimi_linear"],
)
def test_the_proof_passes_for_every_model_that_has_the_rule(
    architecture: str, dtype: torch.dtype
) -> None:
    model = tiny_model(architecture, dtype)
    usual = TorchEngine(model, window=WINDOW, grid=WINDOW).score(0, proof_ids(VOCABULARY, 64))
    Binding(model, delta_rule=BY_TILES)

    stock = usual if dtype is torch.float32 else None
    layers = layers_of(cast("Any", model).config, READING)
    assert prove(model, layers, window=WINDOW, stock=stock) is None


def test_the_proof_finds_a_tile_that_sees_how_many_tokens_came() -> None:
    def seeing(*arguments: Tensor, normalised: bool) -> Tensor:
        outputs = forward_tiles(*arguments, normalised=normalised)
        return outputs if len(outputs) > 1 else outputs * (1 + 2**-20)

    model = bound(rule=tiled_rule(seeing))

    found = prove(model, layers_of(cast("Any", model).config, READING), window=WINDOW)

    assert found is not None
    assert "linear_attn" in found


def test_the_open_tile_is_a_part_of_the_layers_section() -> None:
    model = bound()
    config = cast("Any", model).config
    heads = config.linear_num_value_heads
    size = TileShape(config.linear_key_head_dim, config.linear_value_head_dim).size

    sections = engine_of(model).profile.layout.sections

    shapes = {each.name: each.shape for each in sections if "recurrent" in each.name}
    assert shapes == dict.fromkeys(("layer0.recurrent0", "layer2.recurrent0"), (heads, size))


@dtypes
@pytest.mark.parametrize("line", [2, TILE - 1, TILE, TILE + 1, 2 * TILE + 5])
def test_an_anchor_at_any_line_resumes_bitwise(line: int, dtype: torch.dtype) -> None:
    engine = engine_of(bound(dtype=dtype), slots=2)
    ids = some_ids(LENGTH, seed=1, vocabulary=VOCABULARY)
    first, second = engine.slots
    whole = read(second, engine.prefill(1, ids))
    engine.prefill(0, ids[:1])
    decode_all(engine, 0, ids[1:line])
    anchor, sections = first.capture_sections(), exported_sections(first)
    decode_all(engine, 0, some_ids(TILE + 3, seed=2, vocabulary=VOCABULARY))

    first.restore_sections(anchor)
    first.resume_at(line)
    assert all((exported_sections(first)[name] == data).all() for name, data in sections.items())
    assert differences(read(first, engine.prefill(0, ids[line:])), whole) == []

    # And through bytes, into a slot in which something else stood.
    second.resume_at(0)
    engine.prefill(1, some_ids(LENGTH, seed=3, vocabulary=VOCABULARY))
    move_rows(first, second, Span(0, line))
    second.import_sections(line, sections)
    second.resume_at(line)
    assert differences(read(second, decode_all(engine, 1, ids[line:])), whole) == []


def test_what_tiles_wrote_is_of_another_fingerprint_than_what_single_tokens_wrote() -> None:
    by_tokens = tiny_model("qwen3_5_text")
    Binding(by_tokens)

    one, other = (engine_of(model).profile.facts for model in (bound(), by_tokens))

    assert {name for name in one if one[name] != other[name]} == {"layout"}


def test_a_device_with_kernels_is_bound_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(*arguments: Tensor, normalised: bool) -> Tensor:
        calls.append(len(arguments[0]))
        return forward_tiles(*arguments, normalised=normalised)

    def on_device(_: torch.device) -> DeltaRule:
        return tiled_rule(counted)

    monkeypatch.setattr(binding, "delta_rule_for", on_device)
    model = tiny_model("qwen3_5_text")
    Binding(model)

    engine_of(model).prefill(0, some_ids(5, seed=1, vocabulary=VOCABULARY))

    assert 5 in calls
