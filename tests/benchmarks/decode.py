"""Decode speed through the scheduler, against transformers' own `generate` of the same model.

Both write the same number of tokens greedily after the same prompt, in fp32 and with the same
threads. What is compared is the time from the first token to the last, so no prefill counts.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
import transformers
from report import Figure, Options, against
from served import Cost, Moment, decode_cost, ids_request, now, parts_of, random_ids
from transformers.utils import logging as transformers_logging

from anchorline.application.scheduler import Scheduler
from anchorline.container import Server
from anchorline.domain.tokens import TokenIds
from anchorline.ports.engine import DecodeInput

PROMPTS = (256, 2048)
"""Tokens before the answer."""

PROMPTS_QUICK = (256,)
TOKENS = {"toy": 512, "smollm2": 96}
TOKENS_OTHER = 128
TOKENS_QUICK = 16
REPETITIONS = 7
REPETITIONS_QUICK = 3
TARGET = "at least 0.95"


def figures(options: Options) -> Iterator[Figure]:
    """Tokens a second by the clock, and for each second of all cores."""
    for model in options.models:
        tokens = TOKENS_QUICK if options.quick else TOKENS.get(model, TOKENS_OTHER)
        repetitions = REPETITIONS_QUICK if options.quick else REPETITIONS
        parts = parts_of(model)
        vocabulary = parts.engine().profile.vocabulary
        bare = Bare(str(parts.location().source))
        for length in PROMPTS_QUICK if options.quick else PROMPTS:
            prompt = random_ids(length, below=vocabulary, seed=1)
            costs = _measured(options, model, parts, bare, prompt, tokens, repetitions)
            for name in ("scheduler", "engine alone"):
                what = f"decode speed after {length:,} tokens, {name} / `generate`"
                target = TARGET if name == "scheduler" else ""
                yield _figure(model, f"{what}, wall", costs[name], costs["bare"], target, wall)
                yield _figure(model, f"{what}, CPU", costs[name], costs["bare"], target, cpu)


def _measured(
    options: Options,
    model: str,
    parts: Server,
    bare: "Bare",
    prompt: TokenIds,
    tokens: int,
    repetitions: int,
) -> dict[str, list[Cost]]:
    scheduler, admission = parts.scheduler(), parts.admission()

    def by_scheduler() -> Cost:
        return decode_cost(
            scheduler, ids_request(admission, prompt, max_tokens=tokens, salt="decode")
        )

    ways: dict[str, Callable[[], Cost]] = {
        "scheduler": by_scheduler,
        "bare": lambda: bare.cost(prompt, tokens),
        "engine alone": lambda: _by_engine(parts, scheduler, prompt, tokens),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for number in range(-1, repetitions):  # the first round only warms up
        options.progress(f"decode: {model}, {len(prompt)} tokens, {number + 1} of {repetitions}")
        # Turned round each time, so that none always comes after the same other one.
        order = list(ways) if number % 2 else list(reversed(ways))
        for name in order:
            cost = ways[name]()
            if number >= 0:
                costs[name].append(cost)
    return costs


def _by_engine(parts: Server, scheduler: Scheduler, prompt: TokenIds, tokens: int) -> Cost:
    """The engine's forwards and `argmax` alone; the scheduler's slot is to forget what it held."""
    engine = parts.engine()
    slot = scheduler.slots[0]
    slot.resident.forget()
    engine.slots[0].resume_at(0)
    logits = np.zeros(0, dtype=np.float32)
    for chunk in engine.profile.grid.chunks(0, len(prompt)):
        logits = engine.prefill(0, prompt[chunk.start : chunk.end])
    first = now()
    for _ in range(tokens - 1):
        logits = engine.decode([DecodeInput(0, int(logits.argmax()))])[0]
    return first.until(now(), tokens - 1)


class Bare:
    """The model as transformers loads and runs it."""

    def __init__(self, source: str) -> None:
        transformers_logging.disable_progress_bar()
        load = cast("Any", transformers.AutoModelForCausalLM).from_pretrained
        self._model: Any = load(source, dtype=torch.float32).eval()
        # Nothing ends it early, and nothing is looked for on the way.
        self._model.generation_config = transformers.GenerationConfig(
            do_sample=False, use_cache=True, pad_token_id=0
        )

    def cost(self, prompt: TokenIds, tokens: int) -> Cost:
        """Generate exactly `tokens` tokens; what each after the first cost."""
        ids = torch.tensor(prompt.astype(np.int64)[None])
        marks = Marks()
        with torch.inference_mode():
            out = self._model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, streamer=marks
            )
        assert out.shape[1] == len(prompt) + tokens, f"{out.shape[1] - len(prompt)} tokens came"
        return marks.moments[1].until(marks.moments[-1], tokens - 1)


class Marks:
    """A streamer that notes when it is told of the prompt, of each token and of the end."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def put(self, value: object) -> None:
        """Something came."""
        del value
        self.moments.append(now())

    def end(self) -> None:
        """Nothing more will come."""
        self.moments.append(now())


def wall(cost: Cost) -> float:
    """Seconds by the clock."""
    return cost.wall_s


def cpu(cost: Cost) -> float:
    """Seconds of all cores."""
    return cost.cpu_s


def _figure(
    model: str,
    name: str,
    ours: Sequence[Cost],
    bare: Sequence[Cost],
    target: str,
    seconds_of: Callable[[Cost], float],
) -> Figure:
    """A ratio of speeds: the times stand the other way round."""
    ours_s, bare_s = [seconds_of(cost) for cost in ours], [seconds_of(cost) for cost in bare]
    return Figure(model, name, bare_s, ours_s, against(ours_s, bare_s, what=" a token"), target)
