"""Everything that goes wrong has its status and its code, and shows nothing of our insides."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import openai
import pytest

from support.errors import checked
from support.scripted_engine import PATIENCE_S
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = {"role": "user", "content": "Hello"}


def chat(**fields: object) -> dict[str, object]:
    return {"messages": [USER], **fields}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b'{"messages": [}', b'{"messages": "\\ud800"}', b'{"a":' + b"[" * 100_000],
    ids=["empty", "cut", "no UTF-8", "malformed", "half a character", "nested too deep"],
)
@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize", "/detokenize"])
def test_what_is_not_json_is_refused(shared_server: Running, path: str, body: bytes) -> None:
    with shared_server.http() as client:
        error = checked(client.post(path, content=body), 400)

    assert error["code"] in {"invalid_json", "invalid_type", "missing_required_parameter"}


def test_a_body_needs_no_content_type(shared_server: Running) -> None:
    body = b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}'
    with shared_server.http() as client:
        for kind in ("", "application/x-www-form-urlencoded", "text/plain"):
            answer = client.post(CHAT, content=body, headers={"content-type": kind})
            assert answer.status_code == 200


@dataclass(frozen=True)
class Route:
    """A request to what is not there."""

    method: str
    path: str
    status: int
    code: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@pytest.mark.parametrize(
    "route",
    [
        Route("GET", "/nothing", 404, "unknown_url"),
        Route("POST", "/v1/embeddings", 404, "unknown_url"),
        Route("POST", "/v1/chat/completions/x", 404, "unknown_url"),
        Route("GET", CHAT, 405, "method_not_allowed", {"allow": "POST"}),
        Route("DELETE", "/health", 405, "method_not_allowed", {"allow": "GET"}),
        Route("GET", "/v1/models/no/such", 404, "model_not_found"),
    ],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_a_wrong_address_is_refused_in_the_same_shape(shared_server: Running, route: Route) -> None:
    with shared_server.http() as client:
        answer = client.request(route.method, route.path)
        error = checked(answer, route.status)

    assert error["code"] == route.code
    for name, value in route.headers.items():
        assert value in answer.headers[name]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused_and_the_limit_named(
    shared_server: Running, chunked: bool
) -> None:
    size = (1 << 20) + 1
    body = b"x" * size
    with shared_server.http() as client:
        answer = client.post(CHAT, content=iter([body]) if chunked else body)

    error = checked(answer, 413)
    assert error["code"] == "request_too_large"
    assert str(1 << 20) in str(error["message"])


def test_a_body_far_over_the_limit_still_gets_its_answer(shared_server: Running) -> None:
    with shared_server.http() as client:
        checked(client.post(CHAT, content=b"x" * (64 << 20)), 413)


def test_the_official_client_raises_its_own_errors(shared_server: Running) -> None:
    with shared_server.openai() as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            client.chat.completions.create(model="x", messages=[{"role": "user", "content": "x"}])
        with pytest.raises(openai.BadRequestError) as bad:
            client.chat.completions.create(model="checkable", messages=[])

    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    assert (bad.value.param, bad.value.type) == ("messages", "invalid_request_error")


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_answered_with_503_before_any_stream_starts(stream: bool) -> None:
    with (
        running_server(Options(queue_max=0)) as server,
        server.http() as client,
        ThreadPoolExecutor() as others,
    ):
        server.engine.script = "x" * 1000
        server.engine.hold()
        running = others.submit(client.post, CHAT, json=chat(max_tokens=1000))
        assert server.engine.held.wait(PATIENCE_S)
        refusal = others.submit(client.post, CHAT, json=chat(stream=stream))
        while not refusal.done():
            server.engine.let()  # the engine thread takes requests between two steps
        server.engine.release()
        refused = refusal.result()
        assert running.result().status_code == 200

    assert checked(refused, 503)["code"] == "queue_full"
    assert int(refused.headers["retry-after"]) > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_drains_takes_nothing_new(server: Running, stream: bool) -> None:
    server.service.drain()
    with server.http() as client:
        refused = client.post(CHAT, json=chat(stream=stream))

    assert checked(refused, 503)["code"] == "draining"
    assert int(refused.headers["retry-after"]) > 0


def test_a_stopped_engine_thread_is_answered_with_503(server: Running) -> None:
    assert server.engine_thread.stop(PATIENCE_S)
    with server.http() as client:
        assert checked(client.post(CHAT, json=chat()), 503)["code"] == "draining"
        assert checked(client.get("/v1/cache/stats"), 503)["code"] == "draining"
        assert client.get("/health").status_code == 200


def test_a_failed_forward_is_answered_with_500_and_the_next_request_is_served(
    server: Running,
) -> None:
    server.engine.fail_next_forward()
    with server.http() as client:
        error = checked(client.post(CHAT, json=chat()), 500)
        again = client.post(CHAT, json=chat())

    assert (error["type"], error["code"]) == ("server_error", "engine_error")
    assert again.status_code == 200


def test_an_error_inside_a_stream_is_its_last_event(server: Running) -> None:
    server.engine.script = "\n</think>\n\nHello"
    server.engine.fail_next_forward(after=7)
    with server.http() as client:
        answer = client.post(CHAT, json=chat(stream=True))

    assert answer.status_code == 200
    events = [line for line in answer.text.split("\n\n") if line.startswith("data: ")]
    assert len(events) > 2
    assert events[-1].startswith('data: {"error":')
    assert '"code":"engine_error"' in events[-1]
    assert "[DONE]" not in answer.text


def test_the_official_client_raises_an_error_inside_a_stream(server: Running) -> None:
    server.engine.fail_next_forward(after=3)
    with server.openai() as client:
        stream = client.chat.completions.create(
            model="checkable", messages=[{"role": "user", "content": "Hello"}], stream=True
        )
        with pytest.raises(openai.APIError, match="told to fail"):
            list(stream)


def test_a_fault_of_ours_is_not_shown(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("secret insides")

    monkeypatch.setattr(server.service, "prepare_chat", fail)
    with server.http() as client:
        error = checked(client.post(CHAT, json=chat()), 500)

    assert (error["message"], error["code"]) == ("internal error", "internal_error")
    assert "secret insides" in caplog.text
