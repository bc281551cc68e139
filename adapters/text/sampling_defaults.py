"""How a model's own files say that it is to be sampled."""

import json
from pathlib import Path
from typing import Final, cast

from ...domain.sampling import SamplingParams

GENERATION_CONFIG: Final = "generation_config.json"

WITHOUT_CONFIG: Final = SamplingParams(temperature=1.0)
"""What OpenAI's API does where a request says nothing."""

_NUMBERS: Final = ("temperature", "top_p", "min_p", "repetition_penalty")


def sampling_defaults(directory: Path) -> SamplingParams:
    """The parameters for requests that bring none.

    `do_sample: false` in the model's generation config is greedy. Numbers it does not give are
    neutral; a file that is missing or cannot be read leaves `WITHOUT_CONFIG`.
    """
    try:
        found: object = json.loads((directory / GENERATION_CONFIG).read_bytes())
    except (OSError, ValueError):
        return WITHOUT_CONFIG
    if not isinstance(found, dict):
        return WITHOUT_CONFIG
    config = cast("dict[str, object]", found)
    numbers: dict[str, float] = {}
    for name in _NUMBERS:
        value = config.get(name)
        if isinstance(value, (int, float)):
            numbers[name] = float(value)
    numbers.setdefault("temperature", 1.0)
    if config.get("do_sample") is False:
        numbers["temperature"] = 0.0
    top_k = config.get("top_k")
    return SamplingParams(
        temperature=numbers["temperature"],
        top_p=numbers.get("top_p", 1.0),
        top_k=top_k if isinstance(top_k, int) else 0,
        min_p=numbers.get("min_p", 0.0),
        repetition_penalty=numbers.get("repetition_penalty", 1.0),
    )
