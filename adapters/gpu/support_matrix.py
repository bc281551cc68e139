"""Which model types are served, which are refused and why, and which have to prove themselves."""

from typing import Final

from transformers import PreTrainedConfig

from ...domain.errors import ModelRefused
from .cache_layers import layers_of
from .libraries import TRANSFORMERS_TESTED, text_config, transformers_version
from .self_check import self_check

PROVEN: Final = frozenset(
    {
        "bailing_hybrid",
        "bamba",
        "falcon_h1",
        "gemma3_text",
        "granitemoehybrid",
        "inkling2_text",
        "inkling_text",
        "kimi_linear",
        "lara_mini",
        "lfm2",
        "lfm2_moe",
        "lfm3",
        "llama",
        "mamba2",
        "nemotron_h",
        "olmo_hybrid",
        "qwen3",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
        "zamba2",
    }
)
"""Held to equal bits by tests/engine, which has a tiny model of each."""

_IGNORES_STATE: Final = (
    "its forward of several tokens does not start from the recurrent state, so a resumed prompt "
    "would be answered as if it had begun in the middle"
)
_STATE_ELSEWHERE: Final = (
    "it keeps recurrent state inside its modules, outside the cache, where it can neither be "
    "copied nor restored"
)
_OWN_CACHE: Final = "it keeps its state in a cache class of its own, which no owned layer replaces"

REFUSED: Final = {
    "falcon_mamba": _IGNORES_STATE,
    "jamba": _IGNORES_STATE,
    "mamba": _IGNORES_STATE,
    "minimax": _OWN_CACHE,
    "recurrent_gemma": _STATE_ELSEWHERE,
    "rwkv": _STATE_ELSEWHERE,
    "xlstm": _OWN_CACHE,
    "zamba": _IGNORES_STATE,
    "zaya": "its convolution state seems to have no effect on a resumed prompt",
}


def admit(config: PreTrainedConfig) -> None:
    """Check that the state of models of this config can be kept exactly.

    A type in neither list runs the self check: some seconds, on a tiny random model of its class.
    So does every type under a transformers that tests/engine has not run with yet.

    Raises:
        ModelRefused: it cannot, or nobody could show that it can; the message says why.
    """
    oldest, newest = TRANSFORMERS_TESTED
    version = transformers_version()
    if version < oldest:
        raise ModelRefused(
            f"transformers {version[0]}.{version[1]} is installed, and its caches are known from "
            f"{oldest[0]}.{oldest[1]} on; upgrade it"
        )
    text = text_config(config)
    types = dict.fromkeys((config.model_type, text.model_type))
    for type_ in types:
        if type_ in REFUSED:
            raise ModelRefused(f"models of type {type_!r} are refused: {REFUSED[type_]}")
    layers_of(config)
    if not PROVEN.intersection(types) or version > newest:
        found = self_check(text)
        if found:
            raise ModelRefused(
                f"models of type {text.model_type!r} are refused: a tiny random one showed that "
                + "; ".join(found)
            )
