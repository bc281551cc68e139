"""The text of one answer: from sampled tokens to pieces that are safe to show."""

from ..domain.conversation import Piece, PieceKind
from ..domain.stop import StopMatcher
from ..ports.tokenizer import Tokenizer
from .request import GenerationRequest


class Answer:
    """Detokenises, looks for stop strings, and splits what is certain into pieces."""

    def __init__(self, request: GenerationRequest, tokenizer: Tokenizer) -> None:
        self._decoder = tokenizer.decoder()
        self._stops = StopMatcher(request.stop)
        self._parser = (
            tokenizer.parser(opens_reasoning=request.opens_reasoning, tools=request.tools)
            if request.chat
            else None
        )
        self._reasoning = request.chat and request.opens_reasoning
        self.called_tools = False
        """Whether a tool call has been completed."""

    @property
    def reasoning(self) -> bool:
        """Whether the text written last was reasoning."""
        return self._reasoning

    def push(self, token: int) -> tuple[tuple[Piece, ...], bool]:
        """Take a token; the pieces it makes certain, and whether a stop string was found."""
        return self._pass(self._decoder.push(token))

    def finish(self) -> tuple[Piece, ...]:
        """The rest, when no more tokens will come and no stop string was found."""
        pieces, stopped = self._pass(self._decoder.flush())
        held = "" if stopped else self._stops.flush()
        return (*pieces, *self._split(held), *self._split_rest())

    def cut(self) -> tuple[Piece, ...]:
        """The rest, when a stop string was found: what stood before it is out already."""
        return self._split_rest()

    def _pass(self, text: str) -> tuple[tuple[Piece, ...], bool]:
        passed = self._stops.push(text)
        return self._split(passed.text), passed.stop is not None

    def _split(self, text: str) -> tuple[Piece, ...]:
        if not text:
            return ()
        if self._parser is None:
            return (Piece(PieceKind.CONTENT, text),)
        return self._noted(tuple(self._parser.push(text)))

    def _split_rest(self) -> tuple[Piece, ...]:
        return () if self._parser is None else self._noted(tuple(self._parser.flush()))

    def _noted(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        if pieces:
            self._reasoning = pieces[-1].kind is PieceKind.REASONING
        self.called_tools |= any(piece.kind is PieceKind.TOOL_CALL for piece in pieces)
        return pieces
