"""A cold prefill on spare state, and what it is held against."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..domain.anchor import Anchor
from ..domain.grid import Grid, Span
from ..domain.layout import View
from ..domain.mismatch import Difference, Kind
from ..domain.sums import PartSums
from ..domain.taint_line import Gate, TaintLine
from ..domain.tokens import TokenIds
from ..ports.engine import Engine, EngineProfile
from ..ports.gpu_state import ByteBuffers, SlotState, StateCopies
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
        rows: the sums of each span, ascending and without gaps from row 0; as many as there are
            places where its rows stand.
        sections: the lines of anchors, with their sums; each one ends a span.
    """

    ids: TokenIds
    rows: list[tuple[Span, Sequence[PartSums]]] = field(
        default_factory=list[tuple[Span, Sequence[PartSums]]]
    )
    sections: list[tuple[int, PartSums]] = field(default_factory=list[tuple[int, PartSums]])


def hold_anchors(
    reference: Reference,
    anchors: Callable[[], Sequence[Anchor]],
    taint: TaintLine,
    profile: EngineProfile,
    copies: StateCopies,
    seal_of: Callable[[Anchor], PartSums | None] | None,
) -> Generator[Difference | None]:
    """Take the sums of the anchors that a cold prefill must give again; hold the rest to its seals.

    Args:
        reference: filled in.
        anchors: those that are left; some may have to make room meanwhile.
        seal_of: each of them is to have one; None where nobody sealed any.
    """
    for anchor in anchors():
        if anchor not in anchors():
            continue
        found = copies.section_sums(anchor.handle)
        gate = taint.gate(anchor.line, anchor.kind, profile.row_invariant)
        if gate is Gate.BITWISE:
            reference.sections.append((anchor.line, found))
            yield None
        elif seal_of is not None:
            sealed = seal_of(anchor)
            # What nobody sealed is the copy of another anchor.
            part = next(iter(found), None) if sealed is None else departing(sealed, found)
            yield difference_of(Kind.PRESERVED_SECTIONS, anchor.line, part)


def hold_rows(
    reference: Reference,
    top: int,
    grid: Grid,
    sums: Callable[[Span], Sequence[PartSums]],
) -> Generator[None]:
    """Take the sums of the rows below `top`, all of which a cold prefill must give again.

    Args:
        reference: filled in; its anchors are there already.
        sums: of a span, at each place where its rows stand.
    """
    for span in cold_spans(grid, top, [line for line, _ in reference.sections]):
        reference.rows.append((span, sums(span)))
        yield None


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
    for span, stood in reference.rows:
        engine.prefill(spare.index, reference.ids[span.start : span.end])
        spare.forwarded += len(span)
        cold = state.row_sums(span)
        part = next(filter(None, (departing(expected, cold) for expected in stood)), None)
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


def difference_of(
    kind: Kind, line: int, part: str | None, row: int | None = None
) -> Difference | None:
    """What departs, if any part does."""
    return None if part is None else Difference(kind, line, part, row)


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
