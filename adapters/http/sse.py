"""Server-sent events: framing, and the comments that say a stream is alive."""

from typing import Final

from ...application.request import Event, Prefilling, Queued, Written

DONE: Final = b"data: [DONE]\n\n"

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx would hold back the stream until its buffer is full.
    (b"x-accel-buffering", b"no"),
)


def data(body: bytes) -> bytes:
    """One event; JSON as encoded here holds no line break."""
    return b"data: " + body + b"\n\n"


class Progress:
    """Comments for a time in which nothing else is sent: at most one per interval."""

    def __init__(self, interval_s: float, now_s: float) -> None:
        """Starts with a moment at which something was sent."""
        self._interval_s = interval_s
        self._due_s = now_s + interval_s
        self._status = "waiting"

    @property
    def due_s(self) -> float:
        """When the next comment is due."""
        return self._due_s

    def sent(self, now_s: float) -> None:
        """Something was sent, so no comment is due for an interval."""
        self._due_s = now_s + self._interval_s

    def note(self, event: Event | None) -> None:
        """An event that the next comment is to tell; None changes nothing."""
        match event:
            case Queued(ahead):
                self._status = f"queued, {ahead} ahead"
            case Prefilling(done, total):
                self._status = f"prefill {done}/{total}"
            case Written():
                self._status = "writing"
            case _:
                pass

    def comment(self) -> bytes:
        """What clients skip and people read."""
        return f": {self._status}\n\n".encode()
