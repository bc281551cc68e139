"""How much may be written to a drive in a day."""

import pytest

from anchorline.domain.write_guard import WriteCause, WriteGuard, WriteLevel

GB = 10**9
GUARD = WriteGuard(day_bytes_max=200 * GB, long_tokens=32_768)


@pytest.mark.parametrize(
    ("written", "level"),
    [
        (0, WriteLevel.OK),
        (200 * GB, WriteLevel.OK),
        (200 * GB + 1, WriteLevel.OVER),
        (300 * GB, WriteLevel.OVER),
        (300 * GB + 1, WriteLevel.HARD),
    ],
)
def test_the_level_is_over_above_the_budget_and_hard_above_one_and_a_half(
    written: int, level: WriteLevel
) -> None:
    assert GUARD.level(written) is level


@pytest.mark.parametrize("cause", WriteCause)
def test_within_the_budget_everything_is_written(cause: WriteCause) -> None:
    assert GUARD.allows(cause, tokens=1, written_today=200 * GB)


def test_over_the_budget_no_head_is_written() -> None:
    assert not GUARD.allows(WriteCause.HEAD, tokens=10**6, written_today=201 * GB)


def test_over_the_budget_only_long_conversations_are_written() -> None:
    assert GUARD.allows(WriteCause.EVICTION, tokens=32_768, written_today=201 * GB)
    assert not GUARD.allows(WriteCause.EVICTION, tokens=32_767, written_today=201 * GB)


def test_far_over_the_budget_no_conversation_is_written() -> None:
    assert not GUARD.allows(WriteCause.EVICTION, tokens=10**6, written_today=301 * GB)


@pytest.mark.parametrize("written", [0, 201 * GB, 301 * GB, 10**6 * GB])
def test_a_planned_stop_always_writes(written: int) -> None:
    assert GUARD.allows(WriteCause.STOP, tokens=1, written_today=written)


def test_a_budget_of_nothing_leaves_the_planned_stop_once_anything_was_written() -> None:
    guard = WriteGuard(day_bytes_max=0, long_tokens=64)

    assert guard.level(1) is WriteLevel.HARD
    assert not guard.allows(WriteCause.EVICTION, tokens=10**6, written_today=1)
