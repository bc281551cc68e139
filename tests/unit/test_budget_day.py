"""A day's budget of bytes, where the wall clock does not only go forward."""

import pytest

from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.application.disk_counters import Skip
from anchorline.application.write_ledger import WriteLedger
from anchorline.domain.budget_day import BACK_S, BudgetDay
from anchorline.domain.entry import Role
from anchorline.domain.write_guard import WriteCause, WriteGuard

BUDGET = 1000


class Days:
    """A ledger over a catalog that outlives it, on a day that the test sets."""

    def __init__(self) -> None:
        self.day = "2026-11-30"
        self.clock = ManualClock()
        self.catalog = MemoryCatalog()
        self.restart()

    def restart(self) -> None:
        self.ledger = WriteLedger(
            WriteGuard(BUDGET, long_tokens=1 << 20),
            self.catalog,
            self.clock,
            RecordingTelemetry(),
            lambda: self.day,
        )

    def write(self, nbytes: int) -> None:
        self.ledger.wrote(Role.CONVERSATION, nbytes)

    @property
    def refusal(self) -> Skip | None:
        return self.ledger.refuses(WriteCause.HEAD, 1)


def test_a_new_day_begins_a_new_budget() -> None:
    days = Days()
    days.write(BUDGET + 1)
    refused = days.refusal
    days.day = "2026-12-01"

    assert refused is Skip.GUARD
    assert days.refusal is None


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("day", ["2026-11-29", "2025-10-26"])
def test_a_clock_that_goes_back_does_not_begin_the_budget_anew(day: str, restarts: bool) -> None:
    days = Days()
    days.write(BUDGET + 1)
    days.day = day
    if restarts:
        days.restart()

    assert days.refusal is Skip.GUARD


@pytest.mark.parametrize("restarts", [False, True])
def test_bytes_count_on_their_day_where_a_later_day_has_some_too(restarts: bool) -> None:
    days = Days()
    days.write(1)
    days.day = "2026-11-29"
    days.write(BUDGET)
    if restarts:
        days.restart()

    assert days.ledger.today == BUDGET + 1
    days.clock.advance(BACK_S)
    days.restart()
    days.day = "2026-11-29"
    assert days.ledger.today >= BUDGET


def test_a_clock_that_was_years_ahead_holds_the_writing_up_for_a_day_only() -> None:
    days = Days()
    days.day = "2036-01-01"
    days.write(BUDGET + 1)
    days.day = "2026-11-30"
    at_first = days.refusal
    days.clock.advance(BACK_S)
    days.day = "2026-12-01"

    assert at_first is Skip.GUARD
    assert days.refusal is None


def test_a_clock_that_goes_back_twice_counts_from_the_second_time() -> None:
    counted = BudgetDay("")
    by_day = {"2026-11-30": 7}
    counted.follow("2026-11-30", 0.0)
    counted.follow("2026-11-29", 1.0)

    assert counted.counted(by_day, "2026-11-28", BACK_S) == 7
    assert counted.counted(by_day, "2026-11-28", 2 * BACK_S - 1.0) == 7
    assert counted.counted(by_day, "2026-11-28", 2 * BACK_S) == 0


def test_the_day_of_a_clock_far_back_is_remembered_beside_all_later_ones() -> None:
    days = Days()
    for number in range(500):
        days.day = f"2{number:03}-01-01"
        days.write(1)
    days.day = "1999-01-01"
    days.write(BUDGET + 1)
    days.clock.advance(BACK_S)

    assert days.refusal is Skip.GUARD
