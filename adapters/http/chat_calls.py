"""From a chat body to a call of the service."""

from collections.abc import Mapping
from typing import Final, cast

from ...application.calls import ChatCall
from ...domain.conversation import Conversation, Message, ToolCall
from ...domain.errors import RequestError
from .wire_chat import ChatBody, ContentPart, MessageBody
from .wishes import wish_of

_THINKING_ARGUMENT: Final = "enable_thinking"

_OWN_ARGUMENTS: Final = frozenset({"messages", "tools", "add_generation_prompt"})
"""Variables of a template that the conversation itself fills."""


def chat_call(body: ChatBody, headers: Mapping[str, str]) -> ChatCall:
    """The call a body stands for.

    Args:
        headers: by lower-case name.

    Raises:
        RequestError: a field asks for what cannot be served.
    """
    _check_format(body)
    wish = wish_of(
        body,
        headers,
        max_tokens=_first(body.max_completion_tokens, body.max_tokens),
        top_logprobs=_top_logprobs(body),
    )
    messages = tuple(_message(at, message) for at, message in enumerate(body.messages))
    conversation = Conversation(
        messages=messages,
        tools=_tools(body),
        thinking=_thinking(body),
        template_args=_template_args(body),
    )
    return ChatCall(conversation, wish)


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _check_format(body: ChatBody) -> None:
    if body.response_format is not None and body.response_format.type != "text":
        raise RequestError(
            f"{body.response_format.type!r} is not supported yet, only 'text' is",
            field="response_format.type",
            code="unsupported",
        )


def _top_logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise RequestError("this needs logprobs to be true", field="top_logprobs")
    return None


def _message(at: int, body: MessageBody) -> Message:
    field = f"messages.{at}"
    if body.tool_calls and body.role != "assistant":
        raise RequestError("only assistants call tools", field=f"{field}.tool_calls")
    return Message(
        role=body.role,
        content=_content(body, f"{field}.content"),
        reasoning=body.reasoning if body.reasoning_content is None else body.reasoning_content,
        tool_calls=tuple(
            ToolCall(call.id, call.function.name, call.function.arguments)
            for call in body.tool_calls or ()
        ),
        tool_call_id=body.tool_call_id,
        name=body.name,
    )


def _content(body: MessageBody, field: str) -> str:
    """The text of a message; an assistant may have called tools, or thought, and said nothing."""
    match body.content:
        case str() as text:
            return text
        case None if body.role == "assistant":
            return ""
        case None:
            raise RequestError(f"a message of the role {body.role} has a content", field=field)
        case parts:
            return "".join(_text(part, f"{field}.{at}") for at, part in enumerate(parts))


def _text(part: ContentPart, field: str) -> str:
    if part.type != "text":
        raise RequestError(
            f"this model takes text only, and no part of the type {part.type[:40]!r}",
            field=field,
            code="unsupported",
        )
    if part.text is None:
        raise RequestError("this field is required", field=f"{field}.text")
    return part.text


def _tools(body: ChatBody) -> tuple[Mapping[str, object], ...]:
    if not _tools_shown(body.tool_choice):
        return ()
    tools = tuple(body.tools or ())
    for at, tool in enumerate(tools):
        _check_tool(tool, f"tools.{at}")
    return tools


def _tools_shown(choice: str | dict[str, object] | None) -> bool:
    match choice:
        case None | "auto":
            return True
        case "none":
            return False
        case str():
            shown = repr(choice[:40])
        case _:
            shown = "a named function"
    raise RequestError(
        f"{shown} is not supported yet, only 'auto' and 'none' are",
        field="tool_choice",
        code="unsupported",
    )


def _check_tool(tool: dict[str, object], field: str) -> None:
    if tool.get("type", "function") != "function":
        raise RequestError("only tools of the type 'function' are known", field=f"{field}.type")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise RequestError("a tool has a function, an object", field=f"{field}.function")
    if not isinstance(cast("dict[str, object]", function).get("name"), str):
        raise RequestError("a function has a name, a text", field=f"{field}.function.name")


def _thinking(body: ChatBody) -> bool | None:
    if body.enable_thinking is not None:
        return body.enable_thinking
    argument = (body.chat_template_kwargs or {}).get(_THINKING_ARGUMENT)
    if isinstance(argument, bool):
        return argument
    if argument is not None:
        raise RequestError(
            "this is true or false", field=f"chat_template_kwargs.{_THINKING_ARGUMENT}"
        )
    return False if body.reasoning_effort == "none" else None


def _template_args(body: ChatBody) -> dict[str, object]:
    args = dict(body.chat_template_kwargs or {})
    args.pop(_THINKING_ARGUMENT, None)
    for name in sorted(_OWN_ARGUMENTS & args.keys()):
        raise RequestError(
            "the conversation itself fills this", field=f"chat_template_kwargs.{name}"
        )
    if body.reasoning_effort is not None:
        args.setdefault("reasoning_effort", body.reasoning_effort)
    return args
