"""The gated delta rule, one token after the other, whoever calls: Gated DeltaNet and KDA.

Models have two rules, one for chunks and one for single tokens, with other sums. Here there is
one, for both (Yang et al. 2024, "Gated Delta Networks"): with keys and queries of length 1,

    S' = decay S + k c     c = beta (v - k (decay S))     out = q S' = q (decay S) + (q k) c

so that one product reads the old state for the correction c and for the output together. The
three kernels of a token have the same shapes however many tokens are in the call.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import torch
from torch import Tensor

from .stepping import one_thread

EPSILON: Final = 1e-6

DeltaRule: TypeAlias = Callable[..., tuple[Tensor, Tensor | None]]
"""With the arguments of `gated_delta_rule`, and a state of its own."""


def gated_delta_rule(
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
    """The rule as models of transformers call it.

    Args:
        query: shape (1, tokens, key heads, key dim), like `key`.
        value: shape (1, tokens, value heads, value dim); each key head serves as many value heads.
        g: log of the decay: (1, tokens, value heads), or with a last axis of the key dim.
        beta: shape (1, tokens, value heads).
        initial_state: shape (1, value heads, key dim, value dim), float32; modified.
        output_final_state: whether the state after the last token is returned.
        use_qk_l2norm_in_kernel: whether queries and keys are brought to length 1 first.

    Returns:
        The outputs (1, tokens, value heads, value dim) in the query's dtype; the state, which is
        `initial_state` itself where that was given.
    """
    tokens, heads, value_dim = value.shape[1:]
    key_dim = key.shape[-1]
    queries, keys = (
        _rows(rows, heads, normalised=use_qk_l2norm_in_kernel) for rows in (query, key)
    )
    queries = queries * key_dim**-0.5
    values = value[0].to(torch.float32).contiguous()
    decay = g[0].to(torch.float32).contiguous().exp().view(tokens, heads, -1, 1)
    strength = beta[0].to(torch.float32).contiguous()[..., None]
    # Rows of the product for each token: with the key, times -beta, and with the query.
    reading = torch.stack([keys * -strength, queries], 2) * decay[..., 0][:, :, None]
    results = torch.stack([values * strength, torch.zeros_like(values)], 2)
    columns = keys[..., None]
    if initial_state is None:
        state = values.new_zeros((heads, key_dim, value_dim))
    else:
        state = initial_state[0]
    with one_thread():
        for token in range(tokens):
            result = results[token]
            result.baddbmm_(reading[token], state)
            state.mul_(decay[token]).baddbmm_(columns[token], result[:, :1])
    overlap = (queries * keys).sum(-1, keepdim=True)
    outputs = results[:, :, 1] + overlap * results[:, :, 0]
    final = (
        (state[None] if initial_state is None else initial_state) if output_final_state else None
    )
    return outputs[None].to(query.dtype), final


def _rows(rows: Tensor, heads: int, *, normalised: bool) -> Tensor:
    """Queries or keys as float32 (tokens, value heads, dim).

    A sum over an axis that is not contiguous has other bits, and `to` alone copies nothing where
    the dtype is right already.
    """
    wide = rows[0].to(torch.float32).contiguous()
    if normalised:
        wide = wide * torch.rsqrt((wide * wide).sum(-1, keepdim=True) + EPSILON)
    repeats = heads // wide.shape[1]
    return wide if repeats == 1 else wide.repeat_interleave(repeats, 1)
