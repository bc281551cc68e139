"""Causal convolutions of a few taps per channel, as sums that no kernel reorders.

A tap is a product and a sum of whole tensors, in the taps' order, in float32: the same for one
token as for many, and on a CPU cheaper for one token than the library's convolution.
"""

import torch
from torch import Tensor

from ....domain.errors import EngineError
from .activations import silu

ACTIVATIONS = frozenset({"silu", "swish"})


def causal_conv1d(
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **_: object,
) -> Tensor:
    """The convolution as models of transformers call it in a prefill.

    Args:
        hidden_states: shape (1, channels, tokens), the tokens before the first one included.
        weight: shape (channels, taps), the last tap that of the token itself.
        bias: shape (channels,).
        activation: silu or none.

    Returns:
        Shape (1, channels, tokens); before the first token are zeros.
    """
    taps = weight.shape[-1]
    padded = torch.nn.functional.pad(hidden_states.to(weight.dtype), (taps - 1, 0))
    result = _convolved(padded, weight, bias, activation)
    return result.to(hidden_states.dtype)


def causal_conv1d_update(
    hidden_states: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **_: object,
) -> Tensor:
    """The same for the next tokens after a state (1, channels, newest tokens), which is updated."""
    tokens = hidden_states.shape[-1]
    joined = torch.cat([conv_state, hidden_states], dim=-1).to(weight.dtype)
    conv_state.copy_(joined[:, :, -conv_state.shape[-1] :])
    needed = joined[:, :, -(tokens + weight.shape[-1] - 1) :]
    return _convolved(needed, weight, bias, activation).to(hidden_states.dtype)


def _convolved(
    padded: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None
) -> Tensor:
    """Shape (1, channels, tokens) from tokens with taps - 1 more before them."""
    taps = weight.shape[-1]
    tokens = padded.shape[-1] - taps + 1
    wide, factors = padded.float(), weight.float()[:, :, None]
    total = wide[:, :, :tokens] * factors[:, 0]
    for tap in range(1, taps):
        total = total + wide[:, :, tap : tap + tokens] * factors[:, tap]
    if bias is not None:
        total = total + bias.float()[:, None]
    # Rounded where the model's own convolution rounds: before the activation.
    rounded = total.to(padded.dtype)
    if activation is None:
        return rounded
    if activation not in ACTIVATIONS:
        raise EngineError(f"an exact convolution knows no activation {activation!r}")
    return silu(rounded)
