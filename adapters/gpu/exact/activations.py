"""Activations whose bits do not depend on how many numbers stand beside them.

torch's own kernels of these take another path for the last few numbers of a tensor that is no
multiple of their vectors, and which numbers are the last ones depends on the number of rows.
`exp`, `log1p`, `tanh` and `erf` have no such path, and sums, products and quotients are rounded
alike on any.
"""

import math
from typing import Final

import torch
from torch import Tensor

from .stepping import threads_for

_SHARED_MIN: Final = 1 << 17
"""Numbers that are worth a second thread. MKL, which computes `exp` and `tanh`, wakes one for 256:
48 microseconds where one thread takes 2."""

_TANH_SCALE: Final = math.sqrt(2 / math.pi)
_TANH_CUBIC: Final = 0.044715
_SOFTPLUS_THRESHOLD: Final = 20.0


def sigmoid(numbers: Tensor) -> Tensor:
    """`torch.sigmoid`."""
    wide = numbers.float()
    with threads_for(wide.numel(), _SHARED_MIN):
        return (1 / torch.exp(-wide).add_(1)).to(numbers.dtype)


def silu(numbers: Tensor, inplace: bool = False) -> Tensor:
    """`torch.nn.functional.silu`."""
    wide = numbers.float()
    with threads_for(wide.numel(), _SHARED_MIN):
        result = (wide / torch.exp(-wide).add_(1)).to(numbers.dtype)
    return numbers.copy_(result) if inplace else result


def softplus(numbers: Tensor, beta: float = 1.0, threshold: float = _SOFTPLUS_THRESHOLD) -> Tensor:
    """`torch.nn.functional.softplus`."""
    wide = numbers.float() * beta
    with threads_for(wide.numel(), _SHARED_MIN):
        soft = torch.log1p(torch.exp(wide)) / beta
    return torch.where(wide > threshold, wide / beta, soft).to(numbers.dtype)


def gelu(numbers: Tensor, approximate: str = "none") -> Tensor:
    """`torch.nn.functional.gelu`."""
    wide = numbers.float()
    with threads_for(wide.numel(), _SHARED_MIN):
        if approximate == "tanh":
            inner = torch.tanh(_TANH_SCALE * (wide + _TANH_CUBIC * (wide * wide * wide)))
        else:
            inner = torch.erf(wide * math.sqrt(0.5))
    return (wide * 0.5 * (1 + inner)).to(numbers.dtype)
