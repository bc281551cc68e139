"""The machine's clocks."""

import time


class SystemClock:
    """Implements `ports.clock.Clock`."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
