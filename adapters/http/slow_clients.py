"""Connections that hold what others need, and how long they may.

uvicorn waits for ever for a request's head, for its body, and for a client that does not read its
answer. Each such connection costs a descriptor, and its request memory; here it is let go.
"""

import asyncio
import resource
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, cast

import h11
import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from .errors import ErrorBody, ErrorDetail

CONNECTIONS_MAX: Final = 4096
CONNECTIONS_MIN: Final = 64
DESCRIPTORS_KEPT: Final = 256
"""For models, the store and what a request opens."""

_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER's on, for no time: else the system keeps the data for a client that never takes it."""

BODIES_BYTES_MAX: Final = 128 << 20


def connections_that_fit() -> int:
    """As many as the process has descriptors for, beside those it needs otherwise."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(max(descriptors - DESCRIPTORS_KEPT, CONNECTIONS_MIN), CONNECTIONS_MAX)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one connection, and all of them, may take.

    Attributes:
        head_s: from a connection's start, or a request's first byte, to the end of its head.
        stall_s: in which a body or an answer has to move on.
        moved_min: bytes that are moving on.
        connections_max: one more makes an idle one go, or is refused.
        bodies_bytes_max: of all requests that are not answered yet.
    """

    head_s: float = 30.0
    stall_s: float = 60.0
    moved_min: int = 1 << 10
    connections_max: int = field(default_factory=connections_that_fit)
    bodies_bytes_max: int = BODIES_BYTES_MAX


@dataclass(slots=True)
class Shared:
    """What the connections of a server know of each other.

    Attributes:
        bodies_bytes: of requests that are not answered yet.
        idle: connections between two requests, the one that has been idle longest first.
    """

    bodies_bytes: int = 0
    idle: "dict[BoundedProtocol, None]" = field(default_factory=dict["BoundedProtocol", None])


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol over h11, within bounds. All of it runs on the event loop."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        bounds: Bounds,
        shared: Shared,
    ) -> None:
        """As uvicorn makes it for each connection, with what a server's connections share."""
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds
        self._shared = shared
        self._held = 0
        self._moved = 0
        self._reading = _Timer(self.loop)
        self._writing = _Timer(self.loop)
        self._left_to_write = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Whatever the system does not take at once counts as an answer that waits for its client.
        transport.set_write_buffer_limits(high=0)
        if len(self.connections) > self._bounds.connections_max and not self._make_room():
            self._refuse(503, "this server has as many connections as it may", "unavailable")
            return
        self._watch_reading()

    def data_received(self, data: bytes) -> None:
        self._shared.idle.pop(self, None)
        self._moved += len(data)
        self._held += len(data)
        self._shared.bodies_bytes += len(data)
        super().data_received(data)
        answered = self.conn.our_state is h11.DONE
        if self._shared.bodies_bytes > self._bounds.bodies_bytes_max and not answered:
            self._refuse(503, "the requests that wait take all their memory", "unavailable")
        self._watch_reading()

    def on_response_complete(self) -> None:
        self._let_go()
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:
            self._shared.idle[self] = None
        self._watch_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading.stop()
        self._writing.stop()
        self._shared.idle.pop(self, None)
        self._let_go()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._left_to_write = self.transport.get_write_buffer_size()
        self._writing.start(self._bounds.stall_s, self._write_is_due)

    def resume_writing(self) -> None:
        self._writing.stop()
        super().resume_writing()

    def _watch_reading(self) -> None:
        """Run the clock that fits what the client is to send now."""
        state = self.conn.their_state
        idle = state is h11.IDLE and self.timeout_keep_alive_task is not None
        if self.transport.is_closing() or (idle and not self.conn.trailing_data[0]):
            self._reading.stop()
        elif state is h11.IDLE:
            # Not from the last byte on: one byte at a time would last for ever.
            self._reading.keep(self._bounds.head_s, self._head_is_due)
        elif state is h11.SEND_BODY:
            self._reading.keep(self._bounds.stall_s, self._body_is_due)
        else:
            self._reading.stop()

    def _head_is_due(self) -> None:
        self._refuse(408, f"no whole head came in {self._bounds.head_s:g} s", "timeout")

    def _body_is_due(self) -> None:
        moved, self._moved = self._moved, 0
        answered = self.conn.our_state is h11.DONE
        if not answered and (moved >= self._bounds.moved_min or self.flow.read_paused):
            self._watch_reading()
        else:
            # What follows an answer is thrown away, and nobody has to send all of it.
            self._refuse(408, f"the body did not go on for {self._bounds.stall_s:g} s", "timeout")

    def _write_is_due(self) -> None:
        left = self.transport.get_write_buffer_size()
        moved, self._left_to_write = self._left_to_write - left, left
        if moved < self._bounds.moved_min:
            self._abort()
        else:
            self._writing.start(self._bounds.stall_s, self._write_is_due)

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest; False if none is idle."""
        longest = next(iter(self._shared.idle), None)
        if longest is None:
            return False
        del self._shared.idle[longest]
        longest.timeout_keep_alive_handler()
        return True

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Say why, where no answer has begun, and close the connection."""
        if self.transport.is_closing():
            return
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._abort()
            return
        kind = "invalid_request_error" if status < 500 else "server_error"
        body = msgspec.json.encode(ErrorBody(ErrorDetail(message, kind, None, code)))
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _abort(self) -> None:
        """End the connection now; what the system still has to send is thrown away."""
        own = cast("socket.socket", self.transport.get_extra_info("socket"))
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def _let_go(self) -> None:
        self._shared.bodies_bytes -= self._held
        self._held = 0


class _Timer:
    """One call that is due, or none."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._call: asyncio.TimerHandle | None = None
        self._due: Callable[[], None] | None = None

    def start(self, seconds: float, due: Callable[[], None]) -> None:
        """Run `due` after some seconds, in place of what was to be run."""
        self.stop()
        self._due = due
        self._call = self._loop.call_later(seconds, self._run)

    def keep(self, seconds: float, due: Callable[[], None]) -> None:
        """The same, but leave a clock for `due` running that has been started already."""
        if self._due != due:
            self.start(seconds, due)

    def stop(self) -> None:
        if self._call is not None:
            self._call.cancel()
        self._call = self._due = None

    def _run(self) -> None:
        due, self._call, self._due = self._due, None, None
        assert due is not None
        due()
