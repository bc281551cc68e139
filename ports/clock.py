"""Time."""

from typing import Protocol


class Clock(Protocol):
    """Two notions of now."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back. For durations."""
        ...

    def wall(self) -> float:
        """Seconds since 1970 in UTC; may jump either way. For people."""
        ...
