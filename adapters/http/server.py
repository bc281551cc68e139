"""Listening, serving, and stopping in good order."""

import asyncio
import contextlib
import errno
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Generator
from functools import partial
from types import FrameType
from typing import Final, cast

import uvicorn
from litestar import Litestar

from ...domain.errors import SettingsError
from .routes_status import DRAINING
from .slow_clients import BODIES_BYTES_MAX, BoundedProtocol, Bounds, Shared

KEEP_ALIVE_S: Final = 75
"""Longer than clients keep idle connections, so that they close them and never meet a reset."""

_BACKLOG: Final = 2048


class Listener:
    """An address that is bound and does not accept connections yet.

    To be made before a model is loaded: an address that is taken is known at once then, and no
    client waits in front of a server that may never be ready.
    """

    def __init__(self, host: str, port: int) -> None:
        """Binds the address; port 0 takes a free one.

        Raises:
            SettingsError: the address is taken or is not this machine's.
        """
        self._host = host
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._socket = socket.socket(family, kind, protocol)
        except OSError as error:
            raise _refused(host, port, error) from error
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            raise _refused(host, port, error) from error
        self._port: int = self._socket.getsockname()[1]

    @property
    def port(self) -> int:
        """The port that is bound."""
        return self._port

    @property
    def url(self) -> str:
        """Where the server is found; on this machine, if it listens on every address."""
        return f"http://{_reachable(self._host)}:{self._port}"

    @property
    def socket(self) -> socket.socket:
        """The bound socket; whoever serves on it closes it."""
        return self._socket

    def close(self) -> None:
        """Give the address back."""
        self._socket.close()


class HttpServer:
    """An application on a listener, from `run` until a signal or `stop`."""

    def __init__(
        self,
        app: Litestar,
        listener: Listener,
        *,
        shutdown_s: float,
        on_ready: Callable[[str], None],
        on_stopping: Callable[[], None],
        bounds: Bounds | None = None,
    ) -> None:
        """Takes what to serve.

        Args:
            shutdown_s: how long running answers may go on after a stop was asked for; then they
                end with an error that says so.
            on_ready: called on the event loop with the server's URL once it accepts connections.
            on_stopping: called on the event loop before anything is closed.
            bounds: of what clients may take; None takes the usual ones.
        """
        self._listener = listener
        self._server = _Server(
            app,
            bounds or Bounds(),
            shutdown_s=shutdown_s,
            on_ready=lambda: on_ready(listener.url),
            on_stopping=on_stopping,
        )

    def run(self) -> None:
        """Serve; returns once everything is answered and closed.

        On the main thread SIGINT and SIGTERM stop it; a second SIGINT does not wait for answers.
        """
        with contextlib.closing(self._listener):
            self._server.run(sockets=[self._listener.socket])

    def stop(self) -> None:
        """Stop soon, as after a signal; callable from any thread."""
        self._server.should_exit = True


def serve(
    app: Litestar,
    listener: Listener,
    *,
    shutdown_s: float,
    on_ready: Callable[[str], None],
    on_stopping: Callable[[], None],
    on_shutdown: Callable[[], None],
    bodies_bytes_max: int = BODIES_BYTES_MAX,
) -> None:
    """Serve until a signal, and shut down whatever happened; see `HttpServer`.

    Args:
        on_shutdown: called on this thread after the last answer, or after a failure.
        bodies_bytes_max: of all requests that are not answered yet.
    """
    server = HttpServer(
        app,
        listener,
        shutdown_s=shutdown_s,
        on_ready=on_ready,
        on_stopping=on_stopping,
        bounds=Bounds(bodies_bytes_max=bodies_bytes_max),
    )
    try:
        server.run()
    finally:
        on_shutdown()


class _Server(uvicorn.Server):
    """uvicorn's server with two moments to hook into, and an end that is not a second signal."""

    def __init__(
        self,
        app: Litestar,
        bounds: Bounds,
        *,
        shutdown_s: float,
        on_ready: Callable[[], None],
        on_stopping: Callable[[], None],
    ) -> None:
        protocol = partial(BoundedProtocol, bounds=bounds, shared=Shared())
        super().__init__(
            uvicorn.Config(
                app,  # pyright: ignore[reportArgumentType]  # two spellings of ASGI's types
                loop="asyncio",
                # A class, as uvicorn has it; it is called once for each connection.
                http=cast("type[asyncio.Protocol]", protocol),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,  # the journal has a line per request, and says more
                server_header=False,
                # Said outright: left open, a variable of the environment decides. A proxy on this
                # machine may come over IPv6 too.
                forwarded_allow_ips=["127.0.0.0/8", "::1"],
                timeout_keep_alive=KEEP_ALIVE_S,
                backlog=_BACKLOG,
                # Declared as whole seconds, and used as the timeout of a wait.
                timeout_graceful_shutdown=shutdown_s,  # pyright: ignore[reportArgumentType]
            )
        )
        self._app = app
        self._on_ready = on_ready
        self._on_stopping = on_stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state[DRAINING] = True
        try:
            self._on_stopping()
        finally:
            await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """As the base class has it, but without raising the signal again at the end.

        That would end the process before its caller has shut down the rest.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)


def _refused(host: str, port: int, error: OSError) -> SettingsError:
    match error.errno:
        case errno.EADDRINUSE:
            why = (
                f"port {port} on {host} is in use; stop the program that has it, or choose another "
                "with --port (0 takes a free one)"
            )
        case errno.EACCES:
            why = f"port {port} may not be opened by this user; choose one above 1023 with --port"
        case _:
            why = f"cannot listen on {host} port {port}: {error.strerror}; choose another --host"
    return SettingsError(why)


def _reachable(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1"
    return f"[{address}]" if address.version == 6 else str(address)
