"""Work on worker threads that takes a while: the event loop has others to serve meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")

LARGE_BYTES: Final = 1 << 20
LARGE_AT_ONCE: Final = 2
"""asyncio has five threads at the least: some are left for bodies that take milliseconds."""


class Worker:
    """Decodes and prepares bodies, of large ones only a few at a time. Used on one event loop."""

    def __init__(self) -> None:
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def run(
        self,
        work: Callable[Concatenate[bytes, _P], _T],
        body: bytes,
        *args: _P.args,
        **named: _P.kwargs,
    ) -> _T:
        """What `work(body, ...)` returns, or raises."""
        if len(body) < LARGE_BYTES:
            return await asyncio.to_thread(work, body, *args, **named)
        async with self._large:
            return await asyncio.to_thread(work, body, *args, **named)
