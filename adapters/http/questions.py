"""Questions to the engine thread whose answers a route waits for."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from ...domain.errors import Unavailable
from .stats_reader import RETRY_AFTER_S

_T = TypeVar("_T")

Ask: TypeAlias = Callable[[Callable[[_T], None]], None]
"""Puts a question; what it is given is called with the answer, once, on the engine thread."""


class NotInTime(Unavailable):
    """The answer did not come in time; what was asked for may still be under way."""


class Questions:
    """Puts questions to the engine thread, only so many at a time. Used on one event loop.

    One that nobody waits for any more counts until it is answered: what it asked for goes on.
    """

    def __init__(self, open_max: int) -> None:
        """Asks nothing yet."""
        self._open_max = open_max
        self._open = 0

    async def ask(self, ask: Ask[_T], timeout_s: float) -> _T:
        """The answer to a question of one's own.

        Raises:
            NotInTime: it did not come within `timeout_s`.
            Unavailable: as many questions are open as may be.
            Draining: the engine thread has stopped.
        """
        if self._open >= self._open_max:
            raise Unavailable(
                f"{self._open} calls of this kind are under way, as many as may be",
                retry_after_s=RETRY_AFTER_S,
            )
        loop = asyncio.get_running_loop()
        pending: asyncio.Future[_T] = loop.create_future()

        def take(value: _T) -> None:
            self._open -= 1
            if not pending.done():
                pending.set_result(value)

        def answer(value: _T) -> None:
            # The loop is closed only once the server has stopped.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(take, value)

        ask(answer)
        self._open += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await pending
        except TimeoutError:
            raise NotInTime(
                f"the engine did not answer within {timeout_s:g} s", retry_after_s=RETRY_AFTER_S
            ) from None
