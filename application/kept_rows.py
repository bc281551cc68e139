"""The rows of kept blocks, at every place where they stand."""

from collections.abc import Iterator, Sequence

import numpy as np

from ..domain.anchor import RowsHandle
from ..domain.grid import Span
from ..domain.sums import PartSums, sums_of
from ..ports.engine import Engine
from ..ports.gpu_state import ByteBuffers
from .kept_blocks import KeptBlock


class KeptRows:
    """Reads blocks: their copy first, then the slots they stand in. On the engine thread.

    Take what is asked for before anything moves.
    """

    def __init__(self, engine: Engine) -> None:
        self._states = engine.slots
        self._copies = engine.copies
        self._views = engine.profile.layout.views

    def sums(self, block: KeptBlock, spans: Sequence[Span]) -> Iterator[Sequence[PartSums]]:
        """For each place, the sums of some spans of a block's rows."""
        if block.handle is not None:
            yield self._sums_of_copy(block.span, block.handle, spans)
        for slot in sorted(block.places):
            yield [self._states[slot].row_sums(span) for span in spans]

    def exported(self, block: KeptBlock, span: Span) -> Iterator[ByteBuffers]:
        """For each place, the bytes of a span of a block's rows, copied out."""
        if block.handle is not None:
            yield self._part(self._copy(block.span, block.handle), block.span, span)
        for slot in sorted(block.places):
            buffers = self._buffers(span)
            self._states[slot].export_rows(span, buffers)
            yield buffers

    def _sums_of_copy(
        self, rows: Span, handle: RowsHandle, spans: Sequence[Span]
    ) -> Sequence[PartSums]:
        if all(span == rows for span in spans):
            return [self._copies.row_sums(handle)] * len(spans)
        # Copies are summed up as a whole; of less than that, here.
        copy = self._copy(rows, handle)
        return [
            {name: sums_of(data) for name, data in self._part(copy, rows, span).items()}
            for span in spans
        ]

    def _copy(self, rows: Span, handle: RowsHandle) -> ByteBuffers:
        buffers = self._buffers(rows)
        self._copies.export_rows(handle, buffers)
        return buffers

    def _part(self, copy: ByteBuffers, rows: Span, span: Span) -> ByteBuffers:
        first, end = span.start - rows.start, span.end - rows.start
        return {
            view.name: copy[view.name][first * view.row_bytes : end * view.row_bytes]
            for view in self._views
        }

    def _buffers(self, span: Span) -> ByteBuffers:
        return {
            view.name: np.empty(len(span) * view.row_bytes, dtype=np.uint8) for view in self._views
        }
