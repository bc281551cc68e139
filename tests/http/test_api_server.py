"""Listening, and stopping in good order."""

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from litestar import Litestar

from anchorline.adapters.http.routes_status import DRAINING
from anchorline.adapters.http.server import Listener, serve
from anchorline.domain.errors import SettingsError
from support.scripted_engine import PATIENCE_S
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"


def body(*, stream: bool) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "x" * 200}], "stream": stream}


def test_a_port_in_use_is_refused_with_its_number_and_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(SettingsError, match=rf"port {port} on 127\.0\.0\.1 is in use.*--port"):
            Listener("127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(SettingsError, match=r"cannot listen on .*--host"):
        Listener(host, 0)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("localhost", "localhost")],  # noqa: S104
)
def test_a_listener_gives_an_url_that_can_be_opened(host: str, shown: str) -> None:
    listener = Listener(host, 0)

    assert listener.url == f"http://{shown}:{listener.port}"
    listener.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_then_the_rest(number: signal.Signals) -> None:
    seen: list[str] = []

    def on_ready(url: str) -> None:
        seen.append(f"ready on {url}")
        os.kill(os.getpid(), number)

    listener = Listener("127.0.0.1", 0)
    before = signal.getsignal(number)
    serve(
        Litestar([]),
        listener,
        shutdown_s=PATIENCE_S,
        on_ready=on_ready,
        on_stopping=lambda: seen.append("stopping"),
        on_shutdown=lambda: seen.append("shut down"),
    )

    assert seen == [f"ready on {listener.url}", "stopping", "shut down"]
    assert signal.getsignal(number) is before
    Listener("127.0.0.1", listener.port).close()  # the address is free again


def test_the_rest_is_shut_down_although_the_server_failed() -> None:
    seen: list[str] = []

    def fail(_: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        serve(
            Litestar([]),
            Listener("127.0.0.1", 0),
            shutdown_s=PATIENCE_S,
            on_ready=fail,
            on_stopping=lambda: seen.append("stopping"),
            on_shutdown=lambda: seen.append("shut down"),
        )

    assert seen == ["shut down"]


@pytest.mark.parametrize("stream", [False, True])
def test_running_answers_are_finished_before_the_server_ends(server: Running, stream: bool) -> None:
    server.engine.script = "\n</think>\n\nHello"
    server.engine.hold()
    with server.http() as client, ThreadPoolExecutor() as others:
        running = others.submit(client.post, CHAT, json=body(stream=stream))
        assert server.engine.held.wait(PATIENCE_S)
        server.http_server.stop()
        server.stopping.wait(PATIENCE_S)
        server.engine.release()
        answer = running.result()

    assert answer.status_code == 200
    assert '"finish_reason":"stop"' in answer.text
    assert server.ended.wait(PATIENCE_S)


def test_a_stopping_server_takes_no_connection(server: Running) -> None:
    server.http_server.stop()
    assert server.ended.wait(PATIENCE_S)

    assert server.app.state[DRAINING] is True
    with server.http() as client, pytest.raises(httpx.ConnectError):
        client.get("/health")


@pytest.mark.parametrize("stream", [False, True])
def test_answers_that_outlast_the_stop_end_with_an_error_that_says_so(stream: bool) -> None:
    with running_server(Options(shutdown_s=0.2)) as server:
        server.engine.script = "x" * 500
        server.engine.hold()
        started = threading.Event()

        def ask() -> tuple[int, str]:
            with server.http() as client:
                request = body(stream=stream) | {"max_tokens": 500}
                with client.stream("POST", CHAT, json=request) as answer:
                    started.set()
                    return answer.status_code, answer.read().decode()

        with ThreadPoolExecutor() as others:
            running = others.submit(ask)
            server.engine.let(2)
            server.http_server.stop()
            status, text = running.result(PATIENCE_S)
            assert server.ended.wait(PATIENCE_S)

    assert status == (200 if stream else 503)
    assert "the server stopped before the answer was complete" in text
    assert '"code":"draining"' in text
    assert "[DONE]" not in text
