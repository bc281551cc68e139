"""The gated delta rule by aligned tiles, by torch and by Triton's interpreter.

Right, and a token's bits are its own: outputs, the state at the tile line, and what the open tile
keeps are the same in whatever pieces tokens come.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import pytest
import torch
from torch import Tensor
from transformers.models.qwen3_5 import modeling_qwen3_5

from anchorline.adapters.gpu.exact import tile_rule
from anchorline.adapters.gpu.exact.delta_rule import gated_delta_rule
from anchorline.adapters.gpu.exact.tile_rule import Tiles, delta_rule_for, tiled_rule
from anchorline.adapters.gpu.kernels.delta_tiles import TILE, TileShape
from anchorline.domain.errors import EngineError

TOKENS: Final = 2 * TILE + 6

_by_tokens: Final = cast("Any", modeling_qwen3_5).torch_recurrent_gated_delta_rule


def interpreted(*arguments: Tensor, normalised: bool) -> Tensor:
    """The kernels; skips where nothing interprets them."""
    triton = pytest.importorskip("triton", reason="Triton is not installed")
    if not triton.knobs.runtime.interpret:
        pytest.skip("TRITON_INTERPRET was not 1 when Triton was imported")
    from anchorline.adapters.gpu.kernels import delta_kernels  # noqa: PLC0415 # only where it is

    return delta_kernels.forward_tiles(*arguments, normalised=normalised)


@dataclass(frozen=True)
class Heads:
    keys: int
    values: int
    key_dim: int
    value_dim: int


ODD = Heads(keys=1, values=1, key_dim=5, value_dim=7)
GROUPED = Heads(keys=1, values=2, key_dim=16, value_dim=40)
"""Values of more than one program's columns."""

ways = pytest.mark.parametrize("tiles", [tile_rule.forward_tiles, interpreted])
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
shapes = pytest.mark.parametrize("heads", [ODD, GROUPED], ids=["odd", "grouped"])


@dataclass(frozen=True)
class Tokens:
    """Arguments of the rule for some tokens, (tokens, heads, dim) and (tokens, heads)."""

    query: Tensor
    key: Tensor
    value: Tensor
    g: Tensor
    beta: Tensor

    def all(self) -> tuple[Tensor, ...]:
        return self.query, self.key, self.value, self.g, self.beta

    def between(self, start: int, end: int) -> "Tokens":
        return Tokens(*(rows[start:end] for rows in self.all()))


def some_tokens(heads: Heads, dtype: torch.dtype = torch.float32, count: int = TOKENS) -> Tokens:
    generator = torch.Generator().manual_seed(1)

    def noise(*shape: int) -> Tensor:
        return torch.randn((count, *shape), generator=generator)

    return Tokens(
        noise(heads.keys, heads.key_dim).to(dtype),
        noise(heads.keys, heads.key_dim).to(dtype),
        noise(heads.values, heads.value_dim).to(dtype),
        -noise(heads.values).exp(),
        noise(heads.values).sigmoid().to(dtype),
    )


def empty(heads: Heads) -> Tensor:
    shape = TileShape(heads.key_dim, heads.value_dim)
    return shape.empty(heads.values, torch.device("cpu"))


def run(
    tiles: Tiles, tokens: Tokens, packed: Tensor, pieces: Sequence[int], *, normalised: bool = True
) -> Tensor:
    """Outputs; the last piece is as long as what is left."""
    outputs: list[Tensor] = []
    start, count = 0, len(tokens.query)
    for piece in (*pieces, count):
        part = tokens.between(start, min(start + piece, count))
        if len(part.query):
            outputs.append(tiles(*part.all(), packed, normalised=normalised))
        start += piece
    return torch.cat(outputs)


def by_tokens(tokens: Tokens, *, normalised: bool = True) -> tuple[Tensor, Tensor]:
    """Outputs and state of transformers' own rule for single tokens."""
    batch = [rows[None].float() for rows in tokens.all()]
    query, key, value, g, beta = batch
    outputs, state = _by_tokens(
        query,
        key,
        value,
        g=g,
        beta=beta,
        output_final_state=True,
        use_qk_l2norm_in_kernel=normalised,
    )
    return outputs[0], state[0]


