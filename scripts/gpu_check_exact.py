"""The part of scripts/gpu-check about row-invariant arithmetic: what this device makes of it.

Told and not judged, but for the results of the kernels: where rows depend on their number, models
are served on the grid.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from transformers.models.qwen3_5 import modeling_qwen3_5

from anchorline.adapters.gpu.exact.arithmetic import choose_arithmetic
from anchorline.adapters.gpu.exact.delta_rule import DeltaRule, gated_delta_rule
from anchorline.adapters.gpu.exact.verdict import VerdictStore
from anchorline.adapters.gpu.kernels.delta_tiles import TileShape
from support.tiny_models import tiny_model

Seconds = Callable[[torch.device, Callable[[], object]], float]
Given = Sequence[torch.Tensor]
Found = tuple[str, bool | None, str]
"""The check, whether it passed (None where nothing is judged), and the figure."""

WINDOW = 128
PIECES = (1, 3, 16, 44)


def model_invariance(
    architecture: str, dtype: torch.dtype, device: torch.device
) -> Iterator[Found]:
    """Whether exact arithmetic can be proved of a model here, and what it costs."""
    model: Any = tiny_model(architecture, dtype).to(device)
    verdicts = VerdictStore(None, {})
    found = choose_arithmetic(model, model.config, "exact", window=WINDOW, verdicts=verdicts)
    name = f"{architecture} {_name(dtype)}: row-invariant"
    yield name, None, f"{'yes' if found.exact else 'no'}; {found.report}"


def kernel_invariance(device: torch.device, seconds: Seconds, *, large: bool) -> Iterator[Found]:
    """Triton's row-invariant kernels against torch's operations: invariance, and cost."""
    try:
        kernels = importlib.import_module("anchorline.adapters.gpu.kernels.exact_kernels")
    except ImportError as error:
        yield "Triton's exact kernels", None, f"skipped: {error}"
        return
    if device.type == "cpu" and not kernels.INTERPRETED:
        yield "Triton's exact kernels", None, "skipped: the interpreter is off"
        return
    count, inputs, outputs, first = (64, 4096, 4096, 4096) if large else (64, 96, 80, 72)
    for dtype in (torch.float32, torch.bfloat16):
        rows, weight = (_noise((n, inputs), dtype, device) for n in (count, outputs))
        yield from _kernel_rows(
            f"exact product {_name(dtype)}",
            lambda a, b, r=rows, w=weight: kernels.product(r[a:b], w),
            rows.double() @ weight.double().T,
            seconds(device, lambda r=rows, w=weight: kernels.product(r[:1], w))
            / seconds(device, lambda r=rows, w=weight: r[:1] @ w.T),
        )
        query = _noise((count, 4, 64), dtype, device)
        key, value = (_noise((first + count, 2, 64), dtype, device) for _ in range(2))
        yield from _kernel_rows(
            f"exact attention {_name(dtype)}",
            lambda a, b, q=query, k=key, v=value: kernels.attention(q[a:b], k, v, first + a, 0.125),
            _attention(query, key, value, first),
            seconds(
                device, lambda q=query, k=key, v=value: kernels.attention(q[:1], k, v, first, 0.125)
            )
            / seconds(device, lambda q=query, k=key, v=value: _attention(q[:1], k, v, first)),
        )
    yield from _delta_rule_rows(device, seconds, large=large)


def _delta_rule_rows(device: torch.device, seconds: Seconds, *, large: bool) -> Iterator[Found]:
    """The aligned-tile delta rule; its state is compared with the outputs."""
    kernels = importlib.import_module("anchorline.adapters.gpu.kernels.delta_kernels")
    stock: Any = modeling_qwen3_5
    count, heads, dim = sum(PIECES), *((32, 128) if large else (2, 16))
    shape = TileShape(dim, dim)
    for dtype in (torch.float32, torch.bfloat16):
        query, key = (_noise((count, heads // 2, dim), dtype, device, seed=n) for n in (1, 2))
        value = _noise((count, heads, dim), dtype, device, seed=3)
        g = -_noise((count, heads), torch.float32, device, seed=4).exp()
        beta = _noise((count, heads), dtype, device, seed=5).sigmoid()
        given = (query, key, value, g, beta)

        def run(start: int, end: int, packed: torch.Tensor, given: Given = given) -> torch.Tensor:
            rows = [each[start:end] for each in given]
            return kernels.forward_tiles(*rows, packed, normalised=True)

        def own(
            rule: DeltaRule, end: int, given: Given = given, **more: torch.Tensor
        ) -> torch.Tensor:
            # Models of some versions repeat key heads themselves.
            query, key = (each[None, :end].repeat_interleave(2, 2) for each in given[:2])
            value, g, beta = (each[None, :end] for each in given[2:])
            asked = {"use_qk_l2norm_in_kernel": True, "output_final_state": True, **more}
            return rule(query, key, value, g=g, beta=beta, **asked)[0][0]

        packed = shape.empty(heads, device)
        whole, ends = run(0, count, packed), shape.empty(heads, device)
        wide = tuple(each.float() for each in given)
        wanted = own(stock.torch_recurrent_gated_delta_rule, count, given=wide)
        name = f"exact delta rule {_name(dtype)}"
        yield _right(name, whole, wanted.double())
        start, pieces = 0, list[torch.Tensor]()
        for piece in PIECES:
            pieces.append(run(start, start + piece, ends))
            start += piece
        same = torch.equal(torch.cat(pieces), whole) and torch.equal(ends, packed)
        state = torch.zeros((1, heads, dim, dim), device=device)
        step_s = seconds(device, lambda s=state, f=own: f(gated_delta_rule, 1, initial_state=s))
        stock_s = seconds(
            device,
            lambda s=state, f=own: f(stock.torch_recurrent_gated_delta_rule, 1, initial_state=s),
        )
        chunk_s = seconds(device, lambda f=own: f(stock.torch_chunk_gated_delta_rule, count))
        one_s = seconds(device, lambda f=run, p=ends: f(0, 1, p))
        all_s = seconds(device, lambda f=run, p=ends: f(0, count, p))
        figure = (
            f"{'yes' if same else 'no'}; for one row {one_s / stock_s:.2f} of the time of torch's "
            f"own and {one_s / step_s:.2f} of the rule by tokens, for {count} {all_s / chunk_s:.2f}"
        )
        yield f"{name}: row-invariant", None, figure


def _kernel_rows(
    name: str, run: Callable[[int, int], torch.Tensor], wanted: torch.Tensor, cost: float
) -> Iterator[Found]:
    whole = run(0, sum(PIECES))
    yield _right(name, whole, wanted)
    start, pieces = 0, list[torch.Tensor]()
    for piece in PIECES:
        pieces.append(run(start, start + piece))
        start += piece
    same = torch.equal(torch.cat(pieces), whole)
    figure = f"{'yes' if same else 'no'}; for one row {cost:.2f} of the time of torch's own"
    yield f"{name}: row-invariant", None, figure


def _right(name: str, found: torch.Tensor, wanted: torch.Tensor) -> Found:
    """Whether a kernel gives what it should."""
    error = float((found.double() - wanted).abs().max() / wanted.std())
    limit = 1e-4 if found.dtype is torch.float32 else 0.05
    return f"{name}: right", error < limit, f"off by {error:.1e} of the spread"


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, first: int
) -> torch.Tensor:
    """By torch, in the dtype given; the reference of `kernel_invariance` is compared in float64."""
    count, groups = query.shape[0], query.shape[1] // key.shape[1]
    heads = [each.transpose(0, 1).repeat_interleave(groups, 0) for each in (key, value)]
    places = torch.arange(len(key), device=key.device)
    seen = places <= first + torch.arange(count, device=key.device)[:, None]
    result = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1), *heads, attn_mask=seen, scale=0.125
    )
    return result.transpose(0, 1).double()


def _noise(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, seed: int = 0
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + seed)
    return torch.randn(shape, generator=generator).to(dtype).to(device)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
