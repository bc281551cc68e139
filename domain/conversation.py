"""A conversation as clients send it, and the pieces a model's answer is made of."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model.

    Attributes:
        arguments: the JSON text of an object, exactly as it was written.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: system, developer, user, assistant or tool.
        content: its text; the parts of a multi-part text joined.
        reasoning: an assistant's reasoning, where the client sends it back.
        tool_call_id: the call a tool's message answers.
    """

    role: str
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a chat template renders.

    Attributes:
        messages: oldest first; not empty.
        tools: each a JSON Schema function description, in OpenAI's wrapping.
        thinking: whether the model is to think before it answers; None leaves it to the template.
        template_args: further variables for the template.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, object], ...] = ()
    thinking: bool | None = None
    template_args: Mapping[str, object] = field(default_factory=dict[str, object])


class PieceKind(enum.Enum):
    """What a piece of an answer is."""

    CONTENT = "content"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an answer, in the order of writing.

    Attributes:
        text: of a content or reasoning piece; not empty there.
        call: of a tool call piece, complete.
    """

    kind: PieceKind
    text: str = ""
    call: ToolCall | None = None