@ways
@dtypes
@shapes
def test_a_tokens_bits_are_the_same_in_any_pieces(
    heads: Heads, dtype: torch.dtype, tiles: Tiles
) -> None:
    tokens, whole = some_tokens(heads, dtype), empty(heads)
    outputs = run(tiles, tokens, whole, ())

    # The interpreter takes its time with wide heads: pieces across both tile lines, one by one.
    small = [[1] * TOKENS, [7] * 6, [16] * 3, [37], [3, 1, 30, 2]]
    for pieces in small if heads is ODD else [[TILE - 1, 1, 1, 7, 16]]:
        packed = empty(heads)
        assert torch.equal(run(tiles, tokens, packed, pieces), outputs), pieces
        assert torch.equal(packed, whole), pieces


@ways
@dtypes
@shapes
@pytest.mark.parametrize("normalised", [True, False])
def test_the_outputs_are_those_of_the_rule_for_single_tokens(
    heads: Heads, dtype: torch.dtype, tiles: Tiles, normalised: bool
) -> None:
    tokens = some_tokens(heads, dtype)
    if not normalised:
        # Keys longer than 1 make the rule diverge, in any arithmetic.
        tokens = replace(tokens, key=tokens.key / 8)

    outputs = run(tiles, tokens, empty(heads), (5,), normalised=normalised)

    wanted, _ = by_tokens(tokens, normalised=normalised)
    close = 1e-5 if dtype is torch.float32 else 1e-2
    assert outputs.dtype is dtype
    assert torch.allclose(outputs.float(), wanted, rtol=close, atol=close)


@ways
def test_the_state_at_a_tile_line_is_that_of_the_rule_for_single_tokens(tiles: Tiles) -> None:
    tokens, packed = some_tokens(GROUPED), empty(GROUPED)

    run(tiles, tokens, packed, (1, 20))

    parts = TileShape(GROUPED.key_dim, GROUPED.value_dim).parts(packed)
    _, wanted = by_tokens(tokens.between(0, 2 * TILE))
    assert torch.allclose(parts.state, wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(parts.count, torch.full((GROUPED.values,), TOKENS - 2.0 * TILE))


@ways
def test_the_open_tile_keeps_its_tokens_and_nothing_of_earlier_ones(tiles: Tiles) -> None:
    tokens, packed = some_tokens(GROUPED), empty(GROUPED)

    run(tiles, tokens, packed, (TILE - 1, 4))

    parts = TileShape(GROUPED.key_dim, GROUPED.value_dim).parts(packed)
    kept = TOKENS - 2 * TILE
    newest = tokens.between(2 * TILE, TOKENS)
    assert torch.equal(parts.keys[:, :kept], newest.key.repeat_interleave(2, 1).transpose(0, 1))
    assert torch.equal(parts.decays[:, :kept], newest.g.T)
    for part in (parts.keys, parts.decays, parts.corrections):
        assert part[:, :kept].any()
        assert not part[:, kept:].any()


@ways
def test_a_full_tile_leaves_a_state_and_nothing_else(tiles: Tiles) -> None:
    packed = empty(ODD)

    run(tiles, some_tokens(ODD, count=2 * TILE), packed, (3, 20))

    state = packed[:, : ODD.key_dim * ODD.value_dim]
    assert state.any()
    assert not packed[:, state.shape[1] :].any()


@ways
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of numpy, which interprets
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["query", "key", "value", "g", "beta"])
def test_a_token_leaves_no_trace_in_those_before_it(tiles: Tiles, name: str, poison: float) -> None:
    tokens, place = some_tokens(ODD), TILE + 4
    outputs = run(tiles, tokens, empty(ODD), ())
    poisoned = getattr(tokens, name).clone()
    poisoned[place:] = poison

    found = run(tiles, replace(tokens, **{name: poisoned}), empty(ODD), ())

    assert torch.equal(found[:place], outputs[:place])
    assert not torch.equal(found[place:], outputs[place:])


