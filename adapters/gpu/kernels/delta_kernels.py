"""The aligned-tile gated delta rule as Triton kernels. Imported only where Triton is.

For the rule see `exact.tile_rule`, for what is kept `delta_tiles`. A program walks the tiles of one
head and of some columns of its values, whose state it alone writes; a second launch puts down the
new tokens' keys and decays, which programs of the first read. Both read from the state how many
tokens the open tile has, so the host waits for nothing.
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

from ..alignment import ALIGNMENT_BYTES
from .delta_tiles import TILE, TileShape

COLUMNS: Final = 32
"""Columns of values a program: a head's state is read by several, or a token would occupy few."""

DIM_MIN: Final = 16
"""Matrix products on a device take no fewer; what is missing is zeros."""

EPSILON: Final = 1e-6

_OPTIONS: Final = {"enable_fp_fusion": False, "num_warps": 4, "num_stages": 1}


@triton.jit
def _unit_rows(rows, EPSILON: tl.constexpr):
    """The rows brought to length 1; rows of zeros stay zeros."""
    return rows * (1.0 / tl.sqrt(tl.sum(rows * rows, axis=1) + EPSILON))[:, None]


# One compiled kernel for every number of tokens: Triton would make one of its own for 1, and one
# for multiples of 16, whose layouts, and with them the order of sums, could be others.
@triton.jit(do_not_specialize=["tokens"])
def _tiles_kernel(  # noqa: PLR0915 # a tile is computed where its state stands
    query,
    key,
    value,
    g,
    beta,
    packed,
    out,
    tokens,
    heads,
    groups,
    scale,
    NORMALISED: tl.constexpr,
    EPSILON: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    SIZE: tl.constexpr,
    AT_CORRECTIONS: tl.constexpr,
    AT_KEYS: tl.constexpr,
    AT_DECAYS: tl.constexpr,
    AT_COUNT: tl.constexpr,
    KEYS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Program (head, i): outputs, tile-line state and corrections of columns [i COLUMNS, ...)."""
    head = tl.program_id(0).to(tl.int64)
    v = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, KEYS)
    r = tl.arange(0, TILE)
    t = tl.arange(0, TILE)
    own = packed + head * SIZE
    open_rows = tl.load(own + AT_COUNT).to(tl.int32)
    total = open_rows + tokens
    in_key, in_value = k < KEY_DIM, v < VALUE_DIM
    in_state = in_key[:, None] & in_value[None, :]
    in_rows = in_value[None, :] & (r[:, None] < TILE)
    state = tl.load(own + k[:, None] * VALUE_DIM + v[None, :], mask=in_state, other=0.0)
    place = AT_CORRECTIONS + r[:, None] * VALUE_DIM + v[None, :]
    corrections = tl.load(own + place, mask=in_rows, other=0.0)
    upto = t[None, :] <= r[:, None]
    before = t[None, :] < r[:, None]
    # Of rows (i, j) the tokens t in (j, i]: what decays between the two.
    between = (t[None, None, :] > t[None, :, None]) & (t[None, None, :] <= r[:, None, None])
    for tile in range((total + TILE - 1) // TILE):
        # Row r is token `at` of the call, or a token of the open tile, or neither.
        at = (tile * TILE + r - open_rows).to(tl.int64)
        new = (at >= 0) & (at < tokens)
        held = at < 0  # in the first tile only, as it has fewer than TILE of them
        of_key = (at * heads // groups + head // groups)[:, None] * KEY_DIM + k[None, :]
        of_value = (at * heads + head)[:, None] * VALUE_DIM + v[None, :]
        new_key = new[:, None] & in_key[None, :]
        held_key = held[:, None] & in_key[None, :]
        queries = tl.load(query + of_key, mask=new_key, other=0.0).to(tl.float32)
        keys = tl.load(key + of_key, mask=new_key, other=0.0).to(tl.float32)
        kept = tl.load(own + AT_KEYS + r[:, None] * KEY_DIM + k[None, :], mask=held_key, other=0.0)
        keys = tl.where(held[:, None], kept, keys)
        decay = tl.load(g + at * heads + head, mask=new, other=0.0).to(tl.float32)
        decay = tl.where(held, tl.load(own + AT_DECAYS + r, mask=held, other=0.0), decay)
        strength = tl.load(beta + at * heads + head, mask=new, other=0.0).to(tl.float32)
        new_value = new[:, None] & in_value[None, :]
        values = tl.load(value + of_value, mask=new_value, other=0.0).to(tl.float32)
        if NORMALISED:
            queries, keys = _unit_rows(queries, EPSILON), _unit_rows(keys, EPSILON)
        queries = queries * scale
        # What a row must not see is replaced, not multiplied by 0: a NaN there stays there.
        from_line = tl.exp(tl.sum(tl.where(upto, decay[None, :], 0.0), axis=1))
        pairs = tl.exp(tl.sum(tl.where(between, decay[None, None, :], 0.0), axis=2))
        columns = tl.trans(keys)
        reads = tl.dot(keys, columns, input_precision="ieee") * pairs * strength[:, None]
        reads = tl.where(before, reads, 0.0)
        shares = tl.where(upto, tl.dot(queries, columns, input_precision="ieee") * pairs, 0.0)
        old = tl.dot(keys, state, input_precision="ieee") * from_line[:, None]
        outputs = tl.dot(queries, state, input_precision="ieee") * from_line[:, None]
        wanted = strength[:, None] * (values - old)
        first = tl.where(tile == 0, open_rows, 0)
        for i in range(first, tl.minimum(total - tile * TILE, TILE)):
            # Rows below are zeros still, so a sum over all rows is one over those above.
            row = r[:, None] == i
            weights = tl.sum(tl.where(row, reads, 0.0), axis=0)
            read = tl.sum(weights[:, None] * corrections, axis=0)
            corrections = tl.where(row, wanted - read[None, :], corrections)
            weights = tl.sum(tl.where(row, shares, 0.0), axis=0)
            share = tl.sum(weights[:, None] * corrections, axis=0)
            outputs = tl.where(row, outputs + share[None, :], outputs)
        tl.store(out + of_value, outputs.to(out.dtype.element_ty), mask=new_value)
        if (tile + 1) * TILE <= total:
            after = t[None, :] > r[:, None]
            to_line = tl.exp(tl.sum(tl.where(after, decay[None, :], 0.0), axis=1))
            whole = tl.exp(tl.sum(decay, axis=0))
            written = tl.dot(columns * to_line[None, :], corrections, input_precision="ieee")
            state = state * whole + written
            corrections = tl.zeros((TILE, COLUMNS), dtype=tl.float32)
    tl.store(own + place, corrections, mask=in_rows)
    if total >= TILE:
        tl.store(own + k[:, None] * VALUE_DIM + v[None, :], state, mask=in_state)


@triton.jit(do_not_specialize=["tokens"])
def _companions_kernel(
    key,
    g,
    packed,
    tokens,
    heads,
    groups,
    KEY_DIM: tl.constexpr,
    SIZE: tl.constexpr,
    AT_KEYS: tl.constexpr,
    AT_DECAYS: tl.constexpr,
    AT_COUNT: tl.constexpr,
    KEYS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Program i puts down head i's keys and decays of what is the open tile now, and its length."""
    head = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, KEYS)
    r = tl.arange(0, TILE)
    own = packed + head * SIZE
    open_rows = tl.load(own + AT_COUNT).to(tl.int32)
    total = open_rows + tokens
    line = total // TILE * TILE
    at = (line + r - open_rows).to(tl.int64)
    new = (at >= 0) & (at < tokens)
    held = at < 0
    in_key = k[None, :] < KEY_DIM
    of_key = (at * heads // groups + head // groups)[:, None] * KEY_DIM + k[None, :]
    place = own + AT_KEYS + r[:, None] * KEY_DIM + k[None, :]
    keys = tl.load(key + of_key, mask=new[:, None] & in_key, other=0.0).to(tl.float32)
    keys = tl.where(held[:, None], tl.load(place, mask=held[:, None] & in_key, other=0.0), keys)
    decay = tl.load(g + at * heads + head, mask=new, other=0.0).to(tl.float32)
    decay = tl.where(held, tl.load(own + AT_DECAYS + r, mask=held, other=0.0), decay)
    tl.store(place, keys, mask=in_key & (r[:, None] < TILE))
    tl.store(own + AT_DECAYS + r, decay)
    tl.store(own + AT_COUNT, (total - line).to(tl.float32))


INTERPRETED: Final = not isinstance(_tiles_kernel, triton.runtime.JITFunction)
"""Whether Triton's interpreter runs them."""


def forward_tiles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    packed: Tensor,
    *,
    normalised: bool,
) -> Tensor:
    """What `exact.tile_rule.forward_tiles` does, on the device of these."""
    tokens, heads, value_dim = value.shape
    key_heads, key_dim = key.shape[1:]
    query, key, value, g, beta = map(_aligned, (query, key, value, g, beta))
    assert packed.is_contiguous(), "a packed state with gaps"
    assert packed.data_ptr() % ALIGNMENT_BYTES == 0, "a packed state at an odd address"
    out = torch.empty_like(value, dtype=query.dtype)
    shape = TileShape(key_dim, value_dim)
    places = {
        "KEY_DIM": key_dim,
        "SIZE": shape.size,
        "AT_KEYS": shape.keys,
        "AT_DECAYS": shape.decays,
        "AT_COUNT": shape.count,
        "KEYS": max(DIM_MIN, triton.next_power_of_2(key_dim)),
        "TILE": TILE,
    }
    _tiles_kernel[heads, triton.cdiv(value_dim, COLUMNS)](
        query,
        key,
        value,
        g,
        beta,
        packed,
        out,
        tokens,
        heads,
        heads // key_heads,
        key_dim**-0.5,
        NORMALISED=normalised,
        EPSILON=EPSILON,
        VALUE_DIM=value_dim,
        AT_CORRECTIONS=shape.corrections,
        COLUMNS=COLUMNS,
        **places,
        **_OPTIONS,
    )
    groups = heads // key_heads
    _companions_kernel[heads,](key, g, packed, tokens, heads, groups, **places, **_OPTIONS)
    return out


def _aligned(rows: Tensor) -> Tensor:
    """Contiguous and at an aligned address: Triton compiles kernels of their own for others."""
    rows = rows.contiguous()
    return rows if rows.data_ptr() % ALIGNMENT_BYTES == 0 else rows.clone()
