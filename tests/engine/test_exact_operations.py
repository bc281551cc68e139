"""The parts of exact arithmetic: a row's bits are its own, and the function is the usual one."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from anchorline.adapters.gpu.exact import activations, linear
from anchorline.adapters.gpu.exact.attention import COUNTS, QueryCounts, attend, causal_mask
from anchorline.adapters.gpu.exact.convolution import causal_conv1d, causal_conv1d_update
from anchorline.adapters.gpu.exact.delta_rule import gated_delta_rule
from anchorline.adapters.gpu.exact.linear import Linears
from anchorline.adapters.gpu.exact.mamba2 import state_updates_of
from anchorline.adapters.gpu.exact.row_counts import Block, Kernel, RowCounts, cancelling, measured
from anchorline.domain.errors import EngineError

PIECES = (1, 2, 3, 16, 37)
TOKENS = sum(PIECES)

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def in_pieces(run: Callable[[int, int], Tensor], axis: int = 0) -> Tensor:
    """What the pieces of a call give, joined."""
    results: list[Tensor] = []
    start = 0
    for piece in PIECES:
        results.append(run(start, start + piece))
        start += piece
    return torch.cat(results, axis)


# --- which numbers of rows agree ----------------------------------------------------------------


def test_the_products_of_cancelling_matrices_are_roundings() -> None:
    rows, columns = cancelling(8, 5, 33, torch.bfloat16)

    exact = rows.double() @ columns.double().T
    rounded = rows.float() @ columns.float().T

    assert not exact.any()
    assert rounded.abs().max() < 1e-3


def test_a_kernel_that_is_alike_everywhere_is_called_with_every_size() -> None:
    counts = measured(lambda rows: rows * 2, numbers(256, 8))

    assert counts.blocks(1) == [Block(0, 1, 1)]
    assert counts.blocks(37) == [Block(0, 37, 64)]
    assert counts.blocks(512) == [Block(0, 256, 256), Block(256, 512, 256)]


def test_a_kernel_that_parts_below_16_rows_gets_at_least_16() -> None:
    def kernel(rows: Tensor) -> Tensor:
        return rows if len(rows) < 16 else rows + 1

    counts = measured(kernel, numbers(256, 8))

    assert counts.blocks(3) == [Block(0, 3, 16)]
    assert counts.blocks(300) == [Block(0, 256, 256), Block(256, 300, 64)]


def test_a_kernel_of_two_ways_is_only_called_one_way() -> None:
    def kernel(rows: Tensor) -> Tensor:
        return rows if len(rows) in {1, 4, 32, 128} else rows + 1

    counts = measured(kernel, numbers(256, 8))

    assert counts == RowCounts((1, 4, 32, 128))
    assert counts.blocks(150) == [Block(0, 128, 128), Block(128, 150, 32)]


def test_a_size_at_which_rows_depend_on_their_place_is_not_used() -> None:
    def kernel(rows: Tensor) -> Tensor:
        shift = torch.arange(len(rows))[:, None] if len(rows) in {8, 256} else 0
        return rows + shift

    assert 8 not in measured(kernel, numbers(256, 8)).sizes


# --- linear -------------------------------------------------------------------------------------


@dtypes
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 48), (256, 4), (576, 96), (1040, 65)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_row_of_a_product_is_the_same_in_any_number_of_rows(
    dtype: torch.dtype, inputs: int, outputs: int, biased: bool
) -> None:
    weight = numbers(outputs, inputs, seed=1, dtype=dtype)
    bias = numbers(outputs, seed=2, dtype=dtype) if biased else None
    rows, _ = cancelling(TOKENS, 1, inputs, dtype)
    linears = Linears()

    whole = linears.product(rows, weight, bias)

    assert torch.equal(in_pieces(lambda a, b: linears.product(rows[a:b], weight, bias)), whole)
    usual = functional.linear(rows, weight, bias)
    assert torch.allclose(
        whole.float(), usual.float(), rtol=1e-2, atol=1e-2 * float(rows.abs().max())
    )


def maker_that_parts_below(size: int, taken: list[int]) -> linear.KernelMaker:
    """Makes kernels that give fewer rows than that other bits."""

    def make(weight: Tensor, bias: Tensor | None) -> Kernel:
        del bias
        taken.append(size)

        def kernel(rows: Tensor) -> Tensor:
            whole = torch.round(rows @ weight.T)  # of matrices that cancel: 0
            return whole if len(rows) >= size else whole + 1

        return kernel

    return make


def only(monkeypatch: pytest.MonkeyPatch, makers: Sequence[linear.KernelMaker]) -> None:
    """Have weights multiplied by nothing else."""

    def made(weight: Tensor) -> Sequence[linear.KernelMaker]:
        del weight
        return makers

    monkeypatch.setattr(linear, "_makers", made)


@pytest.mark.parametrize(
    ("part_below", "taken"), [([4, 1], 1), ([1, 4], 1), ([4, 8], 4), ([8, 2, 1], 1)]
)
def test_of_several_kernels_that_one_is_taken_which_pads_a_token_least(
    monkeypatch: pytest.MonkeyPatch, part_below: list[int], taken: int
) -> None:
    made: list[int] = []
    only(monkeypatch, [maker_that_parts_below(size, made) for size in part_below])

    Linears().product(numbers(3, 32), numbers(8, 32, seed=1))

    assert made[-1] == taken


def test_a_kernel_that_does_not_repeat_itself_is_the_last_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    calls = itertools.count()

    def restless(weight: Tensor, bias: Tensor | None) -> Kernel:
        del bias
        made.append(0)
        return lambda rows: torch.round(rows @ weight.T) + next(calls)

    only(monkeypatch, [restless, maker_that_parts_below(4, made)])
    Linears().product(numbers(3, 32), numbers(8, 32, seed=1))

    assert made[-1] == 4


def test_of_kernels_that_pad_alike_the_first_is_taken_and_no_other_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first: list[int] = []
    second: list[int] = []
    only(monkeypatch, [maker_that_parts_below(1, first), maker_that_parts_below(1, second)])

    Linears().product(numbers(3, 32), numbers(8, 32, seed=1))

    assert (len(first), len(second)) == (2, 0)


def test_a_view_of_a_parameter_is_a_weight_as_well() -> None:
    experts = numbers(3, 8, 32)
    rows = numbers(5, 32, seed=1)
    linears = Linears()

    first, second = (linears.product(rows, experts[index]) for index in (0, 1))

    assert torch.allclose(first, functional.linear(rows, experts[0]), atol=1e-5)
    assert torch.allclose(second, functional.linear(rows, experts[1]), atol=1e-5)


# --- activations --------------------------------------------------------------------------------


ACTIVATIONS: list[tuple[Callable[..., Tensor], Callable[..., Tensor]]] = [
    (activations.sigmoid, torch.sigmoid),
    (activations.silu, functional.silu),
    (activations.softplus, functional.softplus),
    (activations.gelu, functional.gelu),
    (
        partial(activations.gelu, approximate="tanh"),
        partial(functional.gelu, approximate="tanh"),
    ),
]


@dtypes
@pytest.mark.parametrize(("ours", "usual"), ACTIVATIONS)
def test_an_activation_does_not_see_what_stands_beside(
    ours: Callable[[Tensor], Tensor], usual: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    rows = 8 * numbers(TOKENS, 13, dtype=dtype)

    whole = ours(rows)

    assert torch.equal(in_pieces(lambda a, b: ours(rows[a:b].clone())), whole)
    assert torch.allclose(whole.float(), usual(rows).float(), rtol=2e-2, atol=1e-6)


# --- rules with a state -------------------------------------------------------------------------


@pytest.mark.parametrize("per_channel", [False, True], ids=["Gated DeltaNet", "KDA"])
def test_the_delta_rule_goes_on_from_its_state_in_any_pieces(per_channel: bool) -> None:
    query, key = numbers(1, TOKENS, 2, 8), numbers(1, TOKENS, 2, 8, seed=1)
    value, beta = numbers(1, TOKENS, 4, 6, seed=2), numbers(1, TOKENS, 4, seed=3).sigmoid()
    g = -numbers(1, TOKENS, 4, *([8] if per_channel else []), seed=4).abs()
    state = torch.zeros(1, 4, 8, 6)

    def run(start: int, end: int, from_state: Tensor) -> Tensor:
        parts = (each[:, start:end] for each in (query, key, value, g, beta))
        outputs, after = gated_delta_rule(
            *parts,
            initial_state=from_state,
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        assert after is from_state
        return outputs

    whole_state = torch.zeros_like(state)
    whole = run(0, TOKENS, whole_state)

    assert torch.equal(in_pieces(lambda a, b: run(a, b, state), 1), whole)
    assert torch.equal(state, whole_state)


def test_the_delta_rule_is_its_formula() -> None:
    query, key = numbers(1, 9, 2, 8), numbers(1, 9, 2, 8, seed=1)
    value, beta = numbers(1, 9, 2, 6, seed=2), numbers(1, 9, 2, seed=3).sigmoid()
    g = -numbers(1, 9, 2, seed=4).abs()

    outputs, _ = gated_delta_rule(query, key, value, g, beta, use_qk_l2norm_in_kernel=True)

    unit = functional.normalize(key.double(), dim=-1)
    asked = functional.normalize(query.double(), dim=-1) * 8**-0.5
    state = torch.zeros(2, 8, 6, dtype=torch.float64)
    for token in range(9):
        state = state * g[0, token].double().exp()[:, None, None]
        held = torch.einsum("hk,hkv->hv", unit[0, token], state)
        change = (value[0, token] - held) * beta[0, token, :, None]
        state = state + torch.einsum("hk,hv->hkv", unit[0, token], change)
        wanted = torch.einsum("hk,hkv->hv", asked[0, token], state)
        assert torch.allclose(outputs[0, token].double(), wanted, atol=1e-5)


def test_the_state_update_of_mamba2_is_the_same_for_a_chunk_as_for_steps() -> None:
    class Mixer(nn.Module):
        time_step_limit = (0.3, 1.0)

    rules = state_updates_of(Mixer())
    inputs, dt = numbers(1, 9, 4, 6), numbers(1, 9, 4, seed=1)
    written, read = numbers(1, 9, 2, 8, seed=2), numbers(1, 9, 2, 8, seed=3)
    rates, skip, bias = -numbers(4, seed=4).abs(), numbers(4, seed=5), numbers(4, seed=6)
    more = {"dt_softplus": True, "chunk_size": 4, "D": skip, "dt_bias": bias}

    whole, final = rules["mamba2_chunk_scan"](
        inputs, dt, rates, written, read, return_final_states=True, **more
    )
    state = torch.zeros(1, 4, 6, 8)
    steps = [
        rules["mamba2_selective_state_update"](
            state,
            inputs[:, token],
            dt[:, token, :, None].expand(-1, -1, 6),
            rates[:, None, None].expand(-1, 6, 8),
            written[:, token],
            read[:, token],
            skip[:, None].expand(-1, 6),
            dt_bias=bias[:, None].expand(-1, 6),
            dt_softplus=True,
        )
        for token in range(9)
    ]

    assert torch.equal(torch.stack(steps, 1), whole)
    assert torch.equal(state, final)


@dtypes
def test_a_convolution_goes_on_from_its_state_in_any_pieces(dtype: torch.dtype) -> None:
    hidden, weight = numbers(1, 12, TOKENS, dtype=dtype), numbers(12, 4, seed=1, dtype=dtype)
    bias = numbers(12, seed=2, dtype=dtype)
    state = torch.zeros(1, 12, 4, dtype=dtype)

    def run(start: int, end: int) -> Tensor:
        return causal_conv1d_update(hidden[..., start:end], state, weight, bias, "silu")

    whole = causal_conv1d(hidden, weight, bias, "silu")

    assert torch.equal(in_pieces(run, 2), whole)
    usual = functional.conv1d(hidden, weight[:, None], bias, padding=3, groups=12)[..., :TOKENS]
    assert torch.allclose(whole.float(), functional.silu(usual).float(), rtol=2e-2, atol=2e-2)


# --- attention ----------------------------------------------------------------------------------


@dtypes
@pytest.mark.parametrize(("dim", "value_dim"), [(8, 8), (64, 64), (16, 8)])
def test_a_query_is_answered_the_same_with_any_others_and_any_later_rows(
    dtype: torch.dtype, dim: int, value_dim: int
) -> None:
    module = nn.Module()
    setattr(module, COUNTS, QueryCounts())
    first = 500
    keys = numbers(1, 1024, 2, dim, seed=1, dtype=dtype).transpose(1, 2)
    values = numbers(1, 1024, 2, value_dim, seed=2, dtype=dtype).transpose(1, 2)
    queries = numbers(1, 6, TOKENS, dim, dtype=dtype)

    def run(start: int, end: int) -> Tensor:
        blocks = -(-(first + end) // 512) * 512
        mask = causal_mask(1, end - start, blocks, q_offset=first + start, dtype=dtype)
        rows = (keys[:, :, :blocks], values[:, :, :blocks])
        return attend(module, queries[:, :, start:end], *rows, mask, dim**-0.5)[0]

    whole = run(0, TOKENS)

    assert torch.equal(in_pieces(run, 1), whole)
    seen = torch.arange(1024) <= first + torch.arange(TOKENS)[:, None]
    groups = [each.repeat_interleave(3, 1).float() for each in (keys, values)]
    usual = functional.scaled_dot_product_attention(queries.float(), *groups, attn_mask=seen)
    assert torch.allclose(whole.float(), usual.transpose(1, 2), rtol=2e-2, atol=2e-2)


def test_attention_of_another_kind_is_refused() -> None:
    rows = numbers(1, 1, 512, 8)

    with pytest.raises(EngineError, match="s_aux"):
        attend(nn.Module(), rows, rows, rows, causal_mask(1, 512, 512), s_aux=numbers(1))
