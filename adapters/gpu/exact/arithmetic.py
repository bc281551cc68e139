"""Which arithmetic a model is served with: its own, on the grid, or a row-invariant one."""

import time
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from torch import nn
from transformers import PreTrainedConfig

from ....domain.errors import EngineError, ModelRefused
from ....ports.engine import DecodeInput
from ..cache_layers import LayerFactory, LayerReading, layers_of
from ..torch_engine import TorchEngine
from .attention import KEY_BLOCK
from .binding import Binding
from .proof import Scores, proof_ids, prove
from .verdict import Verdict, VerdictStore

ArithChoice: TypeAlias = Literal["auto", "exact", "grid"]

READING: Final = LayerReading(block=KEY_BLOCK, always_begun=True)

DECODE_COST_MAX: Final = 1.25
"""Of the model's own time for a token: above it `auto` stays with the grid."""

COST_PROMPT: Final = 64
COST_TOKENS: Final = 8
COST_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What a model's engine is made with.

    Attributes:
        layers: None for those of the model's config.
        exact: whether rows are proved to be independent of what is forwarded with them.
        report: what was decided and why, in words.
    """

    layers: LayerFactory | None
    exact: bool
    report: str


@dataclass(frozen=True, slots=True)
class _Run:
    """What an engine gave and took.

    Attributes:
        logits: after each of the first tokens of the proof, which were a prefill.
        prefill_s: time of that prefill, the best of several.
        decode_s: time of a decoded token, likewise.
    """

    logits: Scores
    prefill_s: float
    decode_s: float


def choose_arithmetic(
    model: nn.Module,
    config: PreTrainedConfig,
    choice: ArithChoice,
    *,
    window: int,
    verdicts: VerdictStore,
) -> Arithmetic:
    """Bind the model to exact arithmetic if that is asked for and can be proved.

    Args:
        model: bound on return exactly if the result is exact.
        config: the model's.
        choice: `exact` takes it wherever the proof passes, `auto` where it is also fast enough.
        window: tokens that the engine will hold.
        verdicts: of earlier starts with the same model on the same machine.
    """
    if choice == "grid":
        return Arithmetic(None, exact=False, report="grid: the model's own arithmetic")
    verdict, binding = verdicts.find(), None
    if verdict is None:
        verdict, binding = _examined(model, config, window)
        verdicts.keep(verdict)
    if verdict.passed and (choice == "exact" or verdict.decode_cost <= DECODE_COST_MAX):
        if binding is None:
            Binding(model)
        layers = layers_of(config, READING)
        return Arithmetic(layers, exact=True, report=f"exact: {verdict.in_words()}")
    if binding is not None:
        binding.undo()
    return Arithmetic(None, exact=False, report=f"grid: {verdict.in_words()}")


def _examined(
    model: nn.Module, config: PreTrainedConfig, window: int
) -> tuple[Verdict, Binding | None]:
    """The verdict on a model, and what it is bound by if it passed."""
    start = time.perf_counter()
    binding: Binding | None = None
    try:
        own = _run(model, layers_of(config), window)
        binding = Binding(model)
        layers = layers_of(config, READING)
        exact = _run(model, layers, window)
        stock = own.logits if _is_float32(model) else None
        departed = prove(model, layers, window=window, stock=stock)
    except (RuntimeError, TypeError, EngineError, ModelRefused) as error:
        # Whatever a model's own code raises when some of it is replaced.
        if binding is not None:
            binding.undo()
        seconds = time.perf_counter() - start
        return Verdict(f"it has no exact form: {error}", 0.0, 0.0, seconds), None
    verdict = Verdict(
        departed,
        decode_cost=exact.decode_s / own.decode_s,
        prefill_cost=exact.prefill_s / own.prefill_s,
        seconds=time.perf_counter() - start,
    )
    if verdict.passed:
        return verdict, binding
    binding.undo()
    return verdict, None


def _is_float32(model: nn.Module) -> bool:
    """Whether logits can be compared: honest bfloat16 arithmetic differs by several percent."""
    return all(parameter.itemsize == 4 for parameter in model.parameters())


def _run(model: nn.Module, layers: LayerFactory, window: int) -> _Run:
    """A short prefill and some tokens after it, in time of this process."""
    prompt, tokens = min(COST_PROMPT, window // 2), min(COST_TOKENS, window // 4)
    engine = TorchEngine(model, window=prompt + tokens, grid=prompt, layers=layers, weights="")
    ids = proof_ids(engine.profile.vocabulary, prompt)
    state = engine.slots[0]
    prefill_s = decode_s = float("inf")
    logits = engine.score(0, ids)
    for _ in range(COST_ROUNDS):
        state.resume_at(0)
        start = time.process_time()
        engine.prefill(0, ids)
        prefilled = time.process_time()
        for token in ids[:tokens]:
            engine.decode([DecodeInput(0, int(token))])
        decode_s = min(decode_s, (time.process_time() - prefilled) / tokens)
        prefill_s = min(prefill_s, prefilled - start)
    return _Run(logits, prefill_s, decode_s)
