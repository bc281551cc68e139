"""What the rows in a slot are, block by block: their sums, and the content chain that these make.

A stored object's name says over which rows it stands, so the sums of all rows below it come before
it. They are taken anew by each write: sums that were remembered from one write to the next would,
where rows had changed meanwhile, name another history's objects and find them stored.
"""

from collections.abc import Sequence

from ..domain.content_chain import NO_ROWS, ContentChain, link
from ..domain.grid import Span
from ..domain.layout import Layout
from ..domain.object_header import PartRecord
from ..domain.object_name import content_digest
from ..ports.gpu_state import ByteBuffers, Look
from .object_parts import PartSpec, draft_parts, row_parts
from .write_source import RowSource


class RowSums:
    """The blocks of one state, whose rows must not change below `cut`. On the engine thread."""

    def __init__(self, source: RowSource, layout: Layout, spans: Sequence[Span]) -> None:
        """Takes the blocks' spans, ascending and without gaps from row 0; sums nothing yet."""
        self._source = source
        self._layout = layout
        self._unsummed = list(spans)
        self._parts: dict[Span, tuple[PartRecord, ...]] = {}
        self._chains: dict[int, ContentChain] = {0: NO_ROWS}
        self._specs: dict[int, tuple[PartSpec, ...]] = {}

    def ends_at(self, line: int) -> bool:
        """Whether a block ends at a line, and its rows are there: no other line has a chain."""
        return line in self._chains or any(span.end == line for span in self._unsummed)

    def is_known(self, line: int) -> bool:
        """Whether the content chain of a line is there, and so all rows below are summed up."""
        return line in self._chains

    def chain(self, line: int) -> ContentChain:
        """The content chain of the rows below a line where a block `ends_at`."""
        while line not in self._chains:
            self.sum_next()
        return self._chains[line]

    def specs(self, span: Span) -> tuple[PartSpec, ...]:
        """What the parts of a block are; all blocks but the last one have the same."""
        if len(span) not in self._specs:
            self._specs[len(span)] = row_parts(self._layout.views, len(span))
        return self._specs[len(span)]

    def is_summed(self, span: Span) -> bool:
        """Whether a block's name is known without another look at any rows."""
        return span in self._parts

    def export(self, span: Span, buffers: ByteBuffers, look: Look | None) -> tuple[PartRecord, ...]:
        """Copy a block's rows out, and take their sums on the way.

        Args:
            look: see `StateTransfer.export_summed_rows`.

        Returns:
            The records of its parts as they stand now, whatever was known of them.
        """
        self.chain(span.start)
        sums = self._source.export_summed_rows(span, buffers, look)
        found = draft_parts(self.specs(span), sums)
        if span in self._unsummed:
            self._unsummed.remove(span)
            self._take(span, found)
        return found

    def take_parts(self, span: Span) -> tuple[PartRecord, ...]:
        """The records of a block's parts, which are asked for once."""
        self.chain(span.end)
        return self._parts.pop(span)

    def cut(self, line: int) -> None:
        """Rows from `line` on are about to be overwritten: what was known of them is not true."""
        self._unsummed = [span for span in self._unsummed if span.end <= line]
        self._parts = {span: parts for span, parts in self._parts.items() if span.end <= line}
        self._chains = {end: chain for end, chain in self._chains.items() if end <= line}

    def sum_next(self) -> None:
        """Take the sums of the lowest block that has none."""
        span = self._unsummed.pop(0)
        self._take(span, draft_parts(self.specs(span), self._source.row_sums(span)))

    def _take(self, span: Span, parts: tuple[PartRecord, ...]) -> None:
        """The records of a block above one that was taken before."""
        self._parts[span] = parts
        self._chains[span.end] = link(self._chains[span.start], content_digest(parts), span.end)
