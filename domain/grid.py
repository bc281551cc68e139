"""Lines, spans, and the grid prefills run on.

A *line* is a number of tokens: the state at line L has absorbed tokens 0 .. L-1. The grid is
counted from absolute position 0, never from a resume point: else one misaligned resume would
misalign every prefill after it.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The half-open range of rows [start, end)."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"[{self.start}, {self.end}) is not a span")

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Grid:
    """The lines that are multiples of `step` tokens."""

    step: int

    def __post_init__(self) -> None:
        if self.step < 1:
            raise ValueError(f"a grid step of {self.step} tokens is not positive")

    def has(self, line: int) -> bool:
        return line % self.step == 0

    def floor(self, line: int) -> int:
        """The largest grid line at or below `line`."""
        return line - line % self.step

    def ceil(self, line: int) -> int:
        """The smallest grid line at or above `line`."""
        return -(-line // self.step) * self.step

    def chunk(self, start: int, end: int) -> Span:
        """The first chunk of a prefill of [start, end): up to the next grid line, or to `end`."""
        if start >= end:
            raise ValueError(f"nothing is left to prefill between {start} and {end}")
        return Span(start, min(self.floor(start) + self.step, end))

    def chunks(self, start: int, end: int) -> Iterator[Span]:
        """The chunks a prefill of [start, end) runs; from an off-grid start the first is short."""
        while start < end:
            chunk = self.chunk(start, end)
            yield chunk
            start = chunk.end

    def lines(self, start: int, end: int) -> range:
        """The grid lines in (start, end]."""
        return range(self.floor(start) + self.step, end + 1, self.step)
