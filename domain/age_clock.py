"""Ages that survive restarts and jumps of the wall clock.

An age clock counts seconds in which the store existed. While a process runs it follows the
monotonic clock, whatever the wall clock does. Between two processes it follows the wall clock,
within reason: a wall clock that went back adds nothing, and one that went far ahead adds no more
than `GAP_S_MAX`.
"""

from typing import Final

GAP_S_MAX: Final = 86_400.0
"""What one restart may add. Less than any age at which entries expire: a clock that was wrong by
years must not expire a store. A machine that was off for longer keeps its entries for longer."""


class AgeClock:
    """Seconds of age, never going back."""

    def __init__(
        self, mark_age_s: float, mark_wall_s: float, wall_s: float, monotonic_s: float
    ) -> None:
        """Goes on from a mark: the age and the wall clock when it was last written down."""
        gap_s = min(max(wall_s - mark_wall_s, 0.0), GAP_S_MAX)
        self._base_s = mark_age_s + gap_s
        self._started_s = monotonic_s

    def now(self, monotonic_s: float) -> float:
        """The age at a moment of the monotonic clock."""
        return self._base_s + max(monotonic_s - self._started_s, 0.0)
