"""Where the parts of a rendered conversation stand.

Templates are programs, so nothing is taken from their source: a conversation is rendered again
with one thing changed, and where the two texts part is where that thing stands.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...domain.conversation import Conversation, Message
from ...domain.errors import RequestError
from .chat_template import ChatTemplate
from .marks import THINK_CLOSE, THINK_OPEN
from .shared_text import common_prefix, common_suffix


@dataclass(frozen=True, slots=True)
class Outline:
    """A rendered text; places are counted in characters.

    Attributes:
        head: where the first message that is no system message starts.
        last_user: where the last user message starts; 0 where there is none or it is not found.
        tools: the half-open stretch that tells of tools.
        opens_reasoning: the text ends inside a thinking block.
        first_answer: where the first message of the assistant starts; None where there is none.
    """

    text: str
    head: int
    last_user: int
    tools: tuple[int, int]
    opens_reasoning: bool
    first_answer: int | None


def outline(template: ChatTemplate, conversation: Conversation) -> Outline:
    """Render a conversation up to where the answer starts, and find its parts.

    Raises:
        RequestError: the template refuses it.
    """
    probe = _Probe(template, conversation)
    roles = [message.role for message in conversation.messages]
    first = next((i for i, role in enumerate(roles) if role not in ("system", "developer")), None)
    last_user = next((i for i in reversed(range(len(roles))) if roles[i] == "user"), None)
    head = probe.end_of_messages() if first is None else probe.start_of(first)
    user = 0
    if last_user is not None:
        user = head if last_user == first else probe.start_of(last_user)
    answer = None if "assistant" not in roles else probe.start_of(roles.index("assistant"))
    return Outline(probe.text, head, user, probe.tools(), probe.opens_reasoning(), answer)


class _Probe:
    """Renders variants of one conversation and compares; a refused variant finds nothing."""

    def __init__(self, template: ChatTemplate, conversation: Conversation) -> None:
        self._template = template
        self._conversation = conversation
        self.text = template.text(conversation, generation=True)

    def start_of(self, index: int) -> int:
        """Where a message starts; where its text starts if its header is not the usual one."""
        messages = self._conversation.messages
        changed = replace(messages[index], content=_other_text(messages[index].content))
        variant = self._variant((*messages[:index], changed, *messages[index + 1 :]))
        if variant is None:
            return 0
        start = common_prefix(self.text, variant)
        header = self._template.habits.user_header
        is_usual = messages[index].role == "user" and self.text.endswith(header, 0, start)
        return start - len(header) if is_usual else start

    def end_of_messages(self) -> int:
        """Where the messages end and the start of the answer begins."""
        try:
            variant = self._template.text(self._conversation, generation=False)
        except RequestError:
            return len(self.text)
        return common_prefix(self.text, variant)

    def tools(self) -> tuple[int, int]:
        """The stretch that is not there without tools."""
        if not self._conversation.tools:
            return 0, 0
        variant = self._variant(self._conversation.messages, keep_tools=False)
        if variant is None:
            return 0, 0
        start = common_prefix(self.text, variant)
        rest, other = self.text[start:], variant[start:]
        return start, start + len(rest) - common_suffix(rest, other)

    def opens_reasoning(self) -> bool:
        """Whether the last mark opens a block, and the template wrote it as the answer's start.

        A user's text may hold such a mark too: hence the second half.
        """
        last = self.text.rfind(THINK_OPEN)
        return last > self.text.rfind(THINK_CLOSE) and last >= self.end_of_messages()

    def _variant(self, messages: Sequence[Message], *, keep_tools: bool = True) -> str | None:
        tools = self._conversation.tools if keep_tools else ()
        conversation = replace(self._conversation, messages=tuple(messages), tools=tools)
        try:
            return self._template.text(conversation, generation=True)
        except RequestError:
            return None


def _other_text(text: str) -> str:
    """A text whose first character differs from that of `text`, with and without its margins."""
    return "?" if not text.lstrip().startswith("?") else "!"
