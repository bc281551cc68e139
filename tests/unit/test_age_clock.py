"""Ages that survive restarts and jumps of the wall clock."""

from anchorline.domain.age_clock import GAP_S_MAX, AgeClock
from anchorline.domain.disk_retention import Ages

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
NOON = 1_800_000_000.0
"""A moment of the wall clock."""


def started(*, mark_age_s: float = 0.0, off_s: float = 0.0) -> AgeClock:
    """A clock whose process starts `off_s` of the wall clock after the mark."""
    return AgeClock(mark_age_s, NOON, NOON + off_s, monotonic_s=50.0)


def test_it_follows_the_monotonic_clock_while_a_process_runs() -> None:
    clock = started(mark_age_s=1000.0)

    assert clock.now(50.0) == 1000.0
    assert clock.now(50.0 + DAY_S) == 1000.0 + DAY_S


def test_time_between_two_processes_counts() -> None:
    assert started(mark_age_s=1000.0, off_s=5 * HOUR_S).now(50.0) == 1000.0 + 5 * HOUR_S


def test_a_wall_clock_that_went_back_a_day_adds_nothing() -> None:
    clock = started(mark_age_s=1000.0, off_s=-DAY_S)

    assert clock.now(50.0) == 1000.0
    assert clock.now(60.0) == 1010.0


def test_a_wall_clock_of_1970_adds_nothing() -> None:
    assert started(mark_age_s=1000.0, off_s=-NOON).now(50.0) == 1000.0


def test_a_wall_clock_that_went_far_ahead_adds_its_bound() -> None:
    assert started(off_s=50 * 365 * DAY_S).now(50.0) == GAP_S_MAX


def test_one_jump_ahead_expires_nothing_that_is_in_use() -> None:
    # Used right before the jump, an entry of every role is still there after it.
    ages = Ages()

    assert min(ages.heads_s, ages.conversations_s) > GAP_S_MAX


def test_an_age_goes_on_over_any_number_of_restarts() -> None:
    age_s, wall_s = 0.0, NOON
    for _ in range(10):
        clock = AgeClock(age_s, wall_s, wall_s + HOUR_S, monotonic_s=7.0)
        age_s, wall_s = clock.now(7.0 + HOUR_S), wall_s + 2 * HOUR_S

    assert age_s == 20 * HOUR_S


def test_a_clock_put_right_between_marks_is_forgotten_with_the_next_mark() -> None:
    # The wall clock goes back a day while the process runs; the mark after it is the new one.
    clock = started()
    age_s = clock.now(50.0 + HOUR_S)
    next_clock = AgeClock(age_s, NOON - DAY_S, NOON - DAY_S + HOUR_S, monotonic_s=0.0)

    assert next_clock.now(0.0) == 2 * HOUR_S


def test_a_monotonic_clock_before_the_start_adds_nothing() -> None:
    assert started(mark_age_s=1000.0).now(49.0) == 1000.0
