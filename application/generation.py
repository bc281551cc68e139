"""One request in a slot: its prefill, chunk by chunk, and its generation, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..domain.conversation import Piece
from ..domain.errors import AnchorlineError, EngineError
from ..domain.grid import Span
from ..domain.sampling import Logits, Sampled, Sampler
from ..domain.tokens import TokenIds
from ..ports.engine import DecodeInput, EngineProfile
from ..ports.tokenizer import Tokenizer
from .answer import Answer
from .request import (
    Decision,
    EventSink,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Prefilling,
    Timings,
    Usage,
    Written,
)


@dataclass(slots=True)
class Marks:
    """Moments of a request on the monotonic clock."""

    arrived_s: float
    started_s: float
    first_token_s: float | None = None
    last_token_s: float | None = None


class Generation:
    """A request that has a slot.

    Knows nothing of engines: it says what to forward next, and is told what came of it.
    """

    def __init__(
        self,
        request: GenerationRequest,
        sink: EventSink,
        decision: Decision,
        profile: EngineProfile,
        tokenizer: Tokenizer,
        now_s: float,
    ) -> None:
        """Starts at the decision's line, with nothing forwarded yet."""
        self.request = request
        self.decision = decision
        self.marks = Marks(request.arrived_s, now_s)
        self.reason: FinishReason | None = None
        self._sink = sink
        self._grid = profile.grid
        self._done = decision.cached
        self._end_tokens = tokenizer.end_tokens
        self._sampler = Sampler(request.sampling, request.prompt.ids, profile.vocabulary)
        self._answer = Answer(request, tokenizer)
        self._pending: int | None = None
        self._sampled = 0
        self._reasoning = 0

    @property
    def slot(self) -> int:
        return self.decision.slot

    @property
    def prefilling(self) -> bool:
        """Whether prompt tokens are left to forward."""
        return self._done < len(self.request.prompt)

    @property
    def finished(self) -> bool:
        return self.reason is not None

    @property
    def forwarded_of_prompt(self) -> int:
        """How many of the prompt's tokens were forwarded so far."""
        return min(self._done, len(self.request.prompt)) - self.decision.cached

    @property
    def sampled(self) -> int:
        """How many tokens were drawn."""
        return self._sampled

    def next_chunk(self, stop: int = 0) -> tuple[Span, TokenIds]:
        """The chunk to forward next; only while `prefilling`.

        Args:
            stop: a line that no chunk is to cross, beside those of the grid; 0 for none.
        """
        span = self._grid.chunk(self._done, len(self.request.prompt))
        if span.start < stop < span.end:
            span = Span(span.start, stop)
        return span, self.request.prompt.ids[span.start : span.end]

    def chunk_done(self, span: Span, logits: Logits, now_s: float) -> None:
        """The chunk has run; after the last one the first token is drawn."""
        self._done = span.end
        self._sink(Prefilling(span.end, len(self.request.prompt)))
        if not self.prefilling:
            self._draw(logits, now_s)

    def next_input(self) -> DecodeInput:
        """The token to forward next; only while neither `prefilling` nor `finished`."""
        assert self._pending is not None
        return DecodeInput(self.slot, self._pending)

    def token_done(self, logits: Logits, now_s: float) -> None:
        """The pending token has been forwarded; the one after it is drawn."""
        self._done += 1
        self._draw(logits, now_s)

    def cancel(self) -> None:
        """Nobody waits any more."""
        self.reason = FinishReason.CANCELLED

    def fail(self, error: AnchorlineError) -> None:
        """Send the last event of a request that cannot go on."""
        self._sink(Failed(error))

    def close(self, now_s: float) -> Finished:
        """Send the last event, and return it; only once `finished`."""
        assert self.reason is not None
        marks = self.marks
        first_s = now_s if marks.first_token_s is None else marks.first_token_s
        finished = Finished(
            reason=self.reason,
            usage=Usage(len(self.request.prompt), self._sampled, self._reasoning),
            decision=self.decision,
            timings=Timings(
                queue_s=marks.started_s - marks.arrived_s,
                prompt_s=first_s - marks.started_s,
                predicted_s=now_s - first_s,
                ttft_s=first_s - marks.arrived_s,
            ),
        )
        self._sink(finished)
        return finished

    def _draw(self, logits: Logits, now_s: float) -> None:
        """Draw the next token and decide whether it is the last."""
        if self.request.max_tokens == 0:
            self.reason = FinishReason.LENGTH
            return
        if not np.isfinite(logits.max()):
            raise EngineError("the model's logits are not numbers; its state is given up")
        drawn = self._sampler.draw(logits, self._done)
        self._sampled += 1
        self._mark(now_s)
        if drawn.token in self._end_tokens and not self.request.ignore_end:
            self._finish(self._answer.finish(), drawn, FinishReason.STOP)
            return
        pieces, stopped = self._answer.push(drawn.token)
        self._reasoning += self._answer.reasoning
        if stopped:
            self._finish((*pieces, *self._answer.cut()), drawn, FinishReason.STOP)
        elif self._sampled == self.request.max_tokens:
            self._finish((*pieces, *self._answer.finish()), drawn, FinishReason.LENGTH)
        else:
            self._pending = drawn.token
            self._write(pieces, drawn)

    def _mark(self, now_s: float) -> None:
        if self.marks.first_token_s is None:
            self.marks.first_token_s = now_s
        self.marks.last_token_s = now_s

    def _finish(self, pieces: Sequence[Piece], drawn: Sampled, reason: FinishReason) -> None:
        self._pending = None
        self._write(pieces, drawn)
        called = reason is FinishReason.STOP and self._answer.called_tools
        self.reason = FinishReason.TOOL_CALLS if called else reason

    def _write(self, pieces: Sequence[Piece], drawn: Sampled) -> None:
        tokens = () if self.request.sampling.top_logprobs is None else (drawn,)
        if pieces or tokens:
            self._sink(Written(tuple(pieces), tokens))
