"""Mamba-2's state update, one token after the other, whoever calls.

Models scan chunks in a prefill and step single tokens in decode, with other sums; some clamp the
time step in the one and not in the other. Here there is one rule for both (Dao and Gu 2024,
"Transformers are SSMs"), and the projections around it stay batched:

    S' = exp(dt A) S + (dt x) B        y = S' C + D x
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from .activations import silu, softplus
from .stepping import one_thread


def state_updates_of(mixer: nn.Module) -> Mapping[str, Callable[..., Any]]:
    """The two functions that a mixer of transformers calls, under their names there."""
    low, high = cast("tuple[float, float]", getattr(mixer, "time_step_limit", (0.0, float("inf"))))

    def chunk(
        hidden_states: Tensor,
        dt: Tensor,
        A: Tensor,  # noqa: N803 # transformers' names
        B: Tensor,  # noqa: N803
        C: Tensor,  # noqa: N803
        chunk_size: int,
        D: Tensor | None = None,  # noqa: N803
        dt_bias: Tensor | None = None,
        initial_states: Tensor | None = None,
        dt_softplus: bool = False,
        dt_limit: tuple[float, float] = (low, high),
        return_final_states: bool = False,
        **_: object,
    ) -> Tensor | tuple[Tensor, Tensor]:
        del chunk_size
        steps = _time_steps(dt[0], dt_bias, dt_limit, soft=dt_softplus)
        outputs, state = _stepped(hidden_states[0], steps, A, B[0], C[0], D, initial_states)
        rounded = outputs[None].to(hidden_states.dtype)
        return (rounded, state) if return_final_states else rounded

    def step(
        state: Tensor,
        hidden_states: Tensor,
        dt: Tensor,
        A: Tensor,  # noqa: N803
        B: Tensor,  # noqa: N803
        C: Tensor,  # noqa: N803
        D: Tensor | None = None,  # noqa: N803
        dt_bias: Tensor | None = None,
        dt_softplus: bool = False,
        z: Tensor | None = None,
        **_: object,
    ) -> Tensor:
        # Decode hands everything repeated over a head's channels: one of them stands for all.
        steps = _time_steps(
            dt[:, :, 0],
            None if dt_bias is None else dt_bias[:, 0],
            (low, high),
            soft=dt_softplus,
        )
        channels = None if D is None else D[:, 0]
        outputs, _state = _stepped(hidden_states, steps, A[:, 0, 0], B, C, channels, state)
        rounded = outputs.to(hidden_states.dtype)
        # In a prefill the models that gate like this do it themselves.
        return rounded if z is None else rounded * silu(z)

    return {"mamba2_chunk_scan": chunk, "mamba2_selective_state_update": step}


def _time_steps(
    dt: Tensor, bias: Tensor | None, limit: tuple[float, float], *, soft: bool
) -> Tensor:
    """The time steps (tokens, heads), float32, clamped in prefill and decode alike."""
    steps = dt.to(torch.float32)
    if bias is not None:
        steps = steps + bias.to(torch.float32)
    if soft:
        steps = softplus(steps)
    return steps.clamp(*limit)


def _stepped(
    inputs: Tensor,
    steps: Tensor,
    rates: Tensor,
    written: Tensor,
    read: Tensor,
    skip: Tensor | None,
    initial: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Outputs (tokens, heads, channels) in float32, and the state (1, heads, channels, state).

    Args:
        inputs: (tokens, heads, channels), with `steps` (tokens, heads) and `rates` (heads,).
        written: B, (tokens, groups, state), and `read`, C, likewise.
        skip: D, (heads,).
        initial: the state to start from; modified if it is float32.
    """
    tokens, heads, channels = inputs.shape
    wide = inputs.to(torch.float32).contiguous()
    repeats = heads // written.shape[1]
    rows, columns = (
        cast("Any", each).to(torch.float32).contiguous().repeat_interleave(repeats, 1)
        for each in (written, read)
    )
    decay = (steps * rates.to(torch.float32)).exp()[..., None, None].contiguous()
    scaled = (wide * steps[..., None])[..., None].contiguous()
    rows, columns = rows[:, :, None], columns[..., None]
    if initial is None:
        whole = wide.new_zeros((1, heads, channels, rows.shape[-1]))
    else:
        whole = initial.to(torch.float32)
    state = whole[0]
    outputs = wide.new_empty((tokens, heads, channels, 1))
    with one_thread():
        for token in range(tokens):
            state.mul_(decay[token]).baddbmm_(scaled[token], rows[token])
            torch.bmm(state, columns[token], out=outputs[token])
    if initial is not None and whole is not initial:
        initial.copy_(whole)
    result = outputs[..., 0]
    if skip is not None:
        result = result + wide * skip.to(torch.float32)[:, None]
    return result, whole
