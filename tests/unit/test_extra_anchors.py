"""Which of the few anchors off the grid goes first: the one that is expected to save least."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from anchorline.domain.entry_value import DAY_S, days, saving
from anchorline.domain.extra_anchors import ExtraAnchors


def test_what_is_kept_saves_its_tokens_as_often_as_it_did_and_once_more() -> None:
    assert saving(100, hits=0, half_lives=0.0) == 100
    assert saving(100, hits=2, half_lives=0.0) == 300
    assert saving(100, hits=2, half_lives=1.0) == 150
    assert saving(100, hits=1, half_lives=0.0, odds=0.25) == 125


def test_a_clock_that_went_back_makes_nothing_older() -> None:
    assert days(10 * DAY_S, 7 * DAY_S) == 3.0
    assert days(7 * DAY_S, 10 * DAY_S) == 0.0


def anchors(*lines: int, boundary: bool = True) -> ExtraAnchors:
    extra = ExtraAnchors()
    for line in lines:
        extra.add(line, boundary=boundary)
    return extra


def test_the_one_goes_below_which_another_anchor_is_near() -> None:
    extra = anchors(20, 90, 130)

    assert extra.least([20, 64, 90, 128, 130]) == 130  # two tokens above a grid line


def test_of_two_that_save_alike_the_lower_one_goes() -> None:
    assert anchors(20, 40).least([20, 40]) == 20


def test_inside_an_answer_a_line_goes_before_a_message_boundary_that_saves_less() -> None:
    extra = anchors(30)
    extra.add(64, boundary=False)

    assert extra.least([30, 64]) == 64


def test_but_not_where_the_boundary_saves_next_to_nothing() -> None:
    extra = anchors(33)
    extra.add(97, boundary=False)

    assert extra.least([32, 33, 97]) == 33


def test_a_line_that_requests_come_back_to_stays() -> None:
    extra = anchors(20, 100)
    for _ in range(5):
        extra.used(20)

    assert extra.least([20, 100]) == 100


def test_what_was_not_used_for_some_turns_goes_though_it_saves_more() -> None:
    extra = anchors(100)
    for _ in range(3):
        extra.turn_ended()
    extra.add(120, boundary=True)

    assert extra.least([100, 120]) == 100


def test_a_use_makes_it_as_good_as_new() -> None:
    extra = anchors(100)
    for _ in range(3):
        extra.turn_ended()
    extra.used(100)
    extra.add(120, boundary=True)

    assert extra.least([100, 120]) == 120


def test_a_line_without_such_an_anchor_is_of_no_interest() -> None:
    extra = anchors(20, 40)
    extra.used(64)
    extra.discard(64)
    extra.discard(20)

    assert (extra.lines, len(extra)) == ({40}, 1)


lines_of_anchors = st.lists(st.integers(1, 500), min_size=1, max_size=20, unique=True)


@given(lines=lines_of_anchors, kinds=st.lists(st.booleans(), min_size=20, max_size=20))
def test_it_is_always_one_of_them_and_any_order_tells_the_same(
    lines: Sequence[int], kinds: Sequence[bool]
) -> None:
    def told(order: Sequence[int]) -> int:
        extra = ExtraAnchors()
        for line in order:
            if line % 3:
                extra.add(line, boundary=kinds[line % 20])
        return extra.least(order) if len(extra) else 0

    assert told(lines) == told(sorted(lines)) == told(sorted(lines, reverse=True))
    assert told(lines) in {0, *(line for line in lines if line % 3)}
