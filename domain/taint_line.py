"""The taint line and the gates: what may be said about a state.

Ordinary kernels give a row other bits when another number of rows is forwarded with it. So rows
that a cold prefill on the grid wrote are *clean*: any other cold prefill of the same tokens writes
the same bits. Rows that decode wrote, and everything a prefill wrote above such a row, are
tainted: they are what the conversation's own run wrote, and no more is claimed of them.

    rows   0 ............ taint ............ length
           clean          tainted
"""

import enum
from dataclasses import dataclass

from .anchor import AnchorKind
from .grid import Grid, Span


class Gate(enum.Enum):
    """What a response's state is equal to, from the strictest."""

    BITWISE = "bitwise"
    """Logits, sections and rows equal a cold prefill's on the same grid, bit for bit."""

    PRESERVED = "preserved"
    """The very bytes the engine held: equal, bit for bit, to never having left."""

    COLD = "cold"
    """Nothing was resumed."""

    @property
    def strictness(self) -> int:
        """Higher is stricter; a cold prefill is its own reference."""
        return {Gate.COLD: 2, Gate.BITWISE: 1, Gate.PRESERVED: 0}[self]


class Writer(enum.Enum):
    """What kind of forward wrote a row."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class TaintLine:
    """The lowest row that no cold grid prefill wrote; equal to the length when all are clean."""

    line: int = 0

    def resumed(self, line: int) -> "TaintLine":
        """After the state was set to `line`: rows above it no longer count."""
        return TaintLine(min(self.line, line))

    def forwarded(self, span: Span, writer: Writer, grid: Grid, row_invariant: bool) -> "TaintLine":
        """After a forward wrote the rows of `span`.

        The rows stay clean when all rows below are, and a prefill wrote them from a grid line.
        An engine whose arithmetic is row-invariant writes the same bits however many rows are
        forwarded together: nothing it writes is tainted.
        """
        starts_clean = self.line == span.start
        on_grid = writer is Writer.PREFILL and grid.has(span.start)
        if starts_clean and (on_grid or row_invariant):
            return TaintLine(span.end)
        return self

    def gate(self, line: int, kind: AnchorKind, row_invariant: bool) -> Gate:
        """The gate under which a state resumes at an anchor of `kind` at `line`."""
        if line > self.line:
            return Gate.PRESERVED
        if kind is AnchorKind.GRID or row_invariant:
            return Gate.BITWISE
        return Gate.PRESERVED
