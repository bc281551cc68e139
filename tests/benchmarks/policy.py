"""What deciding costs: everything the scheduler does for a request beside forwards.

Surveying the slot, ranking, beginning, taking anchors, keeping the end, counting and logging. And
how that grows with the conversation, on the engine without a model.

In time of the engine's thread: of a forward that is all but what it sleeps while other threads
work, and of the rest it is what the rest takes, however busy the machine is.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from report import Figure, Options, against
from served import ids_request, parts_of, random_ids, serve

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.toy_tokenizer import VOCABULARY, ToyTokenizer
from anchorline.adapters.system.clock import SystemClock
from anchorline.adapters.telemetry.prometheus import PrometheusTelemetry
from anchorline.application.admission import Admission, Sources
from anchorline.application.limits import Limits
from anchorline.application.request import GenerationRequest
from anchorline.application.scheduler import Scheduler
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.entry import Source
from anchorline.domain.sampling import Logits, SamplingParams
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.ports.engine import DecodeInput, Engine, EngineProfile
from anchorline.ports.gpu_state import SlotState, StateCopies
from anchorline.ports.tokenizer import Tokenizer
from anchorline.settings import ServeSettings

PROMPT_TOKENS = 1024
NEW_TOKENS = 32
ANSWER_TOKENS = 16
REPETITIONS = 9
REPETITIONS_QUICK = 3
LENGTHS = (1_024, 8_192, 32_768, 131_072)
GRID = 1024
"""Of a real model on a GPU."""

TARGET = "below 0.01"


class Stopwatch(Engine):
    """An engine that notes how long its forwards take, and when the first one began."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.began_s: float | None = None
        self.spent_s = 0.0

    def reset(self) -> None:
        self.began_s, self.spent_s = None, 0.0

    @property
    def profile(self) -> EngineProfile:
        return self._engine.profile

    @property
    def slots(self) -> Sequence[SlotState]:
        return self._engine.slots

    @property
    def copies(self) -> StateCopies:
        return self._engine.copies

    def prefill(self, slot: int, chunk: TokenIds) -> Logits:
        start_s = time.thread_time()
        if self.began_s is None:
            self.began_s = start_s
        logits = self._engine.prefill(slot, chunk)
        self.spent_s += time.thread_time() - start_s
        return logits

    def decode(self, inputs: Sequence[DecodeInput]) -> Sequence[Logits]:
        start_s = time.thread_time()
        outputs = self._engine.decode(inputs)
        self.spent_s += time.thread_time() - start_s
        return outputs


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one request.

    Attributes:
        deciding_s: from its submission to its first forward.
        policy_s: in all but forwards, that included; answers of one token.
        forwards_s: in forwards.
    """

    deciding_s: float
    policy_s: float
    forwards_s: float


@dataclass(slots=True)
class Kinds:
    """What was measured, by the kind of request."""

    cold: list[Spent] = field(default_factory=list[Spent])
    following: list[Spent] = field(default_factory=list[Spent])
    edited: list[Spent] = field(default_factory=list[Spent])


class Bench:
    """A scheduler over an engine with a stopwatch."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer) -> None:
        self.engine = Stopwatch(engine)
        clock, numbers = SystemClock(), iter(range(1 << 62))
        budget = AnchorBudget(ServeSettings().anchor_bytes_max)
        limits = Limits(queue_max=1, anchors=budget, cache_enabled=True)
        self.scheduler = Scheduler(self.engine, tokenizer, clock, PrometheusTelemetry(), limits)
        self.admission = Admission(
            engine.profile,
            tokenizer,
            clock,
            Sources(request_id=lambda: str(next(numbers)), seed=lambda: 0),
            SamplingParams(),
            max_tokens_default=None,
        )

    def round(self, tokens: int, number: int, kinds: Kinds) -> None:
        """A cold conversation, its next turn, and an edit of that turn."""
        below, salt = self.engine.profile.vocabulary, f"{tokens} {number}"
        prompt = random_ids(tokens, below=below, seed=number)
        kinds.cold.append(self._spent(prompt, salt, Source.NONE))
        # So that there is an answer to go on from: not measured, as decoding is its own figure.
        request = ids_request(self.admission, prompt, max_tokens=ANSWER_TOKENS, salt=salt)
        serve(self.scheduler, request)
        held = self.scheduler.slots[0].resident.ids.copy()
        for measured, source in (
            (kinds.following, Source.END),
            (kinds.edited, Source.RESIDENT),
        ):
            new = random_ids(NEW_TOKENS, below=below, seed=number + 1000 + len(source.value))
            asked = token_ids(np.concatenate((held, new)))
            measured.append(self._spent(asked, salt, source))

    def _spent(self, prompt: TokenIds, salt: str, source: Source) -> Spent:
        request = ids_request(self.admission, prompt, max_tokens=1, salt=salt)
        return self._timed(request, source)

    def _timed(self, request: GenerationRequest, source: Source) -> Spent:
        self.engine.reset()
        start_s = time.thread_time()
        outcome = serve(self.scheduler, request)
        all_s = time.thread_time() - start_s
        assert outcome.finished.decision.source is source, outcome.finished.decision
        assert self.engine.began_s is not None
        return Spent(
            self.engine.began_s - start_s, all_s - self.engine.spent_s, self.engine.spent_s
        )


