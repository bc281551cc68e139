"""Both clocks against the clock contract, and what the manual one adds."""

import pytest

from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.system.clock import SystemClock
from anchorline.ports.clock import Clock
from contract.clock_contract import ClockContract


class TestSystemClock(ClockContract):
    def make_clock(self) -> Clock:
        return SystemClock()

    def let_time_pass(self, clock: Clock) -> None:
        monotonic_s, wall_s = clock.monotonic(), clock.wall()
        while clock.monotonic() == monotonic_s or clock.wall() == wall_s:
            pass  # the next tick is less than a microsecond away


class TestManualClock(ClockContract):
    def make_clock(self) -> Clock:
        return ManualClock()

    def let_time_pass(self, clock: Clock) -> None:
        assert isinstance(clock, ManualClock)
        clock.advance(0.5)

    def test_it_goes_exactly_as_far_as_it_is_told(self) -> None:
        clock = ManualClock(wall_s=2_000_000_000.0)

        clock.advance(1.5)
        clock.advance(0.0)

        assert (clock.monotonic(), clock.wall()) == (1.5, 2_000_000_001.5)

    def test_a_jump_of_the_wall_clock_takes_no_time(self) -> None:
        clock = ManualClock(wall_s=2_000_000_000.0)

        clock.jump(-86_400)

        assert (clock.monotonic(), clock.wall()) == (0.0, 1_999_913_600.0)

    def test_time_does_not_go_back(self) -> None:
        with pytest.raises(AssertionError):
            ManualClock().advance(-1.0)
