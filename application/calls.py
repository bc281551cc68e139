"""What clients ask for, before it is checked: the arguments of the service's use cases.

A field that is None was not given; `admission` fills it in from the model's defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..domain.conversation import Conversation
from ..domain.tokens import TokenIds


@dataclass(frozen=True, slots=True)
class SamplingWish:
    """Sampling parameters as given, under the names OpenAI's API and its relatives use."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[str, float] = field(default_factory=dict[str, float])
    top_logprobs: int | None = None
    """How many alternatives per token; None reports no log probabilities at all."""


@dataclass(frozen=True, slots=True)
class GenerationWish:
    """What chat and completion calls have in common.

    Attributes:
        model: the name asked for; None takes the one that is served.
        max_tokens: None generates until the model ends or the window is full.
        session: a hint for the cache, never an identity.
        cache_salt: state made under one salt is invisible under every other.
    """

    model: str | None = None
    sampling: SamplingWish = SamplingWish()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_end: bool = False
    session: str | None = None
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class ChatCall:
    """Answer a conversation."""

    conversation: Conversation
    wish: GenerationWish = GenerationWish()


@dataclass(frozen=True, slots=True)
class CompletionCall:
    """Continue a text, or token ids."""

    prompt: str | TokenIds
    wish: GenerationWish = GenerationWish()
