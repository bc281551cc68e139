"""Where the bits of a token first depend on the number of tokens that were forwarded with it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

Forward = Callable[[int, int], object]
"""Forwards the tokens [start, end) at line `start`."""


def first_departure(
    model: nn.Module, rewind: Callable[[], None], forward: Forward, line: int, end: int
) -> str | None:
    """The first module whose output for the tokens [line, end) differs between two ways.

    Args:
        model: its modules are looked at in the order in which they finish.
        rewind: brings the state to line 0.
        forward: runs the model.
        line: above 0; the tokens below are forwarded together both times, those from here on
            one by one and then together.
        end: of the tokens.

    Returns:
        The module's name, or None where every module gives the same.
    """
    single = _outputs(
        model, rewind, forward, [(0, line), *((at, at + 1) for at in range(line, end))]
    )
    joint = _outputs(model, rewind, forward, [(0, line), (line, end)])
    for name, tensors in joint.items():
        pieces = single.get(name, [])
        whole = tensors[-1]
        axis = _token_axis(whole, end - line)
        if axis is None or len(pieces) != len(tensors) + end - line - 1:
            continue  # what a module gives is not one row a token, so nothing can be said of it
        if not torch.equal(torch.cat(pieces[1:], axis), whole):
            return name
    return None


def _token_axis(tensor: Tensor, tokens: int) -> int | None:
    """The axis along which a module's output has one entry a token: the first or the second."""
    return next(
        (axis for axis in (1, 0) if tensor.ndim > axis and tensor.shape[axis] == tokens), None
    )


def _outputs(
    model: nn.Module, rewind: Callable[[], None], forward: Forward, spans: Sequence[tuple[int, int]]
) -> Mapping[str, list[Tensor]]:
    """What every module gave in each of the forwards, in the order in which modules finish."""
    found: dict[str, list[Tensor]] = {}

    def keep(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(_module: nn.Module, _arguments: object, output: object) -> None:
            first = cast("Sequence[Any]", output)[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor):
                found.setdefault(name, []).append(first.detach().clone())

        return hook

    modules = cast("Iterable[tuple[str, Any]]", model.named_modules())
    hooks = [module.register_forward_hook(keep(name)) for name, module in modules if name]
    try:
        rewind()
        for start, end in spans:
            forward(start, end)
    finally:
        for hook in hooks:
            hook.remove()
    return found
