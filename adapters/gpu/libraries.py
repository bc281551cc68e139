"""The calls into torch and transformers whose types these leave open, each with what it takes.

Everything else in this package is typed; what is not typed passes through here.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, cache_utils

_torch: Final[Any] = torch
_transformers: Final[Any] = transformers
_cache_utils: Final[Any] = cache_utils

TRANSFORMERS_TESTED: Final = ((5, 17), (5, 24))
"""The oldest and the newest minor version that tests/engine has run with."""

LayerArguments = Mapping[str, int]
"""What a layer's class is made with besides the window: a sliding window, a number of states."""


class ModelOutput(Protocol):
    """What a model's forward returns; `logits` of shape (1, tokens, vocabulary)."""

    logits: Tensor


ModelCall = Callable[..., ModelOutput]


def transformers_version() -> tuple[int, int]:
    """Major and minor version of the installed transformers."""
    major, minor = transformers.__version__.split(".")[:2]
    return int(major), int(minor)


def tensor_over(array: npt.NDArray[np.generic]) -> Tensor:
    """A CPU tensor over the array's memory; writable if the array is."""
    return cast("Tensor", _torch.from_numpy(array))


def empty_host_cache() -> None:
    """Give page-locked memory that no tensor holds any more to the system, if torch knows how."""
    empty = cast("Callable[[], None] | None", getattr(_torch.accelerator, "empty_host_cache", None))
    if empty is not None:
        empty()


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Random numbers of the CPU from this seed; afterwards they go on as if nothing had been."""
    with _torch.random.fork_rng(devices=[]):
        _torch.manual_seed(seed)
        yield


def text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The config of the part that generates text: the whole, or a member of a composed one."""
    get = cast("Callable[..., PreTrainedConfig]", cast("Any", config).get_text_config)
    return get(decoder=True)


def config_from_values(like: PreTrainedConfig, values: Mapping[str, object]) -> PreTrainedConfig:
    """A config of the same class."""
    return cast("PreTrainedConfig", cast("Any", type(like)).from_dict(dict(values)))


def config_from_files(directory: Path, gguf: str | None) -> PreTrainedConfig:
    """The config in a directory, or in a GGUF file of it."""
    more: dict[str, object] = {} if gguf is None else {"gguf_file": gguf}
    make = _transformers.AutoConfig.from_pretrained
    # Said outright: left open, transformers asks on the terminal whether to run a model's own code.
    return cast("PreTrainedConfig", make(directory, trust_remote_code=False, **more))


def model_from_config(config: PreTrainedConfig, dtype: torch.dtype) -> nn.Module:
    """A model with random weights."""
    make = _transformers.AutoModelForCausalLM.from_config
    return cast("nn.Module", make(config, dtype=dtype))


def model_from_files(
    directory: Path, gguf: str | None, config: PreTrainedConfig, dtype: torch.dtype
) -> nn.Module:
    """A model with the weights in a directory's safetensors, or in a GGUF file of it."""
    more = {"use_safetensors": True} if gguf is None else {"gguf_file": gguf}
    make = _transformers.AutoModelForCausalLM.from_pretrained
    arguments = {"config": config, "dtype": dtype, "trust_remote_code": False, **more}
    return cast("nn.Module", make(directory, **arguments))


def layer_types_and_arguments(
    config: PreTrainedConfig,
) -> tuple[Sequence[str], Sequence[LayerArguments]]:
    """The type of each layer's cache, and what it is made with."""
    types, arguments = cast(
        "tuple[list[str], list[LayerArguments] | LayerArguments]",
        _cache_utils.get_layer_types_and_kwargs(config),
    )
    if isinstance(arguments, list):
        return types, arguments
    # Up to 5.17 or so there is one mapping for all layers, of which each takes what its type needs.
    shared = {key: value for key, value in arguments.items() if key != "sliding_window"}
    return types, [arguments if "sliding" in type_ else shared for type_ in types]


def cache_of(layers: Sequence[object]) -> object:
    """The cache object to hand to a model's forward; the layers stay the caller's."""
    return cast("object", _cache_utils.Cache(layers=list(layers)))
