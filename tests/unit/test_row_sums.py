"""What is known of rows before they are stored, and what is forgotten when they change."""

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.row_sums import RowSums
from anchorline.domain.content_chain import NO_ROWS
from anchorline.domain.grid import Span
from anchorline.domain.tokens import token_ids
from anchorline.ports.engine import DecodeInput
from contract.readings import Seen, as_bytes, exported_rows, row_buffers

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


def test_rows_are_summed_one_block_at_a_time() -> None:
    sums = sums_of(an_engine())

    known: list[list[int]] = []
    for _ in range(5):
        sums.sum_next()
        known.append([line for line in (8, 16, 24, 32, 37) if sums.is_known(line)])

    assert known == [[8], [8, 16], [8, 16, 24], [8, 16, 24, 32], [8, 16, 24, 32, 37]]


@pytest.mark.parametrize("summed", [0, 1, 3])
def test_rows_that_are_copied_are_summed_up_on_the_way(summed: int) -> None:
    """Whatever of them, and of those below, was summed up before."""
    engine = an_engine()
    sums, span = sums_of(engine), Span(8, 16)
    for _ in range(summed):
        sums.sum_next()
    seen = Seen()
    buffers = row_buffers(engine.profile.layout, span)
    found = sums.export(span, buffers, seen.look)

    assert as_bytes(buffers) == as_bytes(exported_rows(engine.slots[0], span)) == seen.parts
    assert {part.name: part.sums for part in found} == dict(engine.slots[0].row_sums(span))
    assert found == sums.take_parts(span)
    assert sums.chain(16) == sums_of(an_engine()).chain(16)


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
