"""An inbox without a thread behind it."""

import logging
from collections import deque
from collections.abc import Callable

from ...domain.errors import Draining

_log = logging.getLogger("anchorline.engine")


class DirectInbox:
    """Implements `ports.inbox.Inbox`: a call runs within `post`, on the caller's thread.

    It models the order of calls, calls that post calls, and a stopped thread. It does not model
    the time between `post` and the call, so it is for one thread only: the test's.
    """

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._running = False
        self._stopped = False

    def post(self, call: Callable[[], None]) -> None:
        if self._stopped:
            raise Draining("the engine thread has stopped", retry_after_s=1)
        self._calls.append(call)
        if self._running:
            return  # posted by a call: it runs after that one, as it would between two steps
        self._running = True
        try:
            self._run_all()
        finally:
            self._running = False

    def stop(self) -> None:
        """Take no more calls."""
        self._stopped = True

    def _run_all(self) -> None:
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:
                _log.exception("a posted call failed")
