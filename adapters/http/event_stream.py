"""One request's events, carried from the engine thread to the event loop."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from ...application.request import Event, Failed, Finished, GenerationRequest
from ...application.service import Service
from ...domain.errors import Draining


class EventStream:
    """A queue between two threads.

    Unbounded, as the engine thread never waits for a client; what one request puts into it is
    bounded by its window.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the loop that `next` is awaited on."""
        self._loop = loop
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the last event was sent; it may not have been taken yet."""
        return self._ended

    def put(self, event: Event) -> None:
        """The request's `EventSink`: callable from any thread, never waits and never raises."""
        if isinstance(event, Finished | Failed):
            self._ended = True
        # The loop is closed only once the server has stopped, and then nobody reads any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def next(self, until_s: float | None = None) -> Event | None:
        """The next event.

        Args:
            until_s: a moment of the loop's clock; None waits for ever.

        Returns:
            None if that moment passed first.
        """
        try:
            async with asyncio.timeout_at(until_s):
                return await self._events.get()
        except TimeoutError:
            return None


@contextlib.asynccontextmanager
async def submitted(
    service: Service, request: GenerationRequest
) -> AsyncGenerator[EventStream, None]:
    """Submit a request for the time of a block; one that has not ended by then is cancelled.

    Raises:
        Draining: the engine thread has stopped.
    """
    events = EventStream(asyncio.get_running_loop())
    service.submit(request, events.put)
    try:
        yield events
    finally:
        if not events.ended:
            # A stopped engine thread has nothing left to cancel.
            with contextlib.suppress(Draining):
                service.cancel(request.id)
