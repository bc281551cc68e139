"""A clock that goes only where it is told to."""

from typing import Final

STARTED_WALL_S: Final = 1_800_000_000.0
"""15 January 2027, UTC: where the wall clock of a new `ManualClock` stands."""


class ManualClock:
    """Implements `ports.clock.Clock`. The wall clock can jump, as real ones do."""

    def __init__(self, *, wall_s: float = STARTED_WALL_S):
        self._monotonic_s = 0.0
        self._wall_s = wall_s

    def monotonic(self) -> float:
        return self._monotonic_s

    def wall(self) -> float:
        return self._wall_s

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        assert seconds >= 0, f"time does not go back by {-seconds} s"
        self._monotonic_s += seconds
        self._wall_s += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._wall_s += seconds
