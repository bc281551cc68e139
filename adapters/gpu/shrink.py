"""A tiny random model of the same class as a large one."""

import copy
import re
from collections.abc import Sequence
from typing import Final, cast

import torch
from torch import nn
from transformers import PreTrainedConfig

from ...domain.errors import ModelRefused
from .libraries import config_from_values, model_from_config, seeded

PARAMETERS_MAX: Final = 150_000_000
LAYERS_MIN: Final = 3
VOCABULARY: Final = 512
FACTORS: Final = (128, 64, 32, 16, 8, 4, 2, 1)
"""Widths are divided by the first of these that gives a model which can be built and run."""

# Widths and numbers of heads shrink together, so that products of one with a head's dimension
# still agree; dimensions of a head, ranks, kernels and expansion factors stay.
_WIDTHS: Final = re.compile(
    r"^(hidden_size|.*intermediate_size|d_model|n_embd|ffn_dim|hidden_dim|block_dim|.*_hidden_size"
    r"|mamba_d_ssm|d_inner|.*(num|n)_.*heads|n_heads|n_head|.*n_groups|.*num_groups)$"
)


def tiny_model(config: PreTrainedConfig, seed: int = 0) -> nn.Module:
    """A random fp32 model of the config's class, on the CPU, with every type of layer it has.

    Raises:
        ModelRefused: no smaller config could be built and run.
    """
    reason = "nothing was tried"
    for factor in FACTORS:
        try:
            model = _built(shrunk(config, factor), seed)
        except Exception as error:  # whatever a model's own code raises
            reason = f"{type(error).__name__}: {error}"
        else:
            return model
    raise ModelRefused(
        f"models of type {config.model_type!r} are not known here, and no tiny one could be made "
        f"for the self check ({reason})"
    )


def _built(config: PreTrainedConfig, seed: int) -> nn.Module:
    # On the meta device first: a model that is still too large must not be allocated.
    with torch.device("meta"):
        empty = model_from_config(config, torch.float32)
    count = sum(parameter.numel() for parameter in empty.parameters())
    if count > PARAMETERS_MAX:
        raise ModelRefused(f"it still has {count} parameters")
    with seeded(seed):
        model = model_from_config(config, torch.float32).eval()
    with torch.inference_mode():
        model(input_ids=torch.ones((1, 3), dtype=torch.int64))
    return model


def shrunk(config: PreTrainedConfig, factor: int) -> PreTrainedConfig:
    """The config with fewer layers, a small vocabulary, and widths divided by `factor`."""
    values = copy.deepcopy(config.to_dict())
    layers = cast("int", config.num_hidden_layers)
    kept = min(layers, _prefix_with_every_type(cast("Sequence[str] | None", _types(config))))
    values["num_hidden_layers"] = kept
    for key, value in values.items():
        if isinstance(value, list) and len(cast("list[object]", value)) == layers:
            values[key] = value[:kept]
        elif isinstance(value, int) and not isinstance(value, bool) and _WIDTHS.match(key):
            values[key] = max(value // factor, 1)
        elif key.endswith("_token_id") and value is not None:
            values[key] = 0
        elif key.startswith("vocab_size"):
            values[key] = VOCABULARY
    return config_from_values(config, values)


def _types(config: PreTrainedConfig) -> object:
    return getattr(config, "layer_types", None)


def _prefix_with_every_type(types: Sequence[str] | None) -> int:
    """The fewest leading layers among which every type is found, and at least one more."""
    if not types:
        return LAYERS_MIN
    return max(LAYERS_MIN, 1 + max(types.index(type_) for type_ in set(types)))
