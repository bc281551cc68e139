"""How much may be written to a drive in a day."""

import enum
from dataclasses import dataclass
from typing import Final

HARD_FACTOR: Final = 1.5


class WriteLevel(enum.Enum):
    """Where a day's writing stands."""

    OK = "ok"
    OVER = "over"
    HARD = "hard"


class WriteCause(enum.Enum):
    """Why something is to be written."""

    HEAD = "head"
    EVICTION = "eviction"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class WriteGuard:
    """The daily budget.

    Attributes:
        day_bytes_max: over it heads stop, and of the conversations only long ones are written;
            over `HARD_FACTOR` of it only a planned stop writes.
        long_tokens: what a long conversation is.
    """

    day_bytes_max: int
    long_tokens: int

    def level(self, written_today: int) -> WriteLevel:
        """Where the day stands with so many bytes written."""
        if written_today > self.day_bytes_max * HARD_FACTOR:
            return WriteLevel.HARD
        return WriteLevel.OVER if written_today > self.day_bytes_max else WriteLevel.OK

    def allows(self, cause: WriteCause, tokens: int, written_today: int) -> bool:
        """Whether a write of state of `tokens` may begin."""
        level = self.level(written_today)
        if cause is WriteCause.STOP or level is WriteLevel.OK:
            return True
        return (
            level is WriteLevel.OVER and cause is WriteCause.EVICTION and tokens >= self.long_tokens
        )
