"""Torch operations whose rows depend on their number, replaced for modules of one model.

What a module's file calls by name (`torch.sigmoid`, `F.silu`, `ACT2FN["silu"]`) is found by a copy
of its forward in other namespaces, at no cost. For what is left, such as `x.sigmoid()`, torch
offers a scope in which every call of its functions is asked about first, on this thread alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers import activations as transformers_activations

from . import activations
from .linear import Linears

_torch: Final[Any] = torch
_functional: Final[Any] = functional
ACT2FN: Final[Any] = cast("Any", transformers_activations).ACT2FN

Operation = Callable[..., Any]


def replacements(linears: Linears) -> Mapping[Operation, Operation]:
    """What is called in place of which operation of torch."""
    return {
        functional.linear: linears.product,
        torch.sigmoid: activations.sigmoid,
        torch.Tensor.sigmoid: activations.sigmoid,
        _torch.special.expit: activations.sigmoid,
        functional.silu: activations.silu,
        _torch._C._nn.silu: activations.silu,  # noqa: SLF001 # what `functional` calls
        functional.softplus: activations.softplus,
        functional.gelu: activations.gelu,
    }


DEPARTING: Final = frozenset({"ACT2FN", "expit", "gelu", "linear", "sigmoid", "silu", "softplus"})
"""Names by which a forward may mean such an operation."""


def namespaces(
    known: Mapping[str, object], table: Mapping[Operation, Operation]
) -> Mapping[str, object]:
    """What stands for torch's modules in a forward's globals, under the names they have there."""
    by_name = {function.__name__: replaced for function, replaced in table.items()}
    named = _Namespace(functional, by_name)
    stand_ins: dict[int, object] = {
        id(functional): named,
        id(torch): _Namespace(torch, {"sigmoid": activations.sigmoid}),
        id(nn): _Namespace(nn, {"functional": named}),
        id(ACT2FN): _Activations(),
    }
    return {name: stand_ins[id(value)] for name, value in known.items() if id(value) in stand_ins}


class _Namespace:
    """A module in which some functions are others."""

    def __init__(self, original: object, replaced: Mapping[str, object]) -> None:
        self._original = original
        vars(self).update({**vars(original), **replaced})

    def __getattr__(self, name: str) -> object:
        """What the module makes only when it is asked for."""
        return getattr(self._original, name)


class _Activations:
    """Activations by transformers' names for them."""

    def __getitem__(self, name: str) -> Operation:
        known: dict[str, Operation] = {
            "gelu": activations.gelu,
            "sigmoid": activations.sigmoid,
            "silu": activations.silu,
            "swish": activations.silu,
        }
        return known.get(name) or ACT2FN[name]


class Scope(TorchFunctionMode):
    """The scope in which operations are replaced."""

    def __init__(self, table: Mapping[Operation, Operation]) -> None:
        super().__init__()
        self._table = table

    def __torch_function__(
        self,
        func: Operation,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        """Called by torch for every operation in the scope; calls in here are outside of it."""
        del types
        replaced = self._table.get(func, func)
        return replaced(*args, **kwargs) if kwargs else replaced(*args)


class Recorder(Scope):
    """Replaces as `Scope` does, and notes which modules used such an operation themselves."""

    def __init__(self, table: Mapping[Operation, Operation]) -> None:
        super().__init__(table)
        self.users: dict[nn.Module, None] = {}
        self._running: list[nn.Module] = []

    def watch(self, modules: Iterable[nn.Module]) -> Callable[[], None]:
        """Follow which of the modules is running; call what is returned to stop."""
        handles: list[Any] = []
        for module in modules:
            handles.append(module.register_forward_pre_hook(self._entered))
            handles.append(module.register_forward_hook(self._left))

        def stop() -> None:
            for handle in handles:
                handle.remove()

        return stop

    def __torch_function__(
        self,
        func: Operation,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func in self._table and self._running:
            self.users[self._running[-1]] = None
        return super().__torch_function__(func, types, args, kwargs)

    def _entered(self, module: nn.Module, _arguments: object) -> None:
        self._running.append(module)

    def _left(self, _module: nn.Module, _arguments: object, _output: object) -> None:
        self._running.pop()


def within(scope: Scope, forward: Callable[..., object]) -> Callable[..., object]:
    """The same forward, run in the scope."""

    def scoped(*args: object, **kwargs: object) -> object:
        with scope:
            return forward(*args, **kwargs)

    return scoped


def outside(function: Callable[..., object]) -> Callable[..., object]:
    """The same function, run outside of every scope, where its many calls cost no more."""

    def plain(*args: object, **kwargs: object) -> object:
        with _torch._C.DisableTorchFunction():  # noqa: SLF001 # torch has no public name for it
            return function(*args, **kwargs)

    return plain
