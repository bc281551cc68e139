"""The gated delta rule tile by tile, for devices on which a loop over tokens takes too long.

The sums of `delta_rule`, in an order that the token's place in its tile decides, and not the call
(Yang et al. 2024, "Gated Delta Networks"). With S the state at the tile line, d(j, i) the decay of
the tokens after j up to i, and d(i) that of all from the line to i:

    c_i = beta_i (v_i - d(i) k_i S - sum over j < i of d(j, i) (k_i k_j) c_j)
    out_i = d(i) q_i S + sum over j <= i of d(j, i) (q_i k_j) c_j
    S' = d(last) S + sum over all j of d(j, last) k_j c_j

A tile is computed in one shape, rows that are not there yet being zeros. A row sees those after it
only as zeros that are added, so it has the same bits whether they came with it or not. What a tile
brought stands beside the state until the tile is full (`kernels.delta_tiles`), in the same tensor:
whoever keeps a layer's recurrent state keeps both, at any line.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from ....domain.errors import EngineError
from ..kernels.delta_tiles import TILE, TileShape
from ..kernels.triton_module import delta_kernels
from .delta_rule import EPSILON, DeltaRule, gated_delta_rule
from .stepping import one_thread

_Tile: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Queries, keys, values, logs of decays and strengths, each (heads, TILE, ...), float32."""


Tiles: TypeAlias = Callable[..., Tensor]
"""Runs tokens through the tiles that they touch: `forward_tiles`, or a kernel in its place."""


def delta_rule_for(device: torch.device) -> DeltaRule:
    """The rule for a model on the device: by tiles where there are kernels for it, or by tokens."""
    kernels = delta_kernels(device)
    if kernels is None:
        return gated_delta_rule
    run: Tiles = kernels.forward_tiles

    def on_device(*arguments: Tensor, normalised: bool) -> Tensor:
        try:
            with torch.cuda.device(device):
                return run(*arguments, normalised=normalised)
        except Exception as error:  # whatever Triton's compiler raises: the model has another way
            raise EngineError(f"the kernel of the delta rule: {error}") from error

    return tiled_rule(on_device)


def tiled_rule(tiles: Tiles) -> DeltaRule:
    """The rule as models of transformers call it; its state is a packed one.

    The arguments are those of `gated_delta_rule`, but for the state: shape (1, value heads, size)
    of `TileShape`, float32, modified.
    """

    def rule(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        **_: object,
    ) -> tuple[Tensor, Tensor | None]:
        if initial_state is None:
            shape = TileShape(key.shape[-1], value.shape[-1])
            initial_state = shape.empty(value.shape[2], value.device)[None]
        outputs = tiles(
            query[0],
            key[0],
            value[0],
            g[0],
            beta[0],
            initial_state[0],
            normalised=use_qk_l2norm_in_kernel,
        )
        return outputs[None], initial_state if output_final_state else None

    return rule


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
    """Run tokens through the tiles that they touch, with operations of torch.

    Args:
        query: shape (tokens, key heads, key dim), like `key`.
        key: brought to length 1 here, or else before.
        value: shape (tokens, value heads, value dim); each key head serves as many value heads.
        g: log of the decay, shape (tokens, value heads), like `beta`.
        beta: how much of the correction is written.
        packed: the state before them, shape (value heads, size); modified to be that after them.
        normalised: whether queries and keys are brought to length 1 first.

    Returns:
        Shape (tokens, value heads, value dim) in the query's dtype.
    """
    tokens, heads, value_dim = value.shape
    repeats = heads // key.shape[1]
    query, key = (rows.repeat_interleave(repeats, 1) for rows in (query, key))
    parts = TileShape(key.shape[-1], value_dim).parts(packed)
    outputs = value.new_empty((tokens, heads, value_dim), dtype=query.dtype)
    open_rows, done = int(parts.count[0]), 0
    with one_thread():
        while done < tokens:
            count = min(TILE - open_rows, tokens - done)
            given = [rows[done : done + count] for rows in (query, key, value, g, beta)]
            tile = _padded_tile(given, open_rows)
            # Before tokens are brought to length 1, so that they are each time alike.
            tile[1].add_(parts.keys)
            tile[3].add_(parts.decays)
            results = _tile(tile, parts.state, parts.corrections, open_rows, count, normalised)
            outputs[done : done + count] = results[:, open_rows : open_rows + count].transpose(0, 1)
            done, open_rows = done + count, (open_rows + count) % TILE
            if open_rows:
                parts.keys.copy_(tile[1])
                parts.decays.copy_(tile[3])
            else:
                packed[:, parts.state[0].numel() :].zero_()
            parts.count.fill_(open_rows)
    return outputs


def _padded_tile(given: list[Tensor], first: int) -> _Tile:
    """The tokens, (count, heads, ...) each, as rows [first, first + count) of a tile of zeros."""

    def padded(rows: Tensor) -> Tensor:
        shape = (rows.shape[1], TILE, *rows.shape[2:])
        tile = torch.zeros(shape, dtype=torch.float32, device=rows.device)
        tile[:, first : first + len(rows)] = rows.transpose(0, 1)
        return tile

    query, key, value, g, beta = given
    return padded(query), padded(key), padded(value), padded(g), padded(beta)


def _tile(
    tile: _Tile, state: Tensor, corrections: Tensor, first: int, count: int, normalised: bool
) -> Tensor:
    """Compute rows [first, first + count) of a tile: outputs (heads, TILE, value dim).

    Their corrections are written, and if they are the last ones, the state at the tile's end.
    """
    queries, keys, values, decays, strengths = tile
    if normalised:
        queries, keys = _unit_rows(queries), _unit_rows(keys)
    queries = queries * keys.shape[-1] ** -0.5
    column = torch.arange(TILE, device=keys.device)
    row = column[:, None]
    # Of rows (i, j) the tokens in (j, i], whose decay lies between them.
    between = (column > row) & (column <= row[:, None])
    nothing = decays.new_zeros(())
    from_line = torch.where(column <= row, decays[:, None], nothing).sum(-1).exp()[..., None]
    pairs = torch.where(between, decays[:, None, None], nothing).sum(-1).exp()
    columns, line = keys.transpose(1, 2).contiguous(), state.contiguous()
    reads = torch.where(column < row, keys @ columns * pairs * strengths[..., None], nothing)
    shares = torch.where(column <= row, queries @ columns * pairs, nothing)
    wanted = strengths[..., None] * (values - keys @ line * from_line)
    outputs = queries @ line * from_line
    for i in range(first, first + count):
        # Rows below are zeros still, so a sum over all rows is one over those above.
        read = (reads[:, i, :, None] * corrections).sum(1)
        corrections[:, i] = wanted[:, i] - read
        outputs[:, i] += (shares[:, i, :, None] * corrections).sum(1)
    if first + count == TILE:
        to_line = torch.where(column > row, decays[:, None], nothing).sum(-1).exp()
        whole = decays.sum(-1).exp()[:, None, None]
        written = (columns * to_line[:, None]) @ corrections.contiguous()
        state.copy_(line * whole + written)
    return outputs


def _unit_rows(rows: Tensor) -> Tensor:
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + EPSILON)
