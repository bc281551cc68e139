"""How many anchors a resident conversation keeps, and which one goes first.

lines   protected every 4 G      body (spread)        newest 4
        |       |       |     |     |    |     |      | | | |
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from .grid import Grid

PIN_STRIDE: Final = 4
"""Grid steps between the lines that are protected for a pinned head."""

PIN_REACH: Final = 32
"""Grid steps up to which such lines are protected."""


@dataclass(frozen=True, slots=True)
class AnchorBudget:
    """Bytes for the grid anchors of one resident conversation.

    Attributes:
        bytes_max: what they may hold together.
        count_min: kept even where `bytes_max` is smaller; more than `newest_kept`.
        count_max: kept at most, for models whose anchors cost nothing.
        newest_kept: the newest anchors, which are never dropped: the next turn resumes near them.
    """

    bytes_max: int
    count_min: int = 5
    count_max: int = 4096
    newest_kept: int = 4

    def __post_init__(self) -> None:
        if not self.newest_kept < self.count_min <= self.count_max:
            raise ValueError(
                f"{self.newest_kept} newest anchors, at least {self.count_min} and at most "
                f"{self.count_max} in all are no budget"
            )

    def capacity(self, anchor_bytes: int) -> int:
        """How many anchors of `anchor_bytes` each may stand at once."""
        if anchor_bytes == 0:
            return self.count_max
        return min(self.count_max, max(self.count_min, self.bytes_max // anchor_bytes))


def pin_lines(grid: Grid) -> frozenset[int]:
    """The lines that a head pinned later will want."""
    stride = PIN_STRIDE * grid.step
    return frozenset(range(stride, PIN_REACH * grid.step + 1, stride))


def line_to_drop(
    lines: Sequence[int],
    newest_kept: int,
    pinned: Collection[int] = (),
    junctions: Collection[int] = (),
) -> int:
    """The line whose anchor goes when one must.

    From the lines below the newest, the one whose removal leaves the smallest gap, so that what
    stays is spread over the prompt. Lines kept for a pin go only when no other is left, and
    junctions (where prompts are known to part) only after those: a budget is a limit, and a
    preference gives way to it.

    Args:
        lines: ascending, without repeats; more than `newest_kept` of them.
    """
    body = list(lines[: len(lines) - newest_kept])
    if not body:
        raise ValueError(f"{len(lines)} anchors, and the newest {newest_kept} are never dropped")
    plain = [line for line in body if line not in pinned and line not in junctions]
    no_junction = [line for line in body if line not in junctions]
    candidates = plain or no_junction or body
    below = dict(zip(lines, (0, *lines), strict=False))
    above = dict(zip(lines, (*lines[1:], lines[-1]), strict=True))
    return min(candidates, key=lambda line: (above[line] - below[line], line))


@lru_cache(maxsize=64)
def spread_lines(
    lines: tuple[int, ...],
    count: int,
    newest_kept: int,
    pinned: frozenset[int] = frozenset(),
    junctions: frozenset[int] = frozenset(),
) -> tuple[int, ...]:
    """So many of the lines: the newest, and of the others some, spread over the prompt.

    What stays when `line_to_drop` has said often enough which goes. Remembered: one decision about
    a conversation asks for it several times, and each takes milliseconds where anchors are many.
    """
    left = list(lines)
    while len(left) > count:
        left.remove(line_to_drop(left, newest_kept, pinned, junctions))
    return tuple(left)
