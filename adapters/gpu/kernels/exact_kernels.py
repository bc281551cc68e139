"""Row-invariant products and attention as Triton kernels. Imported only where Triton is.

One shape of tile, a fixed walk over what is summed, no split of it by the size of the call and no
tuning: then a row's bits depend on its own numbers alone. What a device makes of them is asked by
scripts/gpu-check; nothing is served with these kernels yet.
"""

# As in `triton_kernels`: what a kernel computes with is unknown to a type checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownLambdaType=false
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false
# pyright: reportUnnecessaryIsInstance=false, reportIndexIssue=false

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_ROWS: Final = 16
TILE_COLUMNS: Final = 64
TILE_INPUTS: Final = 64

KEYS_A_BLOCK: Final = 64
BLOCKS_A_SPLIT: Final = 8
"""Keys are cut into splits of so many blocks, counted from row 0, whatever the call's size."""

_OPTIONS: Final = {"enable_fp_fusion": False, "num_warps": 4, "num_stages": 2}


# One compiled kernel for every size of a call: Triton would make others for 1 and for multiples of
# 16, and nothing promises that these sum in the same order.
@triton.jit(do_not_specialize=["count"])
def _product_kernel(
    rows,
    weight,
    out,
    count,
    outputs,
    inputs,
    WIDEN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """Program (i, j) makes one tile of `rows @ weight.T`, summing the inputs in their order."""
    m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, inputs, INPUTS):
        k = start + tl.arange(0, INPUTS)
        inside = (m[:, None] < count) & (k[None, :] < inputs)
        left = tl.load(rows + m[:, None] * inputs + k[None, :], mask=inside, other=0.0)
        inside = (n[None, :] < outputs) & (k[:, None] < inputs)
        right = tl.load(weight + n[None, :] * inputs + k[:, None], mask=inside, other=0.0)
        if WIDEN:
            left, right = left.to(tl.float32), right.to(tl.float32)
        total = tl.dot(left, right, total, input_precision="ieee")
    inside = (m[:, None] < count) & (n[None, :] < outputs)
    tl.store(out + m[:, None] * outputs + n[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["first", "count"])
def _split_kernel(
    query,
    key,
    value,
    sums,
    tops,
    weights,
    first,
    count,
    heads,
    groups,
    scale,
    WIDEN: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Program (tile, head, split): what the split's keys contribute to a tile of queries.

    `query` is (count, heads * groups, DIM), `key` and `value` (rows, heads, DIM). Writes for each
    query the weighted sum of values, the largest product, and the sum of weights.
    """
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m = tile * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, DIM)
    inside = m[:, None] < count
    queries = tl.load(
        query + (m[:, None] * heads * groups + head) * DIM + d[None, :], mask=inside, other=0.0
    )
    if WIDEN:
        queries = queries.to(tl.float32)
    top = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((ROWS,), dtype=tl.float32)
    total = tl.zeros((ROWS, DIM), dtype=tl.float32)
    for block in range(BLOCKS):
        n = (split * BLOCKS + block) * KEYS + tl.arange(0, KEYS)
        there = n < first + count
        place = (n * heads + head // groups) * DIM
        keys = tl.load(key + place[None, :] + d[:, None], mask=there[None, :], other=0.0)
        values = tl.load(value + place[:, None] + d[None, :], mask=there[:, None], other=0.0)
        if WIDEN:
            keys, values = keys.to(tl.float32), values.to(tl.float32)
        product = tl.dot(queries, keys, input_precision="ieee") * scale
        seen = n[None, :] <= first + m[:, None]
        product = tl.where(seen, product, float("-inf"))
        new_top = tl.maximum(top, tl.max(product, axis=1))
        # A query that has seen no key yet keeps weights of 0, without a difference of infinities.
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        share = tl.exp(product - base[:, None])
        kept = tl.exp(top - base)
        weight = weight * kept + tl.sum(share, axis=1)
        total = total * kept[:, None]
        total = tl.dot(share.to(values.dtype), values, total, input_precision="ieee")
        top = new_top
    place = (split * count + m) * heads * groups + head
    tl.store(tops + place, top, mask=m < count)
    tl.store(weights + place, weight, mask=m < count)
    tl.store(sums + place[:, None] * DIM + d[None, :], total, mask=inside)


@triton.jit(do_not_specialize=["rows", "splits"])
def _joined_kernel(sums, tops, weights, out, rows, splits, DIM: tl.constexpr):
    """Program i joins the splits of one query of one head, in their order."""
    row = tl.program_id(0)
    d = tl.arange(0, DIM)
    top = tl.full((1,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((1,), dtype=tl.float32)
    total = tl.zeros((DIM,), dtype=tl.float32)
    for split in range(splits):
        place = split * rows + row
        new_top = tl.maximum(top, tl.load(tops + place))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        # A split above the query has the weight 0 and no top: nothing changes by it, to the bit.
        kept, added = tl.exp(top - base), tl.exp(tl.load(tops + place) - base)
        weight = weight * kept + tl.load(weights + place) * added
        total = total * kept + tl.load(sums + place * DIM + d) * added
        top = new_top
    tl.store(out + row * DIM + d, (total / weight).to(out.dtype.element_ty))


INTERPRETED: Final = not isinstance(_product_kernel, triton.runtime.JITFunction)
"""Whether Triton's interpreter runs them. Its products of bfloat16 are wrong, so it widens."""


def product(rows: Tensor, weight: Tensor) -> Tensor:
    """`rows @ weight.T`: shapes (count, inputs) and (outputs, inputs), contiguous, one dtype."""
    (count, inputs), outputs = rows.shape, weight.shape[0]
    out = rows.new_empty((count, outputs))
    grid = (triton.cdiv(count, TILE_ROWS), triton.cdiv(outputs, TILE_COLUMNS))
    _product_kernel[grid](
        rows,
        weight,
        out,
        count,
        outputs,
        inputs,
        WIDEN=INTERPRETED,
        ROWS=TILE_ROWS,
        COLUMNS=TILE_COLUMNS,
        INPUTS=TILE_INPUTS,
        **_OPTIONS,
    )
    return out


def attention(query: Tensor, key: Tensor, value: Tensor, first: int, scale: float) -> Tensor:
    """Causal attention of queries at rows [first, first + count).

    Args:
        query: shape (count, query heads, dim); the dim is a power of two of at least 16.
        key: shape (rows, heads, dim), contiguous, with at least first + count rows.
        value: likewise.
        first: the row of the first query.
        scale: of the products.

    Returns:
        Shape (count, query heads, dim).
    """
    count, query_heads, dim = query.shape
    heads = key.shape[1]
    splits = triton.cdiv(first + count, KEYS_A_BLOCK * BLOCKS_A_SPLIT)
    sums = query.new_empty((splits, count, query_heads, dim), dtype=torch.float32)
    tops = query.new_empty((splits, count, query_heads), dtype=torch.float32)
    weights, out = torch.empty_like(tops), torch.empty_like(query)
    grid = (triton.cdiv(count, TILE_ROWS), query_heads, splits)
    _split_kernel[grid](
        query,
        key,
        value,
        sums,
        tops,
        weights,
        first,
        count,
        heads,
        query_heads // heads,
        scale,
        WIDEN=INTERPRETED,
        DIM=dim,
        ROWS=TILE_ROWS,
        KEYS=KEYS_A_BLOCK,
        BLOCKS=BLOCKS_A_SPLIT,
        **_OPTIONS,
    )
    rows = count * query_heads
    _joined_kernel[rows,](sums, tops, weights, out, rows, splits, DIM=dim, **_OPTIONS)
    return out
