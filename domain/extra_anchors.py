"""Anchors beside those that prefill chunks leave at grid lines: few, so the best of them stay.

    prompt, answer, prompt, answer, ...
           |       |       |   :              | where a prompt or a generation ended
                                              : where decode passed a grid line

Each is worth what an entry is worth by `domain.entry_value`: the tokens down to the next anchor
below it, which a request that parts right above it would read again, as often as that happened and
once more, halved with each turn in which it did not. A client goes back to where a message ended
far more often than into an answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .entry_value import saving

INSIDE_ODDS: Final = 0.25
"""Of an anchor inside an answer, against one where a message ended."""


@dataclass(slots=True)
class _Use:
    """What is known of an anchor's use.

    Attributes:
        turn: in which it was taken, or last resumed from.
    """

    odds: float
    turn: int
    hits: int = 0


class ExtraAnchors:
    """Which lines of a slot's conversation have such an anchor, and what each is worth."""

    def __init__(self) -> None:
        """None has one."""
        self._uses: dict[int, _Use] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._uses)

    @property
    def lines(self) -> set[int]:
        """All of them."""
        return set(self._uses)

    def add(self, line: int, *, boundary: bool) -> None:
        """An anchor is taken.

        Args:
            boundary: a prompt or a generation ended there.
        """
        self._uses[line] = _Use(1.0 if boundary else INSIDE_ODDS, self._turn)

    def discard(self, line: int) -> None:
        """Its anchor has gone, if it had one."""
        self._uses.pop(line, None)

    def used(self, line: int) -> None:
        """A request has resumed there; of no interest where the line has no such anchor."""
        use = self._uses.get(line)
        if use is not None:
            use.hits += 1
            use.turn = self._turn

    def turn_ended(self) -> None:
        """What was not used in it is a turn older."""
        self._turn += 1

    def least(self, standing: Iterable[int]) -> int:
        """The line whose anchor is worth least; the lower one of two. There is one.

        Args:
            standing: lines of all anchors of the conversation.
        """
        below: dict[int, int] = {}
        last = 0
        for line in sorted(standing):
            below[line], last = last, line
        return min(self._uses, key=lambda line: (self._value(line, below[line]), line))

    def _value(self, line: int, below: int) -> float:
        use = self._uses[line]
        return saving(line - below, use.hits, self._turn - use.turn, use.odds)
