"""A model's chat template: conversations to text, and what is to be known of its ways."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from jinja2 import TemplateError

from ...domain.conversation import Conversation, Message, ToolCall
from ...domain.errors import RequestError
from .loading import RenderTemplate
from .shared_text import common_suffix
from .tool_calls import UNREADABLE

_FAULTS: Final = (
    *(TemplateError, TypeError, ValueError, LookupError, ArithmeticError),
    RecursionError,  # tools and arguments may be nested deeper than they can be written out
)
"""What a template raises over data it was not made for, the library's checks included."""

_USER, _ASSISTANT, _AGAIN = "probe of a user", "probe of an answer", "probe of a next turn"

_CALL_TEXT: Final = '{"probe":1}'
"""No template that writes JSON itself would leave the space out."""

_TOOL: Final[Mapping[str, object]] = {
    "type": "function",
    "function": {
        "name": "probe",
        "description": "",
        "parameters": {"type": "object", "properties": dict[str, object]()},
    },
}


@dataclass(frozen=True, slots=True)
class TemplateHabits:
    """What was learned from rendering made-up conversations; "" and False where that failed.

    Attributes:
        user_header: what stands in front of a user's text.
        answer_end: what stands behind an answer.
        writes_arguments: a call's arguments are written as they are when they come as a text.
    """

    user_header: str = ""
    answer_end: str = ""
    writes_arguments: bool = False


class ChatTemplate:
    """Renders conversations with a template whose habits it learns once."""

    def __init__(self, render: RenderTemplate, source: str, reserved: frozenset[str]) -> None:
        """Args: reserved: names that a conversation may not use for variables."""
        self._render = render
        self._reserved = reserved
        self._knows_developer = "developer" in source
        self.habits = TemplateHabits()
        header, answer_end = self._learn_turns()
        self.habits = TemplateHabits(header, answer_end, self._learn_arguments())

    def text(self, conversation: Conversation, *, generation: bool) -> str:
        """The text of a conversation, with the start of the answer when `generation` is set.

        Raises:
            RequestError: the template refuses it.
        """
        variables = self._variables(conversation)
        messages = [self._message(message) for message in conversation.messages]
        try:
            return self._render(
                messages, conversation.tools, generation=generation, variables=variables
            )
        except _FAULTS as error:
            raise RequestError(
                f"the model's chat template refuses the conversation: {error}", field="messages"
            ) from error

    def _variables(self, conversation: Conversation) -> Mapping[str, object]:
        taken = sorted(self._reserved.intersection(conversation.template_args))
        if taken:
            raise RequestError(
                f"{taken[0]} is no variable of the chat template", field="chat_template_kwargs"
            )
        if conversation.thinking is None:
            return conversation.template_args
        # Qwen's templates and their kin ask for the first name, DeepSeek's and Granite's for the
        # second.
        thinking = conversation.thinking
        return {**conversation.template_args, "enable_thinking": thinking, "thinking": thinking}

    def _message(self, message: Message) -> Mapping[str, object]:
        role = message.role
        if role == "developer" and not self._knows_developer:
            # Templates skip roles they do not know, and instructions must not get lost.
            role = "system"
        mapped: dict[str, object] = {"role": role, "content": message.content}
        if message.reasoning is not None:
            mapped["reasoning_content"] = message.reasoning
        if message.tool_calls:
            mapped["tool_calls"] = [self._call(call) for call in message.tool_calls]
        if message.tool_call_id is not None:
            mapped["tool_call_id"] = message.tool_call_id
        if message.name is not None:
            mapped["name"] = message.name
        return mapped

    def _call(self, call: ToolCall) -> Mapping[str, object]:
        arguments = call.arguments if self.habits.writes_arguments else _parsed(call.arguments)
        function = {"name": call.name, "arguments": arguments}
        return {"id": call.id, "type": "function", "function": function}

    def _learn_turns(self) -> tuple[str, str]:
        """A user's header and an answer's end, from what stands between made-up messages.

            ... header USER ...        ANSWER answer_end header AGAIN user_end

        The header is what both user messages have in front of them. Where a default system
        prompt ends as an answer does, that end is common too: it is what the last message ends
        with as well, and is taken off.
        """
        turns = (Message("user", _USER), Message("assistant", _ASSISTANT), Message("user", _AGAIN))
        try:
            alone = self.text(Conversation(turns[:1]), generation=False)
            whole = self.text(Conversation(turns), generation=False)
        except RequestError:
            return "", ""
        before, user, _ = alone.partition(_USER)
        _, answer, rest = whole.partition(_ASSISTANT)
        between, again, user_end = rest.partition(_AGAIN)
        if not (user and answer and again):
            return "", ""
        shared = common_suffix(before, between)
        header = between[len(between) - shared :].removeprefix(user_end)
        return header, between.removesuffix(header)

    def _learn_arguments(self) -> bool:
        """Whether arguments given as a text come out as that text.

        If so they are given that way, so that a call of the model's own is rendered as it was
        written, to the space. Else they are given as objects, as templates of Hermes' kind expect.
        """
        call = {"name": "probe", "arguments": _CALL_TEXT}
        messages: Sequence[Mapping[str, object]] = (
            {"role": "user", "content": _USER},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "probe0000", "type": "function", "function": call}],
            },
        )
        try:
            text = self._render(messages, [_TOOL], generation=False, variables={})
        except _FAULTS:
            return False
        return _CALL_TEXT in text


def _parsed(arguments: str) -> object:
    """The object that `arguments` is; the text itself where it is no JSON."""
    if not arguments.strip():
        return {}
    try:
        return cast("object", json.loads(arguments))
    except UNREADABLE:
        return arguments
