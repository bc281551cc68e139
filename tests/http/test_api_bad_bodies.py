"""Every body that is refused: its status, the field it names, and its code."""

from dataclasses import dataclass

import pytest

from support.errors import checked
from support.server import Running

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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_body_is_refused_with_the_field_at_fault(shared_server: Running, case: Case) -> None:
    with shared_server.http() as client:
        error = checked(client.post(case.path, json=case.body), case.status)

    assert (error["param"], error["code"]) == (case.param, case.code)
    assert error["type"] == "invalid_request_error"
    assert case.said in str(error["message"])
    assert str(error["message"]).startswith(f"{case.param}: " if case.param else "")
