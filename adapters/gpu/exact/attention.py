"""Attention in which a query's bits depend neither on the other queries nor on later rows.

torch's CPU kernel walks keys in blocks of 512 and queries in blocks of its own. So keys are handed
over in whole blocks counted from row 0, what a query must not see is masked, and queries come in
numbers of rows that were measured to agree (`row_counts`). A block that is masked for a query
leaves no trace in it: zero is added to sums, and nothing is scaled.
"""

from collections.abc import Callable
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import masking_utils, modeling_utils

from ....domain.errors import EngineError
from .linear import padded
from .row_counts import RowCounts, cancelling, measured

NAME: Final = "anchorline_exact"
"""What a model's config calls this attention; models whose config does not are not touched."""

KEY_BLOCK: Final = 512
"""Rows of keys in a block of the kernel."""

COUNTS: Final = "anchorline_query_counts"
"""The attribute of a model's modules that holds its `QueryCounts`."""

MEASURED_QUERIES: Final = 256
MEASURED_HEADS_MAX: Final = 2
MASK_ROWS_MIN: Final = 8

MANTISSA_BITS: Final = 24
"""Of the float32 sums in the kernel: their roundings lie so far below the terms."""

REFUSED: Final = ("s_aux", "softcap", "position_bias")
"""Arguments that change what attention is, and that are not known here."""

_attentions: Final[Any] = modeling_utils.ALL_ATTENTION_FUNCTIONS
_masks: Final[Any] = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
_masking: Final[Any] = masking_utils


