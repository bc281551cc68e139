"""From conversations to token ids and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.conversation import Conversation, Piece
from ..domain.prompt import Prompt
from ..domain.tokens import TokenIds


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered conversation.

    Attributes:
        prompt: ids with the lines and parts that the cache and the usage report need.
        opens_reasoning: the prompt ends inside a thinking block, so the answer starts in one.
    """

    prompt: Prompt
    opens_reasoning: bool


class TextDecoder(Protocol):
    """Turns ids into text as they come."""

    def push(self, token: int) -> str:
        """The text this token completes; "" while a character is still incomplete.

        Special tokens that clients never see (the end of a turn) give "".
        """
        ...

    def flush(self) -> str:
        """What is left at the end; an incomplete character becomes U+FFFD."""
        ...


class OutputParser(Protocol):
    """Splits an answer's text into reasoning, content and tool calls as it comes."""

    def push(self, text: str) -> Sequence[Piece]:
        """The pieces that are certain by now; what may be the start of a mark is held back."""
        ...

    def flush(self) -> Sequence[Piece]:
        """The rest, once no more text will come; an unfinished tool call comes as content."""
        ...


class Tokenizer(Protocol):
    """One model's tokenizer and formats. Callable from any thread; calls take milliseconds."""

    @property
    def end_tokens(self) -> frozenset[int]:
        """The ids that end an answer."""
        ...

    @property
    def facts(self) -> Mapping[str, str]:
        """Digests of the tokenizer and the template, for the fingerprint."""
        ...

    def render(self, conversation: Conversation) -> Rendered:
        """The ids of a conversation, up to where the answer starts.

        Raises:
            RequestError: the template refuses the conversation; the message is the template's.
        """
        ...

    def encode(self, text: str) -> TokenIds:
        """The ids of a plain text; marks of special tokens in it become those tokens.

        A beginning-of-text token is put in front where the model was trained with one.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes one token stands for; may be a part of a character."""
        ...

    def decoder(self) -> TextDecoder:
        """For one answer."""
        ...

    def parser(self, *, opens_reasoning: bool, tools: bool) -> OutputParser:
        """For one answer.

        Args:
            opens_reasoning: as `Rendered` says.
            tools: whether marks of tool calls are looked for.
        """
        ...
