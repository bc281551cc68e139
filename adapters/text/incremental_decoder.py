"""Turning ids into text as they come."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

_INCOMPLETE: Final = "\N{REPLACEMENT CHARACTER}"

_HELD_MAX: Final = 8
"""Tokens held back before it is checked whether they can become a character at all."""

_CHARACTER_TOKENS_MAX: Final = 4
"""A character is at most four bytes in UTF-8, so at most four tokens."""


class IncrementalDecoder:
    """Decodes a window of tokens: those whose text is out already, and those still held back.

    ids     shown   | held ...
            context | text that came since

    The last tokens whose text is out stay in the window as context, since sentencepiece-like
    decoders drop the space in front of the first token they see.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], hidden: Collection[int]) -> None:
        """Args: decode: the whole decode, specials included; hidden: ids that give no text."""
        self._decode = decode
        self._hidden = hidden
        self._shown: list[int] = []
        self._held: list[int] = []

    def push(self, token: int) -> str:
        if token in self._hidden:
            return ""
        self._held.append(token)
        text = self._fresh(self._held)
        if not text.endswith(_INCOMPLETE):
            return self._show(len(self._held), text)
        if len(self._held) > _HELD_MAX:
            return self._show_garbage(text)
        return ""

    def flush(self) -> str:
        return self._show(len(self._held), self._fresh(self._held))

    def _fresh(self, held: Sequence[int]) -> str:
        """The text that `held` adds to what is shown."""
        before = self._decode(self._shown)
        return self._decode([*self._shown, *held])[len(before) :]

    def _show(self, count: int, text: str) -> str:
        """Move the first `count` held tokens, whose text is `text`, to the context."""
        if text:
            self._shown = self._held[:count]
        else:
            # Tokens without a text of their own (a stripped space) still matter to the next ones.
            self._shown += self._held[:count]
        del self._held[:count]
        return text

    def _show_garbage(self, text: str) -> str:
        """Let go of bytes that are no character, so that a run of them costs no more each time.

        The cut is only made where both sides decode to what they decode to together.
        """
        cut = len(self._held) - _CHARACTER_TOKENS_MAX
        head = self._fresh(self._held[:cut])
        if not head or head + self._decode(self._held[cut:]) != text:
            return ""
        return self._show(cut, head)
