"""The parts of a server, driven by hand on this thread: no HTTP, no second thread."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from anchorline.adapters.gpu.model_store import ModelStore
from anchorline.application.admission import Admission
from anchorline.application.calls import ChatCall, CompletionCall, GenerationWish, SamplingWish
from anchorline.application.request import (
    Event,
    Finished,
    GenerationRequest,
    Prefilling,
    Written,
)
from anchorline.application.scheduler import Scheduler
from anchorline.container import Server, build
from anchorline.domain.conversation import Conversation, Message, Piece, PieceKind
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.settings import ServeSettings

GREEDY: Final = SamplingWish(temperature=0.0)

_NAMES: Final = "Anna Ben Carla David Emma Felix Grace Hugo Iris Jack Kira Leo Mia Noah".split()
_CITIES: Final = "Rome Paris Oslo Lima Cairo Delhi Vienna Athens Dublin Lisbon Madrid".split()


def settings_of(model: str) -> ServeSettings:
    """As `anchorline serve` has it, but always in fp32, and with nothing kept on disk."""
    return ServeSettings(model=model, dtype="float32", disk="off")


def parts_of(model: str) -> Server:
    """A server's parts, the model fetched if need be; nothing is started."""
    settings = settings_of(model)
    ModelStore(settings.models_path).get(model, lambda _: None)
    return build(settings)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A request that was served."""

    pieces: tuple[Piece, ...]
    finished: Finished

    @property
    def message(self) -> Message:
        """The answer, as a client sends it back."""

        def text(kind: PieceKind) -> str:
            return "".join(piece.text for piece in self.pieces if piece.kind is kind)

        return Message("assistant", text(PieceKind.CONTENT), text(PieceKind.REASONING) or None)


def serve(scheduler: Scheduler, request: GenerationRequest) -> Outcome:
    """Submit a request and step until it has ended."""
    return run(scheduler, request, lambda event: None)


def run(scheduler: Scheduler, request: GenerationRequest, seen: Callable[[Event], None]) -> Outcome:
    """The same, with each event shown as it comes."""
    events: list[Event] = []

    def sink(event: Event) -> None:
        events.append(event)
        seen(event)

    scheduler.submit(request, sink)
    while scheduler.step():
        pass
    last = events[-1]
    assert isinstance(last, Finished), last
    pieces = [piece for event in events if isinstance(event, Written) for piece in event.pieces]
    return Outcome(tuple(pieces), last)


def chat_request(
    admission: Admission, messages: Sequence[Message], *, max_tokens: int, salt: str
) -> GenerationRequest:
    """A greedy chat; its time counts from here."""
    wish = GenerationWish(sampling=GREEDY, max_tokens=max_tokens, cache_salt=salt)
    return admission.chat(ChatCall(Conversation(tuple(messages)), wish))


def ids_request(
    admission: Admission, prompt: TokenIds, *, max_tokens: int, salt: str
) -> GenerationRequest:
    """A greedy completion of exactly `max_tokens` tokens."""
    wish = GenerationWish(sampling=GREEDY, max_tokens=max_tokens, ignore_end=True, cache_salt=salt)
    return admission.completion(CompletionCall(prompt, wish))


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one token after the first, of the clock and of all cores of this process."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Moment:
    """A reading of both clocks."""

    wall_s: float
    cpu_s: float

    def until(self, other: "Moment", tokens: int) -> Cost:
        """What each of the tokens between two moments took."""
        return Cost((other.wall_s - self.wall_s) / tokens, (other.cpu_s - self.cpu_s) / tokens)


def now() -> Moment:
    """This moment in this process."""
    return Moment(time.perf_counter(), time.process_time())


def decode_cost(scheduler: Scheduler, request: GenerationRequest) -> Cost:
    """Serve a request; what each token after the first cost."""
    events: list[Event] = []
    scheduler.submit(request, events.append)
    total = len(request.prompt)
    while not any(isinstance(event, Prefilling) and event.done == total for event in events):
        assert scheduler.step()
    first = now()
    while scheduler.step():
        pass
    last = now()
    finished = events[-1]
    assert isinstance(finished, Finished), finished
    assert finished.usage.completion == request.max_tokens
    return first.until(last, request.max_tokens - 1)


def a_text(sentences: int, seed: int) -> str:
    """Sentences of a kind that both built-in models know."""
    draw = np.random.default_rng(seed)
    names, cities = draw.choice(_NAMES, sentences), draw.choice(_CITIES, sentences)
    pairs = zip(names, cities, draw.integers(10, 99, sentences), strict=True)
    return " ".join(f"{name} lives in {city} and is {age}." for name, city, age in pairs)


def a_system_prompt(admission: Admission, tokens: int, seed: int) -> Message:
    """A system message that makes a conversation's first prompt about `tokens` long, or less."""

    def message(sentences: int) -> Message:
        return Message("system", a_text(sentences, seed))

    def length(sentences: int) -> int:
        asked = [message(sentences), Message("user", "What is the capital of France?")]
        return len(chat_request(admission, asked, max_tokens=1, salt="").prompt)

    few, many = length(10), length(50)
    sentences = int(50 + (tokens - many) / ((many - few) / 40))
    while length(sentences) > tokens:
        sentences -= 1
    return message(sentences)


def random_ids(count: int, *, below: int, seed: int) -> TokenIds:
    """Ids without a meaning."""
    return token_ids(np.random.default_rng(seed).integers(0, below, count))