class QueryCounts:
    """Numbers of query rows that the kernel computes alike, for one model."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], RowCounts] = {}

    def of(self, key: Tensor, value: Tensor) -> RowCounts:
        """For keys and values such as these; measured when they are first seen."""
        kind = (key.shape[1], key.stride()[1:], value.stride()[1:], key.dtype, key.device)
        found = self._found.get(kind)
        if found is None:
            found = self._found[kind] = _measured_counts(key, value)
        return found


def register() -> None:
    """Make the attention known to transformers under its name; nothing uses it by that."""
    _attentions.register(NAME, attend)
    _masks.register(NAME, causal_mask)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **more: object,
) -> tuple[Tensor, None]:
    """Attention as models of transformers call it.

    Args:
        module: of a model that was bound; says how many rows agree.
        query: shape (1, query heads, tokens, dim).
        key: shape (1, heads, rows, dim); the rows are whole blocks, finite to their end.
        value: likewise, of another dim perhaps.
        attention_mask: of `causal_mask`; has at least as many rows as there are tokens.
        scaling: of the products of queries and keys.
        dropout: 0.
        more: refused where it changes what attention is; else the mask has said it.

    Returns:
        Shape (1, tokens, query heads, dim of values).

    Raises:
        EngineError: it is attention of a kind that has no exact form here.
    """
    unknown = [name for name in REFUSED if more.get(name) is not None]
    if unknown or dropout or attention_mask is None:
        raise EngineError(f"exact attention knows no {', '.join(unknown) or 'other mask'}")
    value_dim = value.shape[-1]
    if value_dim < key.shape[-1]:
        # The kernel that walks keys in blocks wants both of one dim.
        value = functional.pad(value, (0, key.shape[-1] - value_dim))
    counts = cast("QueryCounts", getattr(module, COUNTS)).of(key, value)
    heads, tokens = key.shape[1], query.shape[2]
    groups = query.shape[1] // heads
    out = query.new_empty((tokens, heads, groups, value_dim))
    if tokens == 1:
        # One query: all heads that share a key head are rows of one call, under one mask.
        grouped = query.view(heads, groups, -1).transpose(0, 1)
        mask = attention_mask[0, 0, :1]
        out[0] = _rows_attend(grouped, key, value, mask, scaling, counts)[
            ..., :value_dim
        ].transpose(0, 1)
    else:
        rows = query.view(heads, groups, tokens, -1).permute(1, 2, 0, 3)
        for group in range(groups):
            result = _rows_attend(rows[group], key, value, attention_mask[0, 0], scaling, counts)
            out[:, :, group] = result[..., :value_dim]
    return out.view(1, tokens, heads * groups, value_dim), None


def causal_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Tensor] = _masking.causal_mask_function,
    attention_mask: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    use_vmap: bool = False,
    **_: object,
) -> Tensor:
    """The mask as `attend` wants it, (1, 1, rows, keys): 0 where a key is seen, -inf elsewhere.

    There may be more rows than queries: these are padding, and see everything.
    """
    if mask_function is _masking.causal_mask_function and attention_mask is None:
        queries = torch.arange(q_offset, q_offset + q_length, device=device)[:, None]
        keys = torch.arange(kv_offset, kv_offset + kv_length, device=device)
        unseen = (keys > queries)[None, None]
    else:
        unseen = ~_masking.sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            q_offset=q_offset,
            kv_offset=kv_offset,
            mask_function=mask_function,
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            use_vmap=use_vmap,
            device=device,
        )
    rows = 1 if q_length == 1 else max(MASK_ROWS_MIN, 1 << (q_length - 1).bit_length())
    mask = torch.zeros((1, 1, rows, kv_length), dtype=dtype, device=device)
    mask[:, :, :q_length].masked_fill_(unseen, float("-inf"))
    return mask


def _rows_attend(
    rows: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float | None,
    counts: RowCounts,
) -> Tensor:
    """Attention of query rows (rows, heads, dim); a mask of one row is every row's.

    Returns:
        Shape (rows, heads, dim of values).
    """
    results: list[Tensor] = []
    for block in counts.blocks(len(rows)):
        count = block.end - block.start
        queries = padded(rows[block.start : block.end], block.size).transpose(0, 1).contiguous()
        seen = mask if len(mask) == 1 else _mask_rows(mask, block.start, block.size)
        result = _kernel(queries[None], key, value, seen.expand(block.size, -1), scaling)
        results.append(result[0].transpose(0, 1)[:count])
    return results[0] if len(results) == 1 else torch.cat(results)


def _mask_rows(mask: Tensor, start: int, size: int) -> Tensor:
    """Rows [start, start + size) of a mask, with rows that see everything where it ends before."""
    missing = start + size - len(mask)
    rows = mask[start : start + size]
    return rows if missing <= 0 else functional.pad(rows, (0, 0, 0, missing))


def _kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None
) -> Tensor:
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask[None, None], scale=scaling
    )


def _measured_counts(key: Tensor, value: Tensor) -> RowCounts:
    """Asks the kernel with keys and values of the same strides.

    Twice: with queries and keys whose products are roundings and nothing else, so large that the
    softmax shows them, and with queries of 0 and values that cancel over the keys.
    """
    heads, rows, dim = min(key.shape[1], MEASURED_HEADS_MAX), 2 * KEY_BLOCK, key.shape[-1]
    queries, products = cancelling(MEASURED_QUERIES, rows, dim, torch.float32)
    _, sums = cancelling(1, dim, rows, torch.float32)

    def like(states: Tensor, numbers: Tensor) -> Tensor:
        buffer = numbers[None, :, None].expand(1, -1, states.shape[1], -1).contiguous()
        by_head = buffer.to(states.dtype).to(states.device).transpose(1, 2)
        same = by_head if states.stride(2) > states.stride(1) else by_head.contiguous()
        return same[:, :heads]

    scale = 2.0 ** (MANTISSA_BITS - 3)
    keys, values = like(key, products * scale), like(value, sums.T)
    mask = torch.zeros((MEASURED_QUERIES, rows), dtype=key.dtype, device=key.device)

    def kernel(packed: Tensor) -> Tensor:
        query = packed[:, None].expand(-1, heads, -1).transpose(0, 1).contiguous()[None]
        seen = mask[: len(packed)]
        products_shown = _kernel(query, keys, values, seen, 1.0)
        sums_shown = _kernel(torch.zeros_like(query), keys, values, seen, 1.0)
        return torch.cat([products_shown, sums_shown], -1)[0].transpose(0, 1)

    return measured(kernel, queries.to(key.dtype).to(key.device))
