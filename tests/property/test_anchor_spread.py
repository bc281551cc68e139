"""The anchors that stay under a budget: never too many, the newest always, and spread."""

from hypothesis import given
from hypothesis import strategies as st

from anchorline.domain.anchor_budget import line_to_drop

STEP = 8
NEWEST = st.integers(0, 4)
SPARE = st.integers(1, 8)
LINES = st.lists(st.integers(1, 400), unique=True, min_size=1, max_size=60).map(sorted)


def kept_after(
    lines: list[int],
    capacity: int,
    newest_kept: int,
    pinned: frozenset[int] = frozenset(),
    junctions: frozenset[int] = frozenset(),
) -> list[int]:
    """The lines that stand after a prefill passed `lines` one by one."""
    kept: list[int] = []
    for line in lines:
        kept.append(line)
        if len(kept) > capacity:
            kept.remove(line_to_drop(kept, newest_kept, pinned, junctions))
    return kept


def gaps(lines: list[int]) -> list[int]:
    return [above - below for below, above in zip([0, *lines], lines, strict=False)]


@given(LINES, NEWEST, SPARE)
def test_there_are_never_more_than_the_budget_and_the_newest_stand(
    lines: list[int], newest_kept: int, spare: int
) -> None:
    capacity = newest_kept + spare

    kept = kept_after(lines, capacity, newest_kept)

    assert len(kept) == min(len(lines), capacity)
    assert kept == sorted(kept)
    newest = lines[max(len(lines) - newest_kept, 0) :]
    assert kept[len(kept) - len(newest) :] == newest


@given(st.integers(1, 400), NEWEST, SPARE)
def test_the_largest_gap_is_within_twice_an_even_spread(
    count: int, newest_kept: int, spare: int
) -> None:
    # What a drop leaves is the least of `spare + 1` gaps that together cover the prompt twice.
    lines = [STEP * number for number in range(1, count + 1)]

    kept = kept_after(lines, newest_kept + spare, newest_kept)

    assert max(gaps(kept)) <= max(STEP, 2 * lines[-1] / (spare + 1))


@given(LINES, NEWEST, SPARE, st.data())
def test_the_line_that_goes_is_one_whose_removal_leaves_the_smallest_gap(
    lines: list[int], newest_kept: int, spare: int, data: st.DataObject
) -> None:
    if len(lines) <= newest_kept:
        return
    pinned = frozenset(data.draw(st.lists(st.sampled_from(lines))))
    junctions = frozenset(data.draw(st.lists(st.sampled_from(lines))))

    dropped = line_to_drop(lines, newest_kept, pinned, junctions)

    def left(line: int) -> int:
        """The gap that removing `line` leaves."""
        below = max([0, *(other for other in lines if other < line)])
        above = min([other for other in lines if other > line], default=line)
        return above - below

    def preferred(line: int) -> int:
        return 2 if line in junctions else int(line in pinned)

    body = lines[: len(lines) - newest_kept]
    assert dropped in body
    assert preferred(dropped) == min(preferred(line) for line in body)
    rivals = [line for line in body if preferred(line) == preferred(dropped)]
    assert left(dropped) == min(left(line) for line in rivals)


@given(LINES, NEWEST, SPARE, st.data())
def test_preferences_never_break_the_budget(
    lines: list[int], newest_kept: int, spare: int, data: st.DataObject
) -> None:
    pinned = frozenset(data.draw(st.lists(st.sampled_from(lines))))
    junctions = frozenset(data.draw(st.lists(st.sampled_from(lines))))

    kept = kept_after(lines, newest_kept + spare, newest_kept, pinned, junctions)

    assert len(kept) == min(len(lines), newest_kept + spare)
