"""What counts as written today, also where the wall clock goes back.

A budget of bytes a day goes by the local day. A clock that is set back must not begin it anew:
for the next day of the monotonic clock, what was written on days that are now to come counts as
today's. For no longer: a clock that was wrong by years must not stop the writing for years.

    local day   29     30 (over)     29 again             a day later: 30, or still 29
    counted     29     30            29 and 30            that day's alone
"""

from collections.abc import Mapping
from typing import Final

BACK_S: Final = 86_400.0
"""For how long days that are to come count, since the clock was seen to go back."""


class BudgetDay:
    """Follows the local day; ISO dates, which sort as they follow each other."""

    def __init__(self, newest: str) -> None:
        """Begins where the process before it ended.

        Args:
            newest: of all days on which anything was written; empty if there is none.
        """
        self._seen = newest
        self._back_until_s = 0.0

    def follow(self, day: str, now_s: float) -> None:
        """It is this day now; to be told whenever something is written."""
        if day < self._seen:
            self._back_until_s = now_s + BACK_S
        self._seen = day

    def counted(self, by_day: Mapping[str, int], day: str, now_s: float) -> int:
        """Bytes that count against the budget of this day.

        Args:
            now_s: on the monotonic clock.
        """
        self.follow(day, now_s)
        if now_s >= self._back_until_s:
            return by_day.get(day, 0)
        return sum(nbytes for written, nbytes in by_day.items() if written >= day)
