"""How fast this process prefills: a moving median, with a prior before the first sample."""

from collections import deque
from statistics import median
from typing import Final

SAMPLES: Final = 9
"""Recent samples a median is taken of, per length: robust against one slow chunk on a busy box."""


class PrefillRate:
    """Seconds a prefill will take, by what chunks took so far.

    Chunks high in the context cost more than low ones, so samples are kept per power of two of the
    position they started at, and the nearest position with samples answers.
    """

    def __init__(self, tokens_per_s_prior: float):
        """Takes the rate that is assumed before the first sample."""
        self._prior = tokens_per_s_prior
        self._samples: dict[int, deque[float]] = {}

    def observe(self, start: int, tokens: int, seconds: float) -> None:
        """Record that `tokens` rows from `start` took `seconds`. Ignores empty measurements."""
        if tokens > 0 and seconds > 0:
            bucket = self._samples.setdefault(start.bit_length(), deque(maxlen=SAMPLES))
            bucket.append(tokens / seconds)

    def tokens_per_s(self, position: int) -> float:
        """The rate expected for rows at `position`."""
        if not self._samples:
            return self._prior
        wanted = position.bit_length()
        nearest = min(self._samples, key=lambda have: (abs(have - wanted), have))
        return median(self._samples[nearest])

    def seconds(self, start: int, end: int) -> float:
        """How long prefilling [start, end) is expected to take."""
        return max(end - start, 0) / self.tokens_per_s(end)
