"""The body of a chat completion."""

from typing import Literal

from msgspec import Struct

from .wire_generation import GenerationBody


class FunctionCallBody(Struct):
    """A function's name and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCallBody(Struct):
    """A call that the assistant made in an earlier turn."""

    id: str
    function: FunctionCallBody


class ContentPart(Struct):
    """A part of a message; `type` says what else it holds."""

    type: str
    text: str | None = None


class MessageBody(Struct):
    """One message.

    Attributes:
        reasoning_content: an assistant's reasoning, sent back.
        reasoning: the same under the name other servers use.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallBody] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class ResponseFormat(Struct):
    """How the answer is to be shaped."""

    type: str


class ChatBody(GenerationBody, kw_only=True):
    """A conversation to answer.

    Attributes:
        max_completion_tokens: OpenAI's newer name of `max_tokens`, and goes before it.
        tools: kept as they came: templates write them out again, in their own order.
        enable_thinking: whether the model is to think; goes before the same name in
            `chat_template_kwargs`, and that before `reasoning_effort`.
    """

    messages: list[MessageBody]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, object]] | None = None
    tool_choice: str | dict[str, object] | None = None
    response_format: ResponseFormat | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, object] | None = None
    reasoning_effort: str | None = None
