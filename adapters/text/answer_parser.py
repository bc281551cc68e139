r"""Splitting an answer into reasoning, content and tool calls as its text comes.

    reasoning \n </think> \n\n content \n <tool_call> ... </tool_call> \n <tool_call> ...
              ------------------         -----------------------------------------------
              dropped                    dropped, with the calls as pieces of their own

The line ends that are dropped are those that templates write around the marks: a client's copy of
the pieces, rendered again, gives the text that the model wrote.
"""

import enum
import hashlib
from collections.abc import Sequence
from typing import Final

from ...domain.conversation import Piece, PieceKind, ToolCall
from .json_strings import JsonStrings
from .marks import CALL_CLOSE, CALL_OPEN, THINK_CLOSE, THINK_OPEN
from .shared_text import overlap
from .tool_calls import CallFault, read_call

_CALL_ID_DIGITS: Final = 24


class _State(enum.Enum):
    START = enum.auto()
    OPENED = enum.auto()
    REASONING = enum.auto()
    REASONED = enum.auto()
    CONTENT = enum.auto()
    CALL = enum.auto()
    CALLED = enum.auto()


class AnswerParser:
    """A machine with one text that is not decided yet; each step takes from its front or waits."""

    def __init__(self, *, opens_reasoning: bool, tools: bool) -> None:
        self._opens_reasoning = opens_reasoning
        self._tools = tools
        self._state = _State.START
        self._text = ""
        self._ended = False
        self._pieces: list[Piece] = []
        self._dropped = ""
        """Line ends in front of the call at hand: content again if it turns out to be no call."""
        self._searched = 0
        """Up to where the call at hand is known to hold no mark that ends it."""
        self._strings: JsonStrings | None = None
        """Where the strings of the call at hand are, once a mark was found in one."""
        self._taken = hashlib.sha256()
        self._steps = {
            _State.START: self._start,
            _State.OPENED: self._opened,
            _State.REASONING: self._reasoning,
            _State.REASONED: self._reasoned,
            _State.CONTENT: self._content,
            _State.CALL: self._call,
            _State.CALLED: self._called,
        }

    def push(self, text: str) -> Sequence[Piece]:
        self._text += text
        return self._advance()

    def flush(self) -> Sequence[Piece]:
        self._ended = True
        return self._advance()

    def _advance(self) -> Sequence[Piece]:
        while (after := self._steps[self._state]()) is not None:
            self._state = after
        pieces, self._pieces = self._pieces, []
        return pieces

    # Each step returns the state to go on in, or None when it needs more text.

    def _start(self) -> _State | None:
        if self._may_become(THINK_OPEN):
            return None
        if self._text.startswith(THINK_OPEN):
            self._take(len(THINK_OPEN))
            return _State.OPENED
        return _State.REASONING if self._opens_reasoning else _State.CONTENT

    def _opened(self) -> _State | None:
        if not self._text and not self._ended:
            return None
        if self._text.startswith("\n"):
            self._take(1)
        return _State.REASONING

    def _reasoning(self) -> _State | None:
        end = self._text.find(THINK_CLOSE)
        if end < 0:
            self._emit(PieceKind.REASONING, self._certain(THINK_CLOSE))
            return None
        self._emit(PieceKind.REASONING, end - self._text.endswith("\n", 0, end))
        self._take(self._text.index(THINK_CLOSE) + len(THINK_CLOSE))
        return _State.REASONED

    def _reasoned(self) -> _State | None:
        self._take(self._line_ends())
        return _State.CONTENT if self._text else None

    def _content(self) -> _State | None:
        if not self._tools:
            self._emit(PieceKind.CONTENT, len(self._text))
            return None
        start = self._text.find(CALL_OPEN)
        if start < 0:
            self._emit(PieceKind.CONTENT, self._certain(CALL_OPEN))
            return None
        self._emit(PieceKind.CONTENT, start - self._text.endswith("\n", 0, start))
        return self._open_call()

    def _call(self) -> _State | None:
        end = self._text.find(CALL_CLOSE, self._searched)
        if end < 0:
            self._searched = max(0, len(self._text) - len(CALL_CLOSE) + 1)
            if not self._ended:
                return None
            return self._no_call(len(self._text))
        # Read at its first mark, and at the first one after it that stands in no string: once for
        # every mark would take the square of its length.
        if self._strings is not None and self._strings.inside(self._text, end):
            self._searched = end + len(CALL_CLOSE)
            return _State.CALL
        call = read_call(self._text[:end])
        if call is CallFault.IN_STRING and self._strings is None:
            self._strings = JsonStrings()
            return _State.CALL
        if isinstance(call, CallFault):
            return self._no_call(end + len(CALL_CLOSE))
        self._take(end + len(CALL_CLOSE))
        # From the text, so that it repeats; from all of it, so that equal calls differ.
        identity = f"call_{self._taken.hexdigest()[:_CALL_ID_DIGITS]}"
        tool_call = ToolCall(identity, call.name, call.arguments)
        self._pieces.append(Piece(PieceKind.TOOL_CALL, call=tool_call))
        return _State.CALLED

    def _called(self) -> _State | None:
        line_ends = self._line_ends()
        if self._text.startswith(CALL_OPEN, line_ends):
            return self._open_call()
        if self._may_become(CALL_OPEN, line_ends):
            return None
        if line_ends == len(self._text):
            self._take(line_ends)
            return None
        return _State.CONTENT

    def _open_call(self) -> _State:
        """Take the line ends and the mark in front of a call."""
        at = self._text.index(CALL_OPEN)
        self._dropped = self._text[:at]
        self._take(at + len(CALL_OPEN))
        self._searched = 0
        self._strings = None
        return _State.CALL

    def _no_call(self, length: int) -> _State:
        """Give what looked like a call back as content, with all that stood around it."""
        text = self._dropped + CALL_OPEN + self._take(length)
        self._pieces.append(Piece(PieceKind.CONTENT, text))
        return _State.CONTENT

    def _may_become(self, mark: str, at: int = 0) -> bool:
        """Whether the text from `at` on is a true start of `mark` and may still grow to it."""
        rest = self._text[at:]
        return not self._ended and len(rest) < len(mark) and mark.startswith(rest)

    def _certain(self, mark: str) -> int:
        """How many characters cannot belong to `mark` or to a line end in front of it."""
        if self._ended:
            return len(self._text)
        return len(self._text) - max(overlap(self._text, mark), overlap(self._text, "\n" + mark))

    def _line_ends(self) -> int:
        """How many line ends the text starts with."""
        return len(self._text) - len(self._text.lstrip("\n"))

    def _emit(self, kind: PieceKind, length: int) -> None:
        if length:
            self._pieces.append(Piece(kind, self._take(length)))

    def _take(self, length: int) -> str:
        """The first characters, which are decided now."""
        taken, self._text = self._text[:length], self._text[length:]
        self._taken.update(taken.encode(errors="surrogatepass"))
        return taken
