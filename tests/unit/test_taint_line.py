"""The taint line and the gates."""

import pytest

from anchorline.domain.anchor import AnchorKind
from anchorline.domain.grid import Grid, Span
from anchorline.domain.taint_line import Gate, TaintLine, Writer

GRID = Grid(8)


def forwarded(
    taint: TaintLine, start: int, end: int, writer: Writer, *, row_invariant: bool = False
) -> TaintLine:
    return taint.forwarded(Span(start, end), writer, GRID, row_invariant)


def test_a_cold_prefill_on_the_grid_writes_clean_rows() -> None:
    taint = TaintLine()

    for chunk in GRID.chunks(0, 19):
        taint = forwarded(taint, chunk.start, chunk.end, Writer.PREFILL)

    assert taint == TaintLine(19)


def test_rows_that_decode_wrote_are_tainted() -> None:
    assert forwarded(TaintLine(19), 19, 20, Writer.DECODE) == TaintLine(19)


def test_decode_taints_on_a_grid_line_as_well() -> None:
    assert forwarded(TaintLine(16), 16, 17, Writer.DECODE) == TaintLine(16)


def test_what_a_prefill_writes_above_a_tainted_row_is_tainted() -> None:
    taint = forwarded(TaintLine(19), 19, 20, Writer.DECODE)

    taint = forwarded(taint, 20, 24, Writer.PREFILL)
    taint = forwarded(taint, 24, 32, Writer.PREFILL)

    assert taint == TaintLine(19)


def test_a_prefill_from_an_off_grid_line_taints() -> None:
    # A cold prefill would have forwarded [16, 24) together, and not [19, 24).
    assert forwarded(TaintLine(19), 19, 24, Writer.PREFILL) == TaintLine(19)


def test_resuming_below_the_taint_line_leaves_only_clean_rows() -> None:
    taint = TaintLine(19).resumed(16)

    assert taint == TaintLine(16)
    assert forwarded(taint, 16, 24, Writer.PREFILL) == TaintLine(24)


def test_resuming_above_the_taint_line_keeps_it() -> None:
    taint = TaintLine(19).resumed(24)

    assert taint == TaintLine(19)
    assert forwarded(taint, 24, 32, Writer.PREFILL) == TaintLine(19)


def test_row_invariant_arithmetic_taints_nothing() -> None:
    taint = forwarded(TaintLine(19), 19, 20, Writer.DECODE, row_invariant=True)
    taint = forwarded(taint, 20, 24, Writer.PREFILL, row_invariant=True)

    assert taint == TaintLine(24)


@pytest.mark.parametrize(
    ("line", "kind", "gate"),
    [
        (16, AnchorKind.GRID, Gate.BITWISE),
        (19, AnchorKind.END, Gate.PRESERVED),  # its last chunk was a short one
        (24, AnchorKind.GRID, Gate.PRESERVED),
        (22, AnchorKind.END, Gate.PRESERVED),
    ],
)
def test_the_gate_is_bitwise_for_grid_anchors_at_or_below_the_taint_line(
    line: int, kind: AnchorKind, gate: Gate
) -> None:
    assert TaintLine(19).gate(line, kind, row_invariant=False) is gate


def test_an_anchor_exactly_at_the_taint_line_is_bitwise() -> None:
    assert TaintLine(16).gate(16, AnchorKind.GRID, row_invariant=False) is Gate.BITWISE


def test_with_row_invariant_arithmetic_an_end_is_bitwise() -> None:
    assert TaintLine(22).gate(22, AnchorKind.END, row_invariant=True) is Gate.BITWISE


def test_a_row_invariant_engine_does_not_make_tainted_state_bitwise() -> None:
    # State that came from elsewhere keeps the line it came with.
    assert TaintLine(16).gate(22, AnchorKind.END, row_invariant=True) is Gate.PRESERVED


def test_gates_are_ordered_by_strictness() -> None:
    ordered = sorted(Gate, key=lambda gate: gate.strictness)

    assert ordered == [Gate.PRESERVED, Gate.BITWISE, Gate.COLD]
