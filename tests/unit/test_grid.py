"""Lines, spans and the grid."""

import pytest

from anchorline.domain.grid import Grid, Span


def test_a_span_is_as_long_as_the_rows_it_holds() -> None:
    assert len(Span(3, 8)) == 5
    assert len(Span(3, 3)) == 0


@pytest.mark.parametrize(("start", "end"), [(4, 3), (-1, 2)])
def test_a_span_neither_turns_back_nor_starts_below_0(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="is not a span"):
        Span(start, end)


@pytest.mark.parametrize("step", [0, -8])
def test_a_grid_needs_a_positive_step(step: int) -> None:
    with pytest.raises(ValueError, match="not positive"):
        Grid(step)


@pytest.mark.parametrize(
    ("line", "floor", "ceil"), [(0, 0, 0), (1, 0, 8), (7, 0, 8), (8, 8, 8), (9, 8, 16)]
)
def test_floor_and_ceil_are_the_lines_around(line: int, floor: int, ceil: int) -> None:
    grid = Grid(8)

    assert (grid.floor(line), grid.ceil(line)) == (floor, ceil)
    assert grid.has(line) == (floor == ceil)


def test_a_cold_prefill_runs_whole_chunks_and_a_short_last_one() -> None:
    assert list(Grid(8).chunks(0, 19)) == [Span(0, 8), Span(8, 16), Span(16, 19)]


def test_a_prefill_from_an_off_grid_line_is_on_the_grid_after_one_short_chunk() -> None:
    assert list(Grid(8).chunks(11, 25)) == [Span(11, 16), Span(16, 24), Span(24, 25)]


def test_the_grid_is_counted_from_0_and_not_from_where_a_prefill_starts() -> None:
    grid = Grid(8)

    cold = {chunk.end for chunk in grid.chunks(0, 64)}
    resumed = {chunk.end for chunk in grid.chunks(13, 64)}

    assert resumed <= cold


def test_nothing_to_prefill_has_no_chunks() -> None:
    assert list(Grid(8).chunks(5, 5)) == []
    with pytest.raises(ValueError, match="nothing is left"):
        Grid(8).chunk(5, 5)


@pytest.mark.parametrize(
    ("start", "end", "lines"),
    [(0, 24, [8, 16, 24]), (8, 24, [16, 24]), (7, 9, [8]), (8, 15, []), (0, 7, []), (5, 5, [])],
)
def test_lines_lie_above_the_start_and_up_to_the_end(
    start: int, end: int, lines: list[int]
) -> None:
    assert list(Grid(8).lines(start, end)) == lines
