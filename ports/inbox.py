"""The door to the engine thread."""

from collections.abc import Callable
from typing import Protocol


class Inbox(Protocol):
    """Hands calls to the one thread that may touch an engine."""

    def post(self, call: Callable[[], None]) -> None:
        """Run `call` on the engine thread between two steps; returns at once, from any thread.

        Calls run in the order they were posted. One that raises is logged and changes nothing
        for the calls after it.

        Raises:
            Draining: the thread has been stopped.
        """
        ...