@ways
def test_a_decay_of_everything_forgets_everything(tiles: Tiles) -> None:
    tokens, place = some_tokens(ODD), 5
    g = tokens.g.clone()
    g[place] = float("-inf")

    outputs = run(tiles, replace(tokens, g=g), empty(ODD), ())

    wanted, _ = by_tokens(tokens.between(place, TOKENS))
    assert torch.allclose(outputs[place:], wanted, rtol=1e-5, atol=1e-5)


def test_the_kernels_and_torch_keep_the_same_parts_at_the_same_places() -> None:
    tokens, packed, other = some_tokens(GROUPED), empty(GROUPED), empty(GROUPED)

    outputs = run(tile_rule.forward_tiles, tokens, packed, (20,))

    assert torch.allclose(run(interpreted, tokens, other, (20,)), outputs, rtol=1e-5, atol=1e-5)
    assert torch.allclose(other, packed, rtol=1e-5, atol=1e-5)
    # What one of them left the other goes on from.
    more = run(interpreted, tokens, packed, (7,))
    assert torch.allclose(run(tile_rule.forward_tiles, tokens, other, (7,)), more, atol=1e-5)


# --- as models call it ---------------------------------------------------------------------------


def batch(tokens: Tokens) -> Sequence[Tensor]:
    return [rows[None] for rows in tokens.all()]


def test_as_models_call_it_the_state_is_made_and_then_written_in_place() -> None:
    rule: Callable[..., tuple[Tensor, Tensor | None]] = tiled_rule(tile_rule.forward_tiles)
    tokens = some_tokens(GROUPED)
    asked = {"output_final_state": True, "use_qk_l2norm_in_kernel": True}

    first, state = rule(*batch(tokens.between(0, 9)), **asked)
    second, after = rule(*batch(tokens.between(9, TOKENS)), initial_state=state, **asked)

    assert state is not None
    assert after is state
    whole = empty(GROUPED)
    outputs = run(tile_rule.forward_tiles, tokens, whole, ())
    assert torch.equal(torch.cat([first, second], 1)[0], outputs)
    assert torch.equal(state[0], whole)


def test_a_state_that_nobody_asked_for_is_not_returned() -> None:
    _, state = tiled_rule(tile_rule.forward_tiles)(*batch(some_tokens(ODD)))

    assert state is None


def test_a_cpu_goes_token_by_token() -> None:
    assert delta_rule_for(torch.device("cpu")) is gated_delta_rule


class _Device:
    """What a device's kernels look like to the rule."""

    def __init__(self, tiles: Tiles) -> None:
        self.forward_tiles = tiles

    def of(self, _: torch.device) -> "_Device":
        return self


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nowhere:
        def __init__(self, _: object) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(torch.cuda, "device", Nowhere)


def on_kernels(monkeypatch: pytest.MonkeyPatch, tiles: Tiles) -> tile_rule.DeltaRule:
    monkeypatch.setattr(tile_rule, "delta_kernels", _Device(tiles).of)
    return delta_rule_for(torch.device("cuda"))


@pytest.mark.usefixtures("no_device")
def test_a_device_with_kernels_goes_tile_by_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = on_kernels(monkeypatch, tile_rule.forward_tiles)

    outputs, state = rule(*batch(some_tokens(ODD)), output_final_state=True)

    assert outputs.shape == (1, TOKENS, ODD.values, ODD.value_dim)
    assert state is not None
    assert state.shape[2] == TileShape(ODD.key_dim, ODD.value_dim).size


@pytest.mark.usefixtures("no_device")
def test_a_kernel_that_a_device_does_not_take_is_an_error_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Tensor, normalised: bool) -> Tensor:
        raise ArithmeticError(f"out of registers, normalised: {normalised}")

    rule = on_kernels(monkeypatch, refused)

    with pytest.raises(EngineError, match="out of registers"):
        rule(*batch(some_tokens(ODD)))
