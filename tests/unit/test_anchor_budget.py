"""How many anchors a conversation keeps, and which goes first."""

import pytest

from anchorline.domain.anchor_budget import AnchorBudget, line_to_drop, pin_lines, spread_lines
from anchorline.domain.grid import Grid


def test_capacity_is_what_fits_the_bytes() -> None:
    assert AnchorBudget(bytes_max=1000).capacity(anchor_bytes=100) == 10
    assert AnchorBudget(bytes_max=1099).capacity(anchor_bytes=100) == 10


def test_the_least_count_holds_where_the_bytes_are_too_few() -> None:
    assert AnchorBudget(bytes_max=0, count_min=6).capacity(anchor_bytes=100) == 6


def test_the_largest_count_holds_where_anchors_cost_little_or_nothing() -> None:
    budget = AnchorBudget(bytes_max=1 << 40, count_max=50)

    assert budget.capacity(anchor_bytes=1) == 50
    assert budget.capacity(anchor_bytes=0) == 50


@pytest.mark.parametrize(
    ("newest_kept", "count_min", "count_max"), [(4, 4, 10), (5, 4, 10), (4, 8, 7)]
)
def test_a_budget_leaves_room_beside_the_newest(
    newest_kept: int, count_min: int, count_max: int
) -> None:
    with pytest.raises(ValueError, match="are no budget"):
        AnchorBudget(0, count_min, count_max, newest_kept)


def test_pin_lines_stand_every_4_grid_steps_up_to_32() -> None:
    assert sorted(pin_lines(Grid(64))) == [64 * step for step in (4, 8, 12, 16, 20, 24, 28, 32)]


def test_the_anchor_whose_removal_leaves_the_smallest_gap_goes() -> None:
    assert line_to_drop([12, 30, 40, 80, 90, 100], newest_kept=2) == 30


def test_of_equal_gaps_the_lowest_line_goes() -> None:
    assert line_to_drop([10, 20, 30, 40, 50], newest_kept=1) == 10


def test_the_gap_below_the_first_anchor_begins_at_0() -> None:
    # Without 60 nothing would stand between 0 and 70; without 70, between 60 and 100.
    assert line_to_drop([60, 70, 100, 200], newest_kept=1) == 70


def test_the_newest_are_never_dropped() -> None:
    assert line_to_drop([100, 101, 102, 103, 104], newest_kept=4) == 100
    with pytest.raises(ValueError, match="never dropped"):
        line_to_drop([1, 2, 3, 4], newest_kept=4)


def test_lines_for_a_pin_go_only_when_no_other_is_left() -> None:
    lines = [10, 20, 30, 90, 100]

    assert line_to_drop(lines, newest_kept=1, pinned={10, 20}) == 30
    assert line_to_drop(lines, newest_kept=1, pinned={10, 20, 30, 90}) == 10


def test_junctions_go_after_the_lines_for_a_pin() -> None:
    lines = [10, 20, 40, 90, 100]

    assert line_to_drop(lines, newest_kept=1, pinned={40, 90}, junctions={10, 20}) == 90
    assert line_to_drop(lines, newest_kept=1, junctions={10, 20, 40, 90}) == 10


@pytest.mark.parametrize("count", [4, 7, 11, 12, 40])
def test_the_lines_that_are_spread_are_those_that_dropping_leaves(count: int) -> None:
    lines = tuple(range(256, 33 * 256, 256))
    pinned, junctions = frozenset({1024, 2048}), frozenset({768})
    left = list(lines)
    while len(left) > count:
        left.remove(line_to_drop(left, 4, pinned, junctions))

    found = [spread_lines(lines, count, 4, pinned, junctions) for _ in range(2)]

    assert found == [tuple(left)] * 2
    assert found[0][-4:] == lines[-4:]
