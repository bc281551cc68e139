"""A cold prefill on spare state, and what it is held against."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..domain.grid import Grid, Span
from ..domain.layout import View
from ..domain.mismatch import Difference, Kind
from ..domain.tokens import TokenIds
from ..ports.engine import Engine
from ..ports.gpu_state import ByteBuffers, SlotState
from .live_verify_seals import PartSums
from .resident_prefix import ResidentPrefix


@dataclass(slots=True)
class Spare:
    """A slot that no request gets.

    Attributes:
        forwarded: tokens, since the start.
    """

    index: int
    state: SlotState
    resident: ResidentPrefix
    forwarded: int = 0


@dataclass(slots=True)
class Reference:
    """Kept state that a cold prefill of its tokens must give again, bit for bit.

    Attributes:
        ids: at least those of all spans.
        rows: the sums of each span, ascending and without gaps from row 0.
        sections: the lines of anchors, with their sums; each one ends a span.
    """

    ids: TokenIds
    rows: list[tuple[Span, PartSums]] = field(default_factory=list[tuple[Span, PartSums]])
    sections: list[tuple[int, PartSums]] = field(default_factory=list[tuple[int, PartSums]])


def cold_spans(grid: Grid, top: int, lines: Iterable[int]) -> Iterator[Span]:
    """The chunks of a cold prefill of `top` tokens that stops at `lines` too.

    Only row-invariant arithmetic has anchors off the grid that are bitwise; it may stop anywhere.
    """
    start = 0
    for stop in sorted({*lines, top}):
        yield from grid.chunks(start, stop)
        start = stop


def recompute(engine: Engine, spare: Spare, reference: Reference) -> Generator[Difference | None]:
    """Prefill the reference's tokens cold, a chunk at a time; after each, how it departs.

    Nothing else may use the spare slot in between.

    Raises:
        EngineError: a forward failed.
    """
    state = spare.state
    state.resume_at(0)
    for span, expected in reference.rows:
        engine.prefill(spare.index, reference.ids[span.start : span.end])
        spare.forwarded += len(span)
        part = departing(expected, state.row_sums(span))
        if part is not None:
            yield Difference(Kind.BITWISE_ROWS, span.end, part, span.start)
        for line, sections in reference.sections:
            part = departing(sections, state.section_sums()) if line == span.end else None
            if part is not None:
                yield Difference(Kind.BITWISE_SECTIONS, line, part)
        yield None


def departing(expected: PartSums, found: PartSums) -> str | None:
    """The first part whose sums are not as expected."""
    return next((name for name, sums in expected.items() if found.get(name) != sums), None)


def first_row(
    views: Sequence[View], span: Span, kept: ByteBuffers, cold: ByteBuffers
) -> tuple[str, int] | None:
    """The view and the row that depart first; None if none does."""
    found: list[tuple[int, int]] = []
    for order, view in enumerate(views):
        shape = (len(span), view.row_bytes)
        differ = (kept[view.name].reshape(shape) != cold[view.name].reshape(shape)).any(axis=1)
        if differ.any():
            found.append((span.start + int(differ.argmax()), order))
    if not found:
        return None
    row, order = min(found)
    return views[order].name, row


def exported_rows(state: SlotState, views: Sequence[View], span: Span) -> ByteBuffers:
    """The bytes of some rows, copied out."""
    buffers = {view.name: np.empty(len(span) * view.row_bytes, dtype=np.uint8) for view in views}
    state.export_rows(span, buffers)
    return buffers
