"""Clients that are slow or many: each is bounded, and the others are served meanwhile."""

import contextlib
import json
import select
import socket
from collections.abc import Callable, Generator
from functools import partial

import pytest

import support.server
from anchorline.adapters.http.server import HttpServer, Listener
from anchorline.adapters.http.slow_clients import Bounds, connections_that_fit
from support.scripted_engine import PATIENCE_S
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
SOON_S = 0.1
"""As short as a bound may be and still let a prompt client through."""

Start = Callable[[Bounds], Running]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Generator[Start]:
    """Starts a server whose clients have other bounds."""
    with contextlib.ExitStack() as stack:

        def one(bounds: Bounds) -> Running:
            monkeypatch.setattr(support.server, "HttpServer", partial(HttpServer, bounds=bounds))
            return stack.enter_context(running_server(Options(slots=2)))

        yield one


@contextlib.contextmanager
def connected(server: Running, first: bytes = b"") -> Generator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as client:
        client.sendall(first)
        yield client


def narrow_listener(host: str, port: int) -> Listener:
    """One for whose connections the system keeps next to nothing, as connections inherit it."""
    listener = Listener(host, port)
    listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return listener


def until_closed(client: socket.socket) -> bytes:
    """All that the server still says; a reset is an end as well."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            said += piece
    return said


def status_of(client: socket.socket) -> int:
    """The status of one whole answer; the connection stays."""
    said = b""
    while b"\r\n\r\n" not in said:
        said += client.recv(1 << 16)
    head, _, body = said.partition(b"\r\n\r\n")
    (length,) = (
        int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")
    )
    while len(body) < length:
        body += client.recv(1 << 16)
    return int(head.split()[1])


def trickle(client: socket.socket, piece: bytes) -> bytes:
    """Send a piece again and again, faster than any bound, until the server has had enough."""
    with contextlib.suppress(ConnectionError):
        while not select.select([client], [], [], SOON_S / 10)[0]:
            client.sendall(piece)
    return until_closed(client)


def send_for_ever(client: socket.socket, piece: bytes) -> None:
    while True:
        client.sendall(piece)


def posted(body: bytes, length: int | None = None) -> bytes:
    length = len(body) if length is None else length
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + body


def chat(**fields: object) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "x"}], **fields}).encode()


def serves(server: Running) -> bool:
    with server.http() as client:
        return (
            client.get("/health").status_code == 200
            and client.post(CHAT, content=chat(max_tokens=2)).status_code == 200
        )


# --- requests that do not come --------------------------------------------------------------------


@pytest.mark.parametrize(
    "first", [b"", b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: a\r\n"], ids=str
)
def test_a_head_that_never_ends_is_given_up(start: Start, first: bytes) -> None:
    server = start(Bounds(head_s=SOON_S))
    with connected(server, first) as client:
        said = until_closed(client)

    assert said.startswith(b"HTTP/1.1 408 ")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["code"] == "timeout"


def test_a_head_that_comes_byte_by_byte_is_given_up(start: Start) -> None:
    server = start(Bounds(head_s=SOON_S))
    with connected(server, b"GET /health HTTP/1.1\r\nx: ") as client:
        assert trickle(client, b"a").startswith(b"HTTP/1.1 408 ")


def test_a_second_head_on_a_connection_is_bounded_as_the_first_is(start: Start) -> None:
    server = start(Bounds(head_s=SOON_S))
    with connected(server, HEALTH + b"GET /health") as client:
        said = until_closed(client)

    assert said.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in said


def test_a_connection_between_two_requests_may_wait_longer(start: Start) -> None:
    server = start(Bounds(head_s=SOON_S))
    with connected(server, HEALTH) as idle:
        assert status_of(idle) == 200
        with connected(server) as later:
            until_closed(later)  # a whole bound has passed since
        idle.sendall(HEALTH)
        assert status_of(idle) == 200


def test_a_body_that_stops_is_given_up(start: Start) -> None:
    server = start(Bounds(stall_s=SOON_S))
    with connected(server, posted(b"{", 1000)) as client:
        assert until_closed(client).startswith(b"HTTP/1.1 408 ")
    assert server.service.submitted.empty()


def test_a_body_that_comes_byte_by_byte_is_given_up(start: Start) -> None:
    server = start(Bounds(stall_s=SOON_S))
    with connected(server, posted(b"{", 1_000_000)) as client:
        assert trickle(client, b" ").startswith(b"HTTP/1.1 408 ")


def test_a_body_that_goes_on_after_its_answer_is_given_up(start: Start) -> None:
    server = start(Bounds(stall_s=SOON_S))
    head = b"POST /nothing HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connected(server, head) as client:
        answer = client.recv(1 << 16)
        # Each chunk is as much as moving on takes.
        with pytest.raises(ConnectionError):
            send_for_ever(client, b"1000\r\n" + bytes(0x1000) + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 404 ")


# --- answers that nobody reads --------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_reads_nothing_is_let_go_with_what_was_kept_for_it(
    start: Start, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support.server, "Listener", narrow_listener)
    server = start(Bounds(stall_s=SOON_S))
    server.engine.script = "y" * 200
    body = chat(stream=stream, max_tokens=200, logprobs=True, top_logprobs=20)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", server.port))
        client.sendall(posted(body))
        ended = select.poll()
        ended.register(client, select.POLLHUP | select.POLLERR)
        # The end comes although nothing was read: nothing is left on the way.
        assert ended.poll(PATIENCE_S * 1000)

        assert b"[DONE]" not in until_closed(client)
    assert serves(server)


# --- many of them ---------------------------------------------------------------------------------


def test_others_are_served_while_many_requests_are_half_there(server: Running) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(200):
            half = posted(b"{", 1000) if number % 2 else b"POST /v1/chat/comp"
            stack.enter_context(connected(server, half))

        assert serves(server)


def test_one_connection_too_many_is_refused(start: Start) -> None:
    server = start(Bounds(connections_max=3))
    with contextlib.ExitStack() as stack:
        half = [stack.enter_context(connected(server, b"GET /")) for _ in range(3)]
        with connected(server) as fourth:
            said = until_closed(fourth)
        half.pop().close()
        while not _is_served(server):
            pass  # until the server has seen the connection's end

    assert said.startswith(b"HTTP/1.1 503 ")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["code"] == "unavailable"


def test_the_connection_that_is_idle_longest_makes_room(start: Start) -> None:
    server = start(Bounds(connections_max=2))
    with connected(server, HEALTH) as first:
        status_of(first)
        with connected(server, HEALTH) as second:
            status_of(second)
            with connected(server, HEALTH) as third:
                assert status_of(third) == 200
            assert until_closed(first) == b""
            second.sendall(HEALTH)
            assert status_of(second) == 200


def test_bodies_that_wait_are_bounded_together(start: Start) -> None:
    server = start(Bounds(bodies_bytes_max=100_000))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(2)]
        for client in clients:
            client.sendall(posted(b"{" + b" " * 60_000, 500_000))
        ready, _, _ = select.select(clients, [], [], PATIENCE_S)
        assert len(ready) == 1
        assert until_closed(ready[0]).startswith(b"HTTP/1.1 503 ")
        # Its part is free again, and the other one goes on.
        assert serves(server)


def test_answered_requests_count_no_more(start: Start) -> None:
    server = start(Bounds(bodies_bytes_max=10_000))
    with server.http() as client:
        codes = {
            client.post(CHAT, content=chat(max_tokens=1, user="x" * 4000)).status_code
            for _ in range(10)
        }

    assert codes == {200}


def test_connections_leave_descriptors_for_everything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def limited(soft: int) -> int:
        def getrlimit(_: int) -> tuple[int, int]:
            return soft, soft

        monkeypatch.setattr("resource.getrlimit", getrlimit)
        return connections_that_fit()

    assert limited(1024) == 1024 - 256
    assert limited(128) == 64
    assert limited(1 << 20) == limited(-1) == 4096


def _is_served(server: Running) -> bool:
    with connected(server, HEALTH) as client:
        return client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
