"""What is known of rows before they are stored, and what is forgotten when they change."""

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.row_sums import RowSums
from anchorline.domain.content_chain import NO_ROWS
from anchorline.domain.grid import Span
from anchorline.domain.tokens import token_ids
from anchorline.ports.engine import DecodeInput

GRID, LENGTH = 8, 37
PARTS = pytest.mark.parametrize("parts", list(Parts))


def an_engine(parts: Parts = Parts.HYBRID) -> CheckableEngine:
    """Its slot has read `LENGTH` tokens, chunk by chunk."""
    engine = CheckableEngine(window=64, grid=GRID, parts=parts)
    for span in engine.profile.grid.chunks(0, LENGTH):
        engine.prefill(0, token_ids(range(span.start, span.end)))
    return engine


def sums_of(engine: CheckableEngine) -> RowSums:
    spans = list(engine.profile.grid.chunks(0, LENGTH))
    return RowSums(engine.slots[0], engine.profile.layout, spans)


@PARTS
def test_the_same_rows_have_the_same_chain_in_whatever_order_it_is_asked_for(parts: Parts) -> None:
    one, other = sums_of(an_engine(parts)), sums_of(an_engine(parts))
    lines = [0, 8, 16, 24, 32, 37]

    up = [one.chain(line) for line in lines]
    down = [other.chain(line) for line in reversed(lines)]

    assert up == down[::-1]
    assert up[0] == NO_ROWS
    assert len(set(up)) == len(lines)


@pytest.mark.parametrize("decoded", range(1, 37, 5))
def test_a_row_that_another_forward_wrote_changes_the_chain_from_its_block_on(decoded: int) -> None:
    """The same tokens; the last `decoded` of them one by one."""
    engine = CheckableEngine(window=64, grid=GRID)
    start = LENGTH - decoded
    for span in engine.profile.grid.chunks(0, start):
        engine.prefill(0, token_ids(range(span.start, span.end)))
    for token in range(start, LENGTH):
        engine.decode([DecodeInput(0, token)])
    cold, mixed = sums_of(an_engine()), sums_of(engine)

    for line in (8, 16, 24, 32, 37):
        assert (cold.chain(line) == mixed.chain(line)) == (line <= start)


def test_only_lines_where_a_block_ends_have_a_chain() -> None:
    sums = sums_of(an_engine())

    assert [line for line in range(40) if sums.ends_at(line)] == [0, 8, 16, 24, 32, 37]


def test_rows_are_summed_a_bounded_number_of_bytes_at_a_time() -> None:
    engine = an_engine()
    sums, row_bytes = sums_of(engine), engine.profile.layout.row_bytes

    steps = [sums.sum_up(37, bytes_max=2 * GRID * row_bytes) for _ in range(4)]

    assert steps == [True, True, True, False]


def test_what_was_known_of_rows_that_are_overwritten_is_forgotten() -> None:
    engine = an_engine()
    sums = sums_of(engine)
    before = [sums.chain(line) for line in (8, 16, 37)]

    sums.cut(20)

    assert [sums.ends_at(line) for line in (8, 16, 24, 32, 37)] == [True, True, False, False, False]
    assert [sums.chain(line) for line in (8, 16)] == before[:2]


def test_the_records_of_a_block_are_those_its_chain_was_made_of() -> None:
    engine = an_engine()
    sums = sums_of(engine)

    parts = sums.take_parts(Span(8, 16))

    found = engine.slots[0].row_sums(Span(8, 16))
    assert {part.name: part.sums for part in parts} == dict(found)
