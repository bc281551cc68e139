"""What exact arithmetic costs: the same checkpoint under it and under its own, in turn.

In fp32 and bf16, in CPU time: a prefill of a few grid steps, and tokens decoded after it.
"""

import time
from collections.abc import Iterator
from typing import Final

import numpy as np
from report import Figure, Options, against

from anchorline.adapters.gpu.loading import DtypeChoice, load_engine
from anchorline.adapters.gpu.model_store import ModelStore
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.ports.engine import DecodeInput
from anchorline.settings import ServeSettings

PROMPT: Final = 512
PROMPT_QUICK: Final = 128
TOKENS: Final = {"toy": 96, "smollm2": 24}
TOKENS_OTHER: Final = 24
TOKENS_QUICK: Final = 8
REPETITIONS: Final = 9
REPETITIONS_QUICK: Final = 3
DTYPES: Final[tuple[tuple[DtypeChoice, str], ...]] = (
    ("float32", "at most 1.25"),
    ("bfloat16", "at most 1.15"),
)


def figures(options: Options) -> Iterator[Figure]:
    """Seconds of CPU time, exact / own."""
    for model in options.models:
        source = ModelStore(ServeSettings().models_path).resolve(model).source
        tokens = TOKENS_QUICK if options.quick else TOKENS.get(model, TOKENS_OTHER)
        for dtype, target in DTYPES:
            options.progress(f"{model}, exact arithmetic in {dtype}")
            own, exact = (
                load_engine(source, dtype=dtype, window=1024, arith=arith)
                for arith in ("grid", "exact")
            )
            if not exact.profile.row_invariant:
                options.progress(f"{model} in {dtype}: {exact.profile.arithmetic}")
                continue
            ours, others = _measured(options, exact, own, tokens)
            for column, (what, wanted) in enumerate(
                ((f"prefill of {PROMPT} tokens", "at most 1.10"), ("decoded token", target))
            ):
                mine = [costs[column] for costs in ours]
                theirs = [costs[column] for costs in others]
                name = f"CPU time of a {what} in {dtype}, exact / own arithmetic"
                yield Figure(model, name, mine, theirs, against(mine, theirs), wanted)


def _measured(
    options: Options, exact: TorchEngine, own: TorchEngine, tokens: int
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    length = PROMPT_QUICK if options.quick else PROMPT
    vocabulary = own.profile.vocabulary
    ids = token_ids(np.random.default_rng(1).integers(0, vocabulary, length))
    ours: list[tuple[float, float]] = []
    others: list[tuple[float, float]] = []
    repetitions = REPETITIONS_QUICK if options.quick else REPETITIONS
    for number in range(-1, repetitions):  # the first round only warms up
        costs = [_costs(engine, ids, tokens) for engine in (own, exact)]
        if number >= 0:
            others.append(costs[0])
            ours.append(costs[1])
    return ours, others


def _costs(engine: TorchEngine, ids: TokenIds, tokens: int) -> tuple[float, float]:
    """Seconds of a cold prefill, and of a decoded token after it."""
    engine.slots[0].resume_at(0)
    start_s = time.process_time()
    for chunk in engine.profile.grid.chunks(0, len(ids)):
        engine.prefill(0, ids[chunk.start : chunk.end])
    prefilled_s = time.process_time()
    for token in ids[:tokens]:
        engine.decode([DecodeInput(0, int(token))])
    return prefilled_s - start_s, (time.process_time() - prefilled_s) / tokens
