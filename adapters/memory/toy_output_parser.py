"""Splits what a toy model writes into reasoning, content and tool calls."""

import enum
import json
import re
from collections.abc import Callable, Sequence
from typing import Final

from ...domain.conversation import Piece, PieceKind, ToolCall

_THINK_END: Final = "</think>"
_CALL: Final = "<tool_call>"
_CALL_END: Final = "</tool_call>"
_CALL_BODY: Final = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(\{.*\})\s*\}\s*', re.DOTALL
)


class _Inside(enum.Enum):
    REASONING = "reasoning"
    BREAK = "break"  # the empty lines between reasoning and content
    CONTENT = "content"
    CALL = "call"


class ToyOutputParser:
    """Implements `ports.tokenizer.OutputParser`; one text, in any pieces."""

    def __init__(self, *, opens_reasoning: bool, tools: bool):
        self._inside = _Inside.REASONING if opens_reasoning else _Inside.CONTENT
        self._tools = tools
        self._held = ""
        self._call_text = ""
        self._calls = 0

    def push(self, text: str) -> Sequence[Piece]:
        self._held += text
        pieces: list[Piece] = []
        rules: dict[_Inside, Callable[[], list[Piece] | None]] = {
            _Inside.REASONING: self._reasoning,
            _Inside.BREAK: self._break,
            _Inside.CONTENT: self._content,
            _Inside.CALL: self._call,
        }
        # A rule that finds the end of its part moves on to another; one that waits gives None.
        while (found := rules[self._inside]()) is not None:
            pieces += found
        return pieces

    def flush(self) -> Sequence[Piece]:
        rest, self._held = self._call_text + self._held, ""
        self._call_text = ""
        kind = PieceKind.REASONING if self._inside is _Inside.REASONING else PieceKind.CONTENT
        return _piece(kind, rest)

    def _reasoning(self) -> list[Piece] | None:
        if _THINK_END in self._held:
            text, self._held = self._held.split(_THINK_END, 1)
            self._inside = _Inside.BREAK
            return _piece(PieceKind.REASONING, text.removesuffix("\n"))
        return self._let_through(PieceKind.REASONING, _THINK_END)

    def _break(self) -> list[Piece] | None:
        rest = self._held.removeprefix("\n").removeprefix("\n")
        if not rest and len(self._held) < 2:
            return None
        self._held = rest
        self._inside = _Inside.CONTENT
        return []

    def _content(self) -> list[Piece] | None:
        if not self._tools:
            text, self._held = self._held, ""
            return _piece(PieceKind.CONTENT, text) or None
        if _CALL in self._held:
            text, self._held = self._held.split(_CALL, 1)
            shown = text.removesuffix("\n")
            self._call_text = text[len(shown) :] + _CALL
            self._inside = _Inside.CALL
            return _piece(PieceKind.CONTENT, shown)
        return self._let_through(PieceKind.CONTENT, _CALL)

    def _call(self) -> list[Piece] | None:
        if _CALL_END not in self._held:
            return None
        body, self._held = self._held.split(_CALL_END, 1)
        written, self._call_text = self._call_text + body + _CALL_END, ""
        self._inside = _Inside.CONTENT
        call = _call_of(body, self._calls)
        if call is None:
            return _piece(PieceKind.CONTENT, written)
        self._calls += 1
        return [Piece(PieceKind.TOOL_CALL, call=call)]

    def _let_through(self, kind: PieceKind, mark: str) -> list[Piece] | None:
        """Everything but what may be the start of `mark`, or the empty line before it."""
        longest = max(_overlap(self._held, mark), _overlap(self._held, "\n" + mark))
        cut = len(self._held) - longest
        text, self._held = self._held[:cut], self._held[cut:]
        return _piece(kind, text) or None


def _piece(kind: PieceKind, text: str) -> list[Piece]:
    return [Piece(kind, text)] if text else []


def _overlap(text: str, mark: str) -> int:
    """The length of the longest end of `text` that is a proper beginning of `mark`."""
    lengths = range(min(len(text), len(mark) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(mark[:length])), 0)


def _call_of(body: str, number: int) -> ToolCall | None:
    """The call a body spells, or None where it is no call."""
    match = _CALL_BODY.fullmatch(body)
    if match is None:
        return None
    name, arguments = match.groups()
    try:
        json.loads(arguments)
        return ToolCall(f"call_{number}", str(json.loads(name)), arguments)
    except json.JSONDecodeError:
        return None