def figures(options: Options) -> Iterator[Figure]:
    """Shares of a cold prefill at 1k tokens; and how deciding grows."""
    repetitions = REPETITIONS_QUICK if options.quick else REPETITIONS
    for model in options.models:
        parts = parts_of(model)
        bench, kinds = Bench(parts.engine(), parts.tokenizer()), Kinds()
        for number in range(repetitions + 1):
            options.progress(f"policy: {model}, {number} of {repetitions}")
            bench.round(PROMPT_TOKENS, number, kinds)
        measured = {
            "next turn": kinds.following[1:],
            "last message edited": kinds.edited[1:],
            "cold": kinds.cold[1:],
        }
        cold_s = [spent.forwards_s for spent in kinds.cold[1:]]
        for name, spent in measured.items():
            deciding_s = [one.deciding_s for one in spent]
            yield _share(model, f"deciding where to start, {name}", deciding_s, cold_s, TARGET)
        for name, spent in measured.items():
            policy_s = [one.policy_s for one in spent]
            yield _share(model, f"all but forwards, {name}", policy_s, cold_s, "")
    for tokens in LENGTHS[:2] if options.quick else LENGTHS:
        options.progress(f"policy: without a model, {tokens} tokens")
        yield _growth(tokens, repetitions)


def _share(
    model: str, name: str, ours_s: Sequence[float], cold_s: Sequence[float], target: str
) -> Figure:
    title = f"{name} / cold prefill, {PROMPT_TOKENS:,} tokens"
    return Figure(model, title, ours_s, cold_s, against(ours_s, cold_s), target)


def _growth(tokens: int, repetitions: int) -> Figure:
    """Deciding on a next turn, against what no planner can do without: comparing the ids once."""
    window = tokens + ANSWER_TOKENS + NEW_TOKENS + 1
    bench = Bench(CheckableEngine(window=window, grid=GRID, vocabulary=VOCABULARY), ToyTokenizer())
    kinds, compared_s = Kinds(), list[float]()
    for number in range(repetitions + 1):
        bench.round(tokens, number, kinds)
        compared_s.append(_comparison_s(tokens, number))
    deciding_s = [spent.deciding_s for spent in kinds.following[1:]]
    return Figure(
        "none",
        f"deciding on a next turn / one comparison of the ids, {tokens:,} tokens",
        deciding_s,
        compared_s[1:],
        against(deciding_s, compared_s[1:]),
    )


def _comparison_s(tokens: int, seed: int) -> float:
    one: npt.NDArray[np.uint32] = random_ids(tokens, below=VOCABULARY, seed=seed)
    other = one.copy()
    start_s = time.thread_time()
    assert np.array_equal(one, other)
    return time.thread_time() - start_s
