"""Shared prefixes, the grid and chained keys, against what they are by definition."""

from hypothesis import given
from hypothesis import strategies as st

from anchorline.domain.grid import Grid, Span
from anchorline.domain.namespace import Namespace
from anchorline.domain.prefix_key import chain
from anchorline.domain.tokens import common_prefix, starts_with, token_ids

# Few ids and shared beginnings, so that prompts agree for a while before they part.
ID_LISTS = st.lists(st.integers(0, 2), max_size=40)
PAIRS = st.tuples(ID_LISTS, ID_LISTS, ID_LISTS).map(
    lambda parts: (parts[0] + parts[1], parts[0] + parts[2])
)
GRIDS = st.integers(1, 12).map(Grid)
NAMESPACES = st.builds(
    Namespace, st.text("ab\0", max_size=3), st.text("ab\0", max_size=3), st.sampled_from(["p", "q"])
)


def naive_common_prefix(a: list[int], b: list[int]) -> int:
    shared = 0
    while shared < min(len(a), len(b)) and a[shared] == b[shared]:
        shared += 1
    return shared


@given(PAIRS)
def test_a_common_prefix_is_the_longest_beginning_that_both_have(
    pair: tuple[list[int], list[int]],
) -> None:
    a, b = pair

    shared = common_prefix(token_ids(a), token_ids(b))

    assert shared == naive_common_prefix(a, b)
    assert starts_with(token_ids(a), token_ids(b)) == (shared == len(b))


@given(st.integers(0, 20_000), st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_difference_is_found_wherever_it_is(length: int, other_length: int, at: int) -> None:
    a, b = token_ids([7] * length), token_ids([7] * other_length).copy()
    if at < len(b):
        b[at] = 8

    assert common_prefix(a, b) == min(length, other_length, at)


@given(GRIDS, st.integers(0, 200), st.integers(0, 200))
def test_chunks_cover_a_prefill_exactly_once_and_end_on_grid_lines(
    grid: Grid, start: int, length: int
) -> None:
    end = start + length

    chunks = list(grid.chunks(start, end))

    assert [row for chunk in chunks for row in range(chunk.start, chunk.end)] == list(
        range(start, end)
    )
    assert all(0 < len(chunk) <= grid.step for chunk in chunks)
    assert all(grid.has(chunk.end) for chunk in chunks[:-1])
    assert all(grid.floor(chunk.start) == grid.floor(chunk.end - 1) for chunk in chunks)


@given(GRIDS, st.integers(0, 200), st.integers(1, 200))
def test_a_resumed_prefill_runs_the_chunks_of_a_cold_one(
    grid: Grid, steps: int, length: int
) -> None:
    line = steps * grid.step
    end = line + length

    cold = [chunk for chunk in grid.chunks(0, end) if chunk.end > line]

    assert list(grid.chunks(line, end)) == cold


@given(GRIDS, st.integers(0, 200), st.integers(0, 200))
def test_lines_are_the_multiples_of_the_step_in_the_range(
    grid: Grid, start: int, length: int
) -> None:
    end = start + length

    assert list(grid.lines(start, end)) == [
        line for line in range(start + 1, end + 1) if grid.has(line)
    ]


@given(PAIRS, NAMESPACES, NAMESPACES, GRIDS)
def test_keys_are_equal_if_and_only_if_namespaces_and_prefixes_are(
    pair: tuple[list[int], list[int]], one: Namespace, other: Namespace, grid: Grid
) -> None:
    a, b = pair
    ours, theirs = chain(one, token_ids(a), grid), chain(other, token_ids(b), grid)

    assert len(ours) == len(a) // grid.step + 1
    for number, key in enumerate(ours):
        span = Span(0, number * grid.step)
        assert key not in theirs[:number] + theirs[number + 1 :]
        if number < len(theirs):
            same = one == other and a[: span.end] == b[: span.end]
            assert (key == theirs[number]) == same
