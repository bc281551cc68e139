"""The one thread that may touch an engine."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

from ...domain.errors import AnchorlineError, Draining, EngineError

IDLE_TICK_S: Final = 1.0
"""How often an idle engine steps all the same, for what is due by the clock."""

_log = logging.getLogger("anchorline.engine")


class EngineThread:
    """Runs steps while there is work, and calls from other threads between them.

    Implements the `Inbox` port. A step that raises is a fault of ours: it is logged, `on_fault` is
    told, and the thread goes on.
    """

    def __init__(
        self, step: Callable[[], bool], on_fault: Callable[[AnchorlineError], None]
    ) -> None:
        """Takes what to run; `start` starts it.

        Args:
            step: does one piece of work; False when there was none.
            on_fault: called on this thread after a step raised.
        """
        self._step = step
        self._on_fault = on_fault
        # SimpleQueue: unbounded, as a full inbox could not say so to those who only cancel. What
        # it holds is bounded by the open connections.
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="anchorline-engine", daemon=True)

    def start(self) -> None:
        """Begin to step."""
        self._thread.start()

    def post(self, call: Callable[[], None]) -> None:
        if self._stopping.is_set():
            raise Draining("the server is stopping", retry_after_s=30)
        self._calls.put(call)

    def stop(self, timeout_s: float) -> bool:
        """Stop after the current step; whether the thread ended in time."""
        self._stopping.set()
        self._calls.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        worked = True
        while not self._stopping.is_set():
            self._take_calls(wait=not worked)
            worked = self._one_step()

    def _take_calls(self, *, wait: bool) -> None:
        while True:
            try:
                call = self._calls.get(block=wait, timeout=IDLE_TICK_S if wait else None)
            except queue.Empty:
                return
            wait = False
            if call is None:
                return
            try:
                call()
            except Exception:
                _log.exception("a call to the engine thread failed")

    def _one_step(self) -> bool:
        try:
            return self._step()
        except Exception as fault:
            _log.exception("a step failed; every running request is given up")
            self._on_fault(EngineError(f"internal error: {type(fault).__name__}"))
            return True
