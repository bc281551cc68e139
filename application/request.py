"""What is asked of the scheduler, and what it answers: events, in order, to a sink.

Every request's events are: `Queued`, any number of `Prefilling`, any number of `Written`, and one
last event, `Finished` or `Failed`. A request that is cancelled finishes with the reason
`CANCELLED`; one that had no slot yet fails with the error `Cancelled`.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..domain.conversation import Piece
from ..domain.entry import Source, Tier
from ..domain.errors import AnchorlineError
from ..domain.namespace import Namespace
from ..domain.prompt import Prompt
from ..domain.sampling import Sampled, SamplingParams
from ..domain.taint_line import Gate


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to continue.

    Attributes:
        id: unique among all requests of this process.
        max_tokens: at least 0; the prompt and they fit the window. 0 only reads the prompt.
        stop: stop strings; none is empty.
        chat: split the answer into reasoning, content and tool calls; else all of it is content.
        opens_reasoning: the prompt ends inside a thinking block.
        tools: look for tool calls.
        ignore_end: go on after an end token, for benchmarks.
        session: the caller's hint, never an identity.
        arrived_s: on the monotonic clock.
    """

    id: str
    prompt: Prompt
    namespace: Namespace
    sampling: SamplingParams
    max_tokens: int
    stop: tuple[str, ...]
    chat: bool
    opens_reasoning: bool
    tools: bool
    ignore_end: bool
    session: str | None
    arrived_s: float


class FinishReason(enum.Enum):
    """Why an answer ended."""

    STOP = "stop"
    """An end token or a stop string."""

    LENGTH = "length"
    """`max_tokens` were written."""

    TOOL_CALLS = "tool_calls"
    """An end token, after at least one tool call."""

    CANCELLED = "cancelled"
    """Nobody waits for it any more."""


NO_SLOT: Final = -1
"""The slot of a request that none served: its answer had been given before."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A way to start that was not taken, and why."""

    source: Source
    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a prefill started, and the reasons, for usage, log and stats.

    Attributes:
        cached: the line the prefill started at: prompt tokens that needed no forward.
        reread: prompt tokens that were forwarded.
        restore_s: seconds spent on moving state before the prefill.
        slot: the slot that served it, or `NO_SLOT`.
        shared: how many leading tokens the prompt shares with what the slot held.
        resident: how many tokens the slot held.
        nearest: the highest grid line up to which some stored sequence is the prompt's; 0 without
            a disk tier.
        refused: what else was on offer.
        quarantined: stored parts that failed their check on the way.
    """

    tier: Tier
    source: Source
    gate: Gate
    cached: int
    reread: int
    restore_s: float
    slot: int
    shared: int
    resident: int
    nearest: int = 0
    refused: tuple[Refusal, ...] = ()
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of one request's phases; `ttft_s` counts from its arrival."""

    queue_s: float
    prompt_s: float
    predicted_s: float
    ttft_s: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request. `completion` counts every token that was sampled."""

    prompt: int
    completion: int
    reasoning: int


@dataclass(frozen=True, slots=True)
class Queued:
    """The request is accepted.

    Attributes:
        ahead: how many requests wait before it.
    """

    ahead: int


@dataclass(frozen=True, slots=True)
class Prefilling:
    """`done` of the prompt's `total` tokens are read, those that needed no forward included."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Written:
    """New text.

    Attributes:
        pieces: may be empty while text is held back.
        tokens: the tokens sampled since the last event, if log probabilities were asked for.
    """

    pieces: tuple[Piece, ...]
    tokens: tuple[Sampled, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a request that ended as it should."""

    reason: FinishReason
    usage: Usage
    decision: Decision
    timings: Timings


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that could not be served."""

    error: AnchorlineError


Event: TypeAlias = Queued | Prefilling | Written | Finished | Failed
EventSink: TypeAlias = Callable[[Event], None]
"""Called on the engine thread; must return at once and never raise."""
