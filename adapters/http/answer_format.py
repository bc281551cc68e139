"""How an endpoint spells an answer: as one body, or as the chunks of a stream."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ...application.request import Finished, FinishReason, GenerationRequest, Written

TokenBytes: TypeAlias = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands at the head of an answer and of every chunk of it.

    Attributes:
        created: seconds since 1970.
        streams_usage: a stream ends with a chunk that holds the usage and no choice.
    """

    request: GenerationRequest
    created: int
    model: str
    system_fingerprint: str
    streams_usage: bool


class AnswerFormat(Protocol):
    """Spells one answer; keeps what its chunks depend on, so it serves one request only."""

    def whole(self, written: Sequence[Written], finished: Finished) -> bytes:
        """The body of an answer that is not streamed."""
        ...

    def chunks(self, written: Written) -> list[bytes]:
        """The chunks that new text becomes; may be none."""
        ...

    def last_chunks(self, finished: Finished) -> list[bytes]:
        """The chunks that end a stream: the finish reason, then the usage if it is asked for."""
        ...


def finish_reason(finished: Finished) -> str:
    """OpenAI's word for why an answer ended."""
    assert finished.reason is not FinishReason.CANCELLED, "nobody is left to be told"
    return finished.reason.value
