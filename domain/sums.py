"""Two 64-bit sums of a part's bytes: an identity among honest states of the same tokens.

The plain sum misses exchanged words; index weights miss (+1, -2, +1) on neighbours. So the second
sum weighs each word by an odd number from splitmix64 of its index: fixed by `SUMS_VERSION`, the
same on every machine, so that states can be compared across processes and stores.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

SUMS_VERSION: Final = 1
WORD_COUNT: Final = 1 << 64
"""How many different words there are; sums are modulo it."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of one part, both modulo 2**64."""

    plain: int
    weighted: int

    def __add__(self, other: "Sums") -> "Sums":
        """The sums of a part from those of two pieces of it, each with its own words' weights."""
        return Sums(
            (self.plain + other.plain) % WORD_COUNT, (self.weighted + other.weighted) % WORD_COUNT
        )


NO_SUMS: Final = Sums(0, 0)
"""Of no bytes."""

PartSums: TypeAlias = Mapping[str, Sums]
"""By the name of a view or a section, in the layout's order."""


def weights(count: int) -> npt.NDArray[np.uint64]:
    """The odd weights of words 0 .. count-1, from splitmix64 (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) | np.uint64(1)


def sums_of(data: npt.NDArray[np.uint8]) -> Sums:
    """The sums over little-endian 64-bit words; a short last word is filled with zeros.

    Args:
        data: flat, contiguous bytes; not modified.
    """
    whole = len(data) // 8 * 8
    words = data[:whole].view("<u8")
    if whole < len(data):
        tail = np.zeros(8, dtype=np.uint8)
        tail[: len(data) - whole] = data[whole:]
        words = np.concatenate([words, tail.view("<u8")])
    with np.errstate(over="ignore"):
        return Sums(
            plain=int(words.sum(dtype=np.uint64)),
            weighted=int((words * weights(len(words))).sum(dtype=np.uint64)),
        )
