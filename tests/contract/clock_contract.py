"""What `ports/clock.py` promises, as tests over any clock."""

from abc import ABC, abstractmethod

from anchorline.ports.clock import Clock


class ClockContract(ABC):
    @abstractmethod
    def make_clock(self) -> Clock: ...

    @abstractmethod
    def let_time_pass(self, clock: Clock) -> None:
        """Come back when the clock stands later than before; how much later does not matter."""

    def test_monotonic_time_never_goes_back(self) -> None:
        clock = self.make_clock()

        readings = [clock.monotonic() for _ in range(1000)]

        assert readings == sorted(readings)

    def test_time_that_passes_is_seen_on_both_clocks(self) -> None:
        clock = self.make_clock()
        monotonic_s, wall_s = clock.monotonic(), clock.wall()

        self.let_time_pass(clock)

        assert clock.monotonic() > monotonic_s
        assert clock.wall() > wall_s

    def test_the_wall_clock_counts_seconds_since_1970(self) -> None:
        wall_s = self.make_clock().wall()

        year_2020_s, year_2200_s = 1_577_836_800, 7_258_118_400
        assert year_2020_s < wall_s < year_2200_s
