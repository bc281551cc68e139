"""Choosing the next token from its logits.

Every draw is a function of the logits, the parameters, the seed and the token's position alone: a
generation that goes on after a resume, or on another slot, draws what it would have drawn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from .tokens import TokenIds

Logits: TypeAlias = npt.NDArray[np.float32]
"""Shape (vocabulary,): the scores of the token that follows the last forwarded one."""

GREEDY_BELOW: Final = 1e-5
"""Lower temperatures draw greedily: logits divided by the least of them are no numbers."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn; the defaults draw greedily.

    Attributes:
        temperature: 0, or below `GREEDY_BELOW`, is greedy; logits are divided by it otherwise.
        top_p: keep the most likely tokens that hold this mass; 1 keeps all.
        top_k: keep this many most likely tokens; 0 keeps all.
        min_p: drop tokens less likely than this fraction of the likeliest; 0 keeps all.
        seed: 64 bits.
        repetition_penalty: divides positive and multiplies negative logits of tokens that the
            prompt or the output holds (Keskar et al. 2019); 1 changes nothing.
        presence_penalty: taken from the logits of tokens the output holds.
        frequency_penalty: the same, once per occurrence.
        logit_bias: added to the logits of these ids.
        top_logprobs: how many alternatives a report lists; None reports nothing.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    top_logprobs: int | None = None

    @property
    def penalised(self) -> bool:
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


@dataclass(frozen=True, slots=True)
class Sampled:
    """A drawn token, with the model's own log probabilities where they were asked for.

    Attributes:
        logprob: of `token` under the model's logits, before any parameter touched them.
        top: the likeliest tokens and their log probabilities, likeliest first.
    """

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Draws the tokens of one generation and remembers what penalties need."""

    def __init__(self, params: SamplingParams, prompt: TokenIds, vocabulary: int):
        """Counts the prompt's tokens if a penalty asks for it; the prompt is not kept."""
        self._params = params
        self._bias_ids = np.fromiter(params.logit_bias.keys(), dtype=np.int64)
        self._bias = np.fromiter(params.logit_bias.values(), dtype=np.float32)
        self._seen: npt.NDArray[np.bool_] | None = None
        self._written: npt.NDArray[np.int32] | None = None
        if params.penalised:
            self._seen = np.zeros(vocabulary, dtype=np.bool_)
            self._seen[prompt] = True
            self._written = np.zeros(vocabulary, dtype=np.int32)

    def draw(self, logits: Logits, position: int) -> Sampled:
        """The token at `position` of the sequence, counted for the penalties of later ones.

        Args:
            logits: not modified.
            position: the line the token will stand at; it keys the draw together with the seed.
        """
        params = self._params
        shaped = self._shaped(logits)
        if params.temperature < GREEDY_BELOW:
            token = int(shaped.argmax())
        else:
            token = _drawn(shaped, params, position)
        if self._seen is not None and self._written is not None:
            self._seen[token] = True
            self._written[token] += 1
        if params.top_logprobs is None:
            return Sampled(token)
        return _with_logprobs(token, logits, params.top_logprobs)

    def _shaped(self, logits: Logits) -> Logits:
        """The logits under penalties and biases; the same array where there are none."""
        params = self._params
        if self._seen is None and not len(self._bias_ids):
            return logits
        shaped = logits.copy()
        if self._seen is not None and self._written is not None:
            penalty = np.float32(params.repetition_penalty)
            seen: Logits = shaped[self._seen]
            shaped[self._seen] = np.where(seen > 0, seen / penalty, seen * penalty)
            shaped -= np.float32(params.frequency_penalty) * self._written
            shaped -= np.float32(params.presence_penalty) * (self._written > 0)
        if len(self._bias_ids):
            shaped[self._bias_ids] += self._bias
        return shaped


def _drawn(logits: Logits, params: SamplingParams, position: int) -> int:
    """One draw from the truncated distribution, by inversion of its cumulative mass."""
    scaled = logits.astype(np.float64) / params.temperature
    order = _candidates(scaled, params.top_k)
    weights = np.exp(scaled[order] - scaled[order[0]])
    if params.min_p > 0.0:
        weights = weights[: max(1, int((weights >= params.min_p).sum()))]
    if params.top_p < 1.0:
        # The smallest set that reaches the mass: the token that crosses it stays.
        weights = weights[: _index_at(weights, params.top_p, "left") + 1]
    return int(order[_index_at(weights, uniform(params.seed, position), "right")])


def _index_at(
    weights: npt.NDArray[np.float64], fraction: float, side: Literal["left", "right"]
) -> int:
    """The index at which the cumulative mass reaches `fraction` of the whole."""
    mass: npt.NDArray[np.float64] = np.cumsum(weights)
    at = int(np.searchsorted(mass, fraction * float(mass[-1]), side=side))
    return min(at, len(weights) - 1)


def _candidates(scaled: npt.NDArray[np.float64], top_k: int) -> npt.NDArray[np.intp]:
    """Token ids from the likeliest; equal scores in ascending order of id."""
    if 0 < top_k < len(scaled):
        # By the score at the cut: `argpartition` takes any of those that tie there.
        lowest = np.partition(scaled, -top_k)[-top_k]
        best = np.flatnonzero(scaled >= lowest)
        return best[np.argsort(-scaled[best], kind="stable")][:top_k]
    return np.argsort(-scaled, kind="stable")


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), the same for the same seed and position (Philox, Salmon et al. 2011)."""
    key = np.array([seed & 0xFFFF_FFFF_FFFF_FFFF, position], dtype=np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key)).random())


def _with_logprobs(token: int, logits: Logits, count: int) -> Sampled:
    wide = logits.astype(np.float64)
    peak = float(wide.max())
    logprobs = wide - peak - math.log(float(np.exp(wide - peak).sum()))
    order = _candidates(logprobs, count) if count else np.empty(0, dtype=np.intp)
    top = tuple((int(index), float(logprobs[index])) for index in order[:count])
    return Sampled(token, float(logprobs[token]), top)


def invalid_ids(ids: Sequence[int], vocabulary: int) -> list[int]:
    """The ids a model with `vocabulary` tokens does not have."""
    return [index for index in ids if not 0 <= index < vocabulary]
