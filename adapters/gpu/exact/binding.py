"""Exact arithmetic for one model instance, and back.

What is changed hangs on the instance: forwards of its modules, and two names in its config. Other
models of the same class, and torch itself, are as they were.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Final, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from . import attention
from .attention import COUNTS, QueryCounts
from .convolution import causal_conv1d, causal_conv1d_update
from .delta_rule import DeltaRule, gated_delta_rule
from .linear import Linears
from .mamba2 import state_updates_of
from .operations import (
    DEPARTING,
    Operation,
    Recorder,
    Scope,
    namespaces,
    outside,
    replacements,
    within,
)
from .tile_rule import delta_rule_for

GATED_DELTA_RULES: Final = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule")
KIMI_DELTA_RULES: Final = ("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention")
"""What models of transformers call the rule in a prefill and in decode.

Kimi's decays differ within a head, which tiles know nothing of.
"""

CONVOLUTIONS: Final = {
    "causal_conv1d_fn": causal_conv1d,
    "causal_conv1d_update": causal_conv1d_update,
}

STATE_UPDATES: Final = ("mamba2_chunk_scan", "mamba2_selective_state_update")

EXPERTS: Final = "eager"
"""transformers' name for one product per expert, in the experts' order."""

PROBE_TOKENS: Final = 3

_MISSING: Final = object()


class Binding:
    """What was changed of a model; `undo` gives it its own arithmetic back."""

    def __init__(self, model: nn.Module, *, delta_rule: DeltaRule | None = None) -> None:
        """Bind the model.

        Args:
            model: on its device.
            delta_rule: of Gated DeltaNet; by default the one for the model's device.

        Raises:
            EngineError: some part of it has no exact form; nothing is left changed.
        """
        self._model = model
        self._device = next(model.parameters()).device
        self._delta_rule = delta_rule or delta_rule_for(self._device)
        self._changed: list[tuple[object, str, object]] = []
        try:
            self._bind()
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """The model computes as before."""
        while self._changed:
            holder, name, before = self._changed.pop()
            if before is _MISSING:
                delattr(holder, name)
            else:
                setattr(holder, name, before)

    def _bind(self) -> None:
        attention.register()
        modules = list(self._model.modules())
        for config in _configs(modules):
            self._set(config, "_attn_implementation", attention.NAME)
            if getattr(config, "_experts_implementation", None) is not None:
                self._set(config, "_experts_implementation", EXPERTS)
        counts, linears = QueryCounts(), Linears()
        table = replacements(linears)
        plain = [module for module in modules if type(module) is nn.Linear]
        others = [module for module in modules if type(module) is not nn.Linear]
        for module in plain:
            self._set(module, "forward", outside(linears.product_of(module.weight, module.bias)))
        for module in others:
            self._set(module, COUNTS, counts)
            names = _names_of(module, table, self._delta_rule)
            if names:
                self._set(module, "forward", _with_globals(module, names))
        self._scope(self._users(table, others), table)

    def _scope(self, users: list[nn.Module], table: Mapping[Operation, Operation]) -> None:
        """Have what these modules call themselves replaced, and not what their children call."""
        scope = Scope(table)
        children = {child: None for user in users for child in user.children()}
        for child in children:
            if child not in users and type(child) is not nn.Linear:
                self._set(child, "forward", outside(child.forward))
        for user in users:
            self._set(user, "forward", within(scope, user.forward))

    def _users(
        self, table: Mapping[Operation, Operation], modules: list[nn.Module]
    ) -> list[nn.Module]:
        """The modules that still use such an operation themselves, found by running the model."""
        recorder = Recorder(table)
        stop = recorder.watch(modules)
        ids = torch.ones((1, PROBE_TOKENS), dtype=torch.int64, device=self._device)
        try:
            with torch.inference_mode(), recorder:
                self._model(input_ids=ids, use_cache=False)
        finally:
            stop()
        return list(recorder.users)

    def _set(self, holder: object, name: str, value: object) -> None:
        own = vars(holder)
        # A config keeps such names under others, so it is asked what it says and not what it has.
        before = (
            getattr(holder, name)
            if isinstance(holder, PreTrainedConfig)
            else own.get(name, _MISSING)
        )
        self._changed.append((holder, name, before))
        setattr(holder, name, value)


def _configs(modules: list[nn.Module]) -> Iterator[PreTrainedConfig]:
    """Every config that some module reads, once."""
    seen: dict[int, PreTrainedConfig] = {}
    for module in modules:
        config = getattr(module, "config", None)
        if isinstance(config, PreTrainedConfig):
            seen[id(config)] = config
    yield from seen.values()


def _names_of(
    module: nn.Module, table: Mapping[Operation, Operation], delta_rule: DeltaRule
) -> Mapping[str, object]:
    """What the module's forward has to find under its globals' names; nothing for most modules."""
    original = _original_forward(module)
    names = original.__code__.co_names
    found: dict[str, object] = {}
    if DEPARTING.intersection(names) and not isinstance(module, PreTrainedModel):
        found |= namespaces(original.__globals__, table)
    rules = {
        **dict.fromkeys(GATED_DELTA_RULES, delta_rule),
        **dict.fromkeys(KIMI_DELTA_RULES, gated_delta_rule),
    }
    found |= {name: outside(rule) for name, rule in rules.items() if name in names}
    found |= {name: outside(rule) for name, rule in CONVOLUTIONS.items() if name in names}
    if any(name in names for name in STATE_UPDATES):
        found |= {name: outside(rule) for name, rule in state_updates_of(module).items()}
    return found


def _original_forward(module: nn.Module) -> FunctionType:
    """The forward as its file has it, without decorators."""
    return cast("FunctionType", inspect.unwrap(type(module).forward))


def _with_globals(module: nn.Module, names: Mapping[str, object]) -> Callable[..., Tensor]:
    """The module's own forward, for which some of its file's functions are others."""
    original = _original_forward(module)
    rebuilt = FunctionType(
        original.__code__,
        {**original.__globals__, **names},
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    rebuilt.__kwdefaults__ = original.__kwdefaults__
    return rebuilt.__get__(module)
