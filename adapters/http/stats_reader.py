"""The engine thread's figures, without more than one question to it at a time."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from ...application.service import Service
from ...application.stats import CacheStats
from ...domain.errors import Unavailable

RETRY_AFTER_S: Final = 5


@dataclass(frozen=True, slots=True)
class Known:
    """Figures, and how long ago they came."""

    stats: CacheStats
    age_s: float


class StatsReader:
    """Asks the engine thread for its figures and remembers the last answer.

    The thread answers between two steps, so it may take as long as a prefill chunk. Used on one
    event loop.
    """

    def __init__(self, service: Service) -> None:
        """Asks nothing yet."""
        self._service = service
        self._pending: asyncio.Future[CacheStats] | None = None
        self._last: CacheStats | None = None
        self._last_s = 0.0

    async def fresh(self, timeout_s: float) -> CacheStats:
        """Figures that were taken after this call, or on behalf of one still under way.

        Raises:
            Unavailable: the engine thread did not answer in time.
            Draining: it has stopped.
        """
        pending = self._asked()
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(pending)
        except TimeoutError:
            raise Unavailable(
                f"the engine did not answer within {timeout_s:g} s", retry_after_s=RETRY_AFTER_S
            ) from None

    async def latest(self, timeout_s: float) -> Known | None:
        """Fresh figures if they come in time, else the last known; None if there are none."""
        with contextlib.suppress(Unavailable):
            await self.fresh(timeout_s)
        if self._last is None:
            return None
        return Known(self._last, asyncio.get_running_loop().time() - self._last_s)

    def _asked(self) -> asyncio.Future[CacheStats]:
        if self._pending is not None:
            return self._pending
        loop = asyncio.get_running_loop()
        pending: asyncio.Future[CacheStats] = loop.create_future()

        def answer(stats: CacheStats) -> None:
            # The loop is closed only once the server has stopped.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._take, stats, loop.time())

        self._service.stats(answer)
        self._pending = pending
        return pending

    def _take(self, stats: CacheStats, taken_s: float) -> None:
        self._last, self._last_s = stats, taken_s
        pending, self._pending = self._pending, None
        if pending is not None and not pending.done():
            pending.set_result(stats)
