"""Chat answers in OpenAI's shape."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ...application.request import Finished, Written
from ...domain.conversation import Piece, PieceKind, ToolCall
from ...domain.sampling import Sampled
from .answer_format import Heading, TokenBytes, finish_reason
from .logprobs import ChatLogprobs, chat_logprobs, tokens_of
from .usage import TimingsBody, UsageBody, timings_of, usage_of


class AnsweredFunction(Struct, frozen=True):
    """The function a model calls; `arguments` is JSON text as the model wrote it."""

    name: str
    arguments: str


class AnsweredCall(Struct, frozen=True):
    """A tool call, complete; `index` stands in streams only."""

    id: str
    function: AnsweredFunction
    type: Literal["function"] = "function"
    index: int | UnsetType = UNSET


class AnsweredMessage(Struct, frozen=True):
    """The message of an answer; its content is None where the model only called tools."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[AnsweredCall] | UnsetType = UNSET


class ChatChoice(Struct, frozen=True):
    """The only choice."""

    message: AnsweredMessage
    finish_reason: str
    logprobs: ChatLogprobs | None
    index: int = 0


class ChatCompletion(Struct, frozen=True):
    """An answer that is not streamed."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: UsageBody
    timings: TimingsBody
    object: Literal["chat.completion"] = "chat.completion"


class ChatDelta(Struct, frozen=True):
    """What a chunk adds to the message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[AnsweredCall] | UnsetType = UNSET


class ChatChunkChoice(Struct, frozen=True):
    """The only choice of a chunk."""

    delta: ChatDelta
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None
    index: int = 0


class ChatChunk(Struct, frozen=True):
    """One chunk of a stream; `usage` is None in all but the last if it is asked for."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: UsageBody | UnsetType | None
    timings: TimingsBody | UnsetType = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class ChatFormat:
    """Implements `AnswerFormat` for `/v1/chat/completions`."""

    def __init__(self, heading: Heading, token_bytes: TokenBytes) -> None:
        """For one answer of which nothing is written yet."""
        self._heading = heading
        self._token_bytes = token_bytes
        self._role_sent = False
        self._calls_sent = 0
        self._unreported: list[Sampled] = []

    def whole(self, written: Sequence[Written], finished: Finished) -> bytes:
        heading = self._heading
        choice = ChatChoice(
            message=_message([piece for event in written for piece in event.pieces]),
            finish_reason=finish_reason(finished),
            logprobs=chat_logprobs(tokens_of(written), self._token_bytes),
        )
        answer = ChatCompletion(
            id=_id(heading),
            created=heading.created,
            model=heading.model,
            system_fingerprint=heading.system_fingerprint,
            choices=[choice],
            usage=usage_of(heading.request, finished),
            timings=timings_of(finished),
        )
        return msgspec.json.encode(answer)

    def chunks(self, written: Written) -> list[bytes]:
        self._unreported += written.tokens
        if not written.pieces:
            return []
        deltas = self._role() + [self._delta(piece) for piece in written.pieces]
        logprobs = self._logprobs()
        # The tokens of one event are not told apart by piece: they stand with its last one.
        *before, last = deltas
        choices = [ChatChunkChoice(delta) for delta in before]
        choices.append(ChatChunkChoice(last, logprobs=logprobs))
        return [self._chunk([choice]) for choice in choices]

    def last_chunks(self, finished: Finished) -> list[bytes]:
        choices = [ChatChunkChoice(delta) for delta in self._role()]
        choices.append(ChatChunkChoice(ChatDelta(), finish_reason(finished), self._logprobs()))
        *before, last = choices
        chunks = [self._chunk([choice]) for choice in before]
        timings = timings_of(finished)
        if not self._heading.streams_usage:
            return [*chunks, self._chunk([last], timings=timings)]
        usage = usage_of(self._heading.request, finished)
        return [*chunks, self._chunk([last]), self._chunk([], usage=usage, timings=timings)]

    def _role(self) -> list[ChatDelta]:
        """The delta that opens the message, once."""
        if self._role_sent:
            return []
        self._role_sent = True
        return [ChatDelta(role="assistant", content="")]

    def _delta(self, piece: Piece) -> ChatDelta:
        match piece.kind:
            case PieceKind.CONTENT:
                return ChatDelta(content=piece.text)
            case PieceKind.REASONING:
                return ChatDelta(reasoning_content=piece.text)
            case PieceKind.TOOL_CALL:
                call = _call(piece, index=self._calls_sent)
                self._calls_sent += 1
                return ChatDelta(tool_calls=[call])

    def _logprobs(self) -> ChatLogprobs | None:
        """Of the tokens that no chunk reported yet: their text may have been held back."""
        tokens, self._unreported = self._unreported, []
        return chat_logprobs(tokens, self._token_bytes)

    def _chunk(
        self,
        choices: list[ChatChunkChoice],
        *,
        usage: UsageBody | None = None,
        timings: TimingsBody | UnsetType = UNSET,
    ) -> bytes:
        heading = self._heading
        chunk = ChatChunk(
            id=_id(heading),
            created=heading.created,
            model=heading.model,
            system_fingerprint=heading.system_fingerprint,
            choices=choices,
            usage=usage if heading.streams_usage else UNSET,
            timings=timings,
        )
        return msgspec.json.encode(chunk)


def _message(pieces: Sequence[Piece]) -> AnsweredMessage:
    content = "".join(piece.text for piece in pieces if piece.kind is PieceKind.CONTENT)
    reasoning = "".join(piece.text for piece in pieces if piece.kind is PieceKind.REASONING)
    calls = [_call(piece, index=UNSET) for piece in pieces if piece.kind is PieceKind.TOOL_CALL]
    return AnsweredMessage(
        content=content if content or not calls else None,
        reasoning_content=reasoning or UNSET,
        tool_calls=calls or UNSET,
    )


def _call(piece: Piece, *, index: int | UnsetType) -> AnsweredCall:
    call: ToolCall | None = piece.call
    assert call is not None, "a tool call piece holds its call"
    return AnsweredCall(call.id, AnsweredFunction(call.name, call.arguments), index=index)


def _id(heading: Heading) -> str:
    return f"chatcmpl-{heading.request.id}"
