"""Every refusal: its status, the field it names, its code, and nothing of our insides."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
import openai
import pytest

from support.scripted_engine import PATIENCE_S
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = {"role": "user", "content": "Hello"}


def chat(**fields: object) -> dict[str, object]:
    return {"messages": [USER], **fields}


def message(**fields: object) -> dict[str, object]:
    return {"messages": [USER, {"role": "user", "content": "x", **fields}]}


def text(**fields: object) -> dict[str, object]:
    return {"prompt": "Once", **fields}


@dataclass(frozen=True)
class Case:
    """A body that is refused; `said` is a part of the message."""

    name: str
    path: str
    body: object
    param: str | None
    code: str
    said: str = ""
    status: int = 400


NOTHING: dict[str, object] = {}
FUNCTION = {"type": "function", "function": {"name": "f"}}
CASES = (
    Case("no messages field", CHAT, {}, "messages", "missing_required_parameter"),
    Case("empty messages", CHAT, {"messages": []}, "messages", "invalid_value"),
    Case("messages of a wrong type", CHAT, {"messages": 3}, "messages", "invalid_type", "array"),
    Case("a message of a wrong type", CHAT, {"messages": [3]}, "messages.0", "invalid_type"),
    Case("no role", CHAT, {"messages": [NOTHING]}, "messages.0.role", "missing_required_parameter"),
    Case("an unknown role", CHAT, message(role="x"), "messages.1.role", "invalid_type", "'x'"),
    Case("content of a wrong type", CHAT, message(content=1), "messages.1.content", "invalid_type"),
    Case("null content", CHAT, message(content=None), "messages.1.content", "invalid_value"),
    Case(
        "an image",
        CHAT,
        message(content=[{"type": "image_url", "image_url": {"url": "data:"}}]),
        "messages.1.content.0",
        "unsupported",
        "takes text only",
    ),
    Case(
        "a part without its text",
        CHAT,
        message(content=[{"type": "text"}]),
        "messages.1.content.0.text",
        "invalid_value",
    ),
    Case(
        "a part's text of a wrong type",
        CHAT,
        message(content=[{"type": "text", "text": "a"}, {"type": "text", "text": 1}]),
        "messages.1.content.1.text",
        "invalid_type",
    ),
    Case(
        "a user who calls a tool",
        CHAT,
        message(tool_calls=[{"id": "a", "function": {"name": "f", "arguments": "{}"}}]),
        "messages.1.tool_calls",
        "invalid_value",
    ),
    Case(
        "arguments that are no text",
        CHAT,
        message(role="assistant", tool_calls=[{"id": "a", "function": {"name": "f"}}]),
        "messages.1.tool_calls.0.function.arguments",
        "missing_required_parameter",
    ),
    Case("several answers", CHAT, chat(n=2), "n", "unsupported", "one answer per request"),
    Case("no answer", CHAT, chat(n=0), "n", "unsupported"),
    Case("an unknown model", CHAT, chat(model="x"), "model", "model_not_found", "'x'", 404),
    Case("a temperature as text", CHAT, chat(temperature="1"), "temperature", "invalid_type"),
    Case("a temperature as bool", CHAT, chat(temperature=True), "temperature", "invalid_type"),
    Case("a temperature too high", CHAT, chat(temperature=2.5), "temperature", "invalid_value"),
    Case("a top_p above 1", CHAT, chat(top_p=1.1), "top_p", "invalid_value"),
    Case("a top_k with a fraction", CHAT, chat(top_k=1.5), "top_k", "invalid_type"),
    Case("a negative min_p", CHAT, chat(min_p=-0.1), "min_p", "invalid_value"),
    Case(
        "a repetition penalty of 0",
        CHAT,
        chat(repetition_penalty=0),
        "repetition_penalty",
        "invalid_value",
    ),
    Case(
        "a presence penalty of 3",
        CHAT,
        chat(presence_penalty=3),
        "presence_penalty",
        "invalid_value",
    ),
    Case(
        "a frequency penalty of 3",
        CHAT,
        chat(frequency_penalty=3),
        "frequency_penalty",
        "invalid_value",
    ),
    Case("a seed as text", CHAT, chat(seed="1"), "seed", "invalid_type"),
    Case("negative max_tokens", CHAT, chat(max_tokens=-1), "max_tokens", "invalid_value"),
    Case("a bias on no id", CHAT, chat(logit_bias={"a": 1}), "logit_bias.a", "invalid_value"),
    Case("a bias as text", CHAT, chat(logit_bias={"1": "a"}), "logit_bias", "invalid_type"),
    Case("a bias too strong", CHAT, chat(logit_bias={"1": 101}), "logit_bias.1", "invalid_value"),
    Case("too many stops", CHAT, chat(stop=["a"] * 17), "stop", "invalid_value"),
    Case("an empty stop", CHAT, chat(stop=["a", ""]), "stop.1", "invalid_value"),
    Case("a stop of a wrong type", CHAT, chat(stop=["a", 1]), "stop.1", "invalid_type"),
    Case(
        "alternatives without logprobs", CHAT, chat(top_logprobs=2), "top_logprobs", "invalid_value"
    ),
    Case(
        "too many alternatives",
        CHAT,
        chat(logprobs=True, top_logprobs=21),
        "top_logprobs",
        "invalid_value",
    ),
    Case("logprobs as a number", CHAT, chat(logprobs=1), "logprobs", "invalid_type"),
    Case(
        "a tool must be called",
        CHAT,
        chat(tools=[FUNCTION], tool_choice="required"),
        "tool_choice",
        "unsupported",
        "not supported yet",
    ),
    Case(
        "one tool must be called",
        CHAT,
        chat(tools=[FUNCTION], tool_choice=FUNCTION),
        "tool_choice",
        "unsupported",
        "not supported yet",
    ),
    Case(
        "a tool of another type",
        CHAT,
        chat(tools=[{"type": "custom"}]),
        "tools.0.type",
        "invalid_value",
    ),
    Case(
        "a tool without a function",
        CHAT,
        chat(tools=[{"type": "function"}]),
        "tools.0.function",
        "invalid_value",
    ),
    Case(
        "a tool without a name",
        CHAT,
        chat(tools=[FUNCTION, {"function": NOTHING}]),
        "tools.1.function.name",
        "invalid_value",
    ),
    Case(
        "an answer as JSON",
        CHAT,
        chat(response_format={"type": "json_object"}),
        "response_format.type",
        "unsupported",
        "not supported yet",
    ),
    Case("stream as text", CHAT, chat(stream="yes"), "stream", "invalid_type"),
    Case(
        "an option of a stream as text",
        CHAT,
        chat(stream_options={"include_usage": "y"}),
        "stream_options.include_usage",
        "invalid_type",
    ),
    Case(
        "thinking as text",
        CHAT,
        chat(chat_template_kwargs={"enable_thinking": "no"}),
        "chat_template_kwargs.enable_thinking",
        "invalid_value",
    ),
    Case(
        "messages for the template",
        CHAT,
        chat(chat_template_kwargs={"messages": []}),
        "chat_template_kwargs.messages",
        "invalid_value",
    ),
    Case("a long session id", CHAT, chat(session_id="s" * 1025), "session_id", "invalid_value"),
    Case(
        "a long conversation",
        CHAT,
        {"messages": [{"role": "user", "content": "x" * 5000}]},
        "messages",
        "context_length_exceeded",
        "4096",
    ),
    Case("no prompt", TEXT, {}, "prompt", "missing_required_parameter"),
    Case("an empty prompt", TEXT, text(prompt=""), "prompt", "invalid_value"),
    Case("an empty list", TEXT, text(prompt=[]), "prompt", "invalid_value"),
    Case("several prompts", TEXT, text(prompt=["a", "b"]), "prompt", "unsupported", "not 2"),
    Case("several lists of ids", TEXT, text(prompt=[[1], [2]]), "prompt", "unsupported"),
    Case("ids and texts", TEXT, text(prompt=[1, "a"]), "prompt.1", "invalid_value"),
    Case(
        "a prompt of a wrong type", TEXT, text(prompt=[1, [2, "a"]]), "prompt.1.1", "invalid_type"
    ),
    Case("an id that is none", TEXT, text(prompt=[1, 262]), "prompt.1", "invalid_value", "262"),
    Case("a negative id", TEXT, text(prompt=[-1]), "prompt", "invalid_value"),
    Case("a huge id", TEXT, text(prompt=[10**30]), "prompt", "invalid_value"),
    Case("a long prompt", TEXT, text(prompt="x" * 5000), "prompt", "context_length_exceeded"),
    Case("an echo", TEXT, text(echo=True), "echo", "unsupported"),
    Case("a suffix", TEXT, text(suffix="a"), "suffix", "unsupported"),
    Case("the best of several", TEXT, text(best_of=2), "best_of", "unsupported"),
    Case("several completions", TEXT, text(n=3), "n", "unsupported"),
    Case("21 alternatives", TEXT, text(logprobs=21), "logprobs", "invalid_value"),
    Case(
        "an unknown model to complete", TEXT, text(model="x"), "model", "model_not_found", "", 404
    ),
    Case("nothing to tokenize", "/tokenize", {}, "content", "invalid_value"),
    Case("a number to tokenize", "/tokenize", {"content": 1}, "content", "invalid_type"),
    Case("no messages to tokenize", "/tokenize", {"messages": []}, "messages", "invalid_value"),
    Case("an unknown id to read", "/detokenize", {"tokens": [1, 999]}, "tokens.1", "invalid_value"),
    Case("ids as text", "/detokenize", {"tokens": "1"}, "tokens", "invalid_type"),
    Case("a list for a body", CHAT, [], None, "invalid_type", "object"),
)


def checked(answer: httpx.Response, status: int) -> dict[str, object]:
    """The error of an answer in OpenAI's shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    return error


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_body_is_refused_with_the_field_at_fault(shared_server: Running, case: Case) -> None:
    with shared_server.http() as client:
        error = checked(client.post(case.path, json=case.body), case.status)

    assert (error["param"], error["code"]) == (case.param, case.code)
    assert error["type"] == "invalid_request_error"
    assert case.said in str(error["message"])
    assert str(error["message"]).startswith(f"{case.param}: " if case.param else "")


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
