"""Completions in OpenAI's shape."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ...application.request import Finished, Written
from ...domain.sampling import Sampled
from .answer_format import Heading, TokenBytes, finish_reason
from .logprobs import CompletionLogprobs, completion_logprobs, tokens_of
from .usage import TimingsBody, UsageBody, timings_of, usage_of


class CompletionChoice(Struct, frozen=True):
    """The only choice; `finish_reason` is None in all but the last chunk of a stream."""

    text: str
    finish_reason: str | None = None
    logprobs: CompletionLogprobs | None = None
    index: int = 0


class Completion(Struct, frozen=True):
    """An answer, or a chunk of one: both have one shape."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: UsageBody | UnsetType | None
    timings: TimingsBody | UnsetType = UNSET
    object: Literal["text_completion"] = "text_completion"


class CompletionFormat:
    """Implements `AnswerFormat` for `/v1/completions`."""

    def __init__(self, heading: Heading, token_bytes: TokenBytes) -> None:
        """For one answer of which nothing is written yet."""
        self._heading = heading
        self._token_bytes = token_bytes
        self._unreported: list[Sampled] = []
        self._reported_characters = 0

    def whole(self, written: Sequence[Written], finished: Finished) -> bytes:
        choice = CompletionChoice(
            text="".join(_text(event) for event in written),
            finish_reason=finish_reason(finished),
            logprobs=completion_logprobs(tokens_of(written), self._token_bytes, offset=0),
        )
        usage = usage_of(self._heading.request, finished)
        return self._body([choice], usage=usage, timings=timings_of(finished))

    def chunks(self, written: Written) -> list[bytes]:
        self._unreported += written.tokens
        text = _text(written)
        return [self._chunk(CompletionChoice(text, logprobs=self._logprobs()))] if text else []

    def last_chunks(self, finished: Finished) -> list[bytes]:
        last = CompletionChoice("", finish_reason(finished), self._logprobs())
        timings = timings_of(finished)
        if not self._heading.streams_usage:
            return [self._chunk(last, timings=timings)]
        usage = usage_of(self._heading.request, finished)
        return [self._chunk(last), self._body([], usage=usage, timings=timings)]

    def _logprobs(self) -> CompletionLogprobs | None:
        """Of the tokens that no chunk reported yet: their text may have been held back."""
        tokens, self._unreported = self._unreported, []
        logprobs = completion_logprobs(tokens, self._token_bytes, offset=self._reported_characters)
        if logprobs is not None:
            self._reported_characters += sum(len(text) for text in logprobs.tokens)
        return logprobs

    def _chunk(
        self, choice: CompletionChoice, *, timings: TimingsBody | UnsetType = UNSET
    ) -> bytes:
        usage = None if self._heading.streams_usage else UNSET
        return self._body([choice], usage=usage, timings=timings)

    def _body(
        self,
        choices: list[CompletionChoice],
        *,
        usage: UsageBody | UnsetType | None,
        timings: TimingsBody | UnsetType,
    ) -> bytes:
        heading = self._heading
        body = Completion(
            id=f"cmpl-{heading.request.id}",
            created=heading.created,
            model=heading.model,
            system_fingerprint=heading.system_fingerprint,
            choices=choices,
            usage=usage,
            timings=timings,
        )
        return msgspec.json.encode(body)


def _text(written: Written) -> str:
    return "".join(piece.text for piece in written.pieces)
