"""A client that goes away takes its work with it: at the next chunk, or the next token."""

import json
import socket
from collections.abc import Mapping

import pytest

from support.scripted_engine import PATIENCE_S
from support.server import Running

CHAT = "/v1/chat/completions"
LONG = "x" * 600
"""Ten chunks of the test engine's grid."""


def connected(
    server: Running, *, stream: bool, text: str = LONG, padding: int = 0
) -> socket.socket:
    """A client that has sent its request and reads nothing yet."""
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": text}],
            "stream": stream,
            "max_tokens": 500,
            "metadata": "x" * padding,
        }
    )
    client = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall(f"{head}{body}".encode())
    return client


def serves_another(server: Running) -> Mapping[str, object]:
    """The journal's line about a request after the one that was given up."""
    server.engine.release()
    with server.http() as client:
        body = {"messages": [{"role": "user", "content": "next"}], "max_tokens": 1}
        client.post(CHAT, json=body).raise_for_status()
    return server.telemetry.next_record()


@pytest.mark.parametrize("stream", [False, True])
def test_a_prefill_stops_at_the_next_chunk(server: Running, stream: bool) -> None:
    server.engine.hold()
    client = connected(server, stream=stream)
    server.engine.let(2)

    client.close()
    cancelled = server.service.next_cancelled()
    before = server.engine.tokens_forwarded
    server.engine.release()
    record = server.telemetry.next_record()

    assert (record["request"], record["finish"]) == (cancelled, "cancelled")
    assert server.engine.tokens_forwarded <= before + 64
    assert serves_another(server)["finish"] == "length"


def test_a_client_is_missed_after_a_body_that_filled_the_servers_buffer(server: Running) -> None:
    server.engine.hold()
    # uvicorn stops to read a connection at 64 KiB, and sees no end of it until it reads again.
    client = connected(server, stream=True, padding=500_000)
    server.engine.let()

    client.close()
    cancelled = server.service.next_cancelled()
    server.engine.release()

    assert server.telemetry.next_record()["request"] == cancelled


@pytest.mark.parametrize("stream", [False, True])
def test_a_generation_stops_at_the_next_token(server: Running, stream: bool) -> None:
    server.engine.script = "y" * 500
    server.engine.hold()
    client = connected(server, stream=stream, text="short")
    server.engine.let(10)

    client.close()
    cancelled = server.service.next_cancelled()
    server.engine.release()
    record = server.telemetry.next_record()

    assert (record["request"], record["finish"]) == (cancelled, "cancelled")
    assert int(str(record["completion"])) < 15
    assert serves_another(server)["finish"] == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_a_waiting_request_leaves_the_queue(server: Running, stream: bool) -> None:
    server.engine.script = "y" * 500
    server.engine.hold()
    running = connected(server, stream=True, text="short")
    assert server.engine.held.wait(PATIENCE_S)
    waiting = connected(server, stream=stream)
    # Both requests are known to the service before the second client leaves.
    while server.service.submitted.qsize() < 2:
        server.engine.let()

    waiting.close()
    cancelled = server.service.next_cancelled()
    server.engine.let(2)
    record = server.telemetry.next_record()
    running.close()
    server.engine.release()

    assert (record["request"], record["finish"]) == (cancelled, "cancelled")
    assert record["waiting"] is True
    assert server.telemetry.next_record()["finish"] == "cancelled"


def test_a_client_that_stays_is_not_cancelled(server: Running) -> None:
    with server.http() as client:
        for stream in (False, True):
            body = {"messages": [{"role": "user", "content": "x"}], "stream": stream}
            client.post(CHAT, json=body).raise_for_status()

    assert [server.telemetry.next_record()["finish"] for _ in range(2)] == ["stop", "stop"]
    assert server.service.cancelled.empty()


def test_a_cancelled_prefill_is_resumed_by_its_retry(server: Running) -> None:
    server.engine.hold()
    client = connected(server, stream=True)
    server.engine.let(5)
    client.close()
    server.service.next_cancelled()
    server.engine.release()
    assert server.telemetry.next_record()["finish"] == "cancelled"

    with server.http() as other:
        body = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 1}
        usage = other.post(CHAT, json=body).json()["usage"]

    assert usage["prompt_tokens_details"]["cached_tokens"] >= 5 * 64
    assert usage["anchorline"]["cache"]["gate"] == "bitwise"


def test_the_official_clients_closed_stream_stops_the_generation(server: Running) -> None:
    server.engine.script = "y" * 500
    server.engine.hold()
    with server.openai() as client:
        stream = client.chat.completions.create(
            model="checkable", messages=[{"role": "user", "content": "x"}], stream=True
        )
        server.engine.let(3)
        next(iter(stream))
        stream.close()
        cancelled = server.service.next_cancelled()
        server.engine.release()

    record = server.telemetry.next_record()
    assert (record["request"], record["finish"]) == (cancelled, "cancelled")
