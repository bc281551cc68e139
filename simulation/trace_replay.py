"""Turns of traces served one after the other, and what each of them read again."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..application.request import Decision, Event, Finished, GenerationRequest
from ..application.scheduler import Scheduler
from ..domain.namespace import Namespace
from ..domain.prompt import Prompt
from ..domain.sampling import SamplingParams
from .agent_trace import Turn
from .scripted_answers import ScriptedAnswers
from .violation import violated


@dataclass(frozen=True, slots=True)
class Served:
    """One turn that was served.

    Attributes:
        unavoidable: tokens that it had to read whatever was kept.
    """

    turn: Turn
    unavoidable: int
    decision: Decision

    @property
    def excess(self) -> int:
        """Tokens that it read and that had been read before."""
        return self.decision.reread - self.unavoidable


class TraceReplay:
    """Drives a scheduler over a scripted engine. Each turn ends before the next one begins."""

    def __init__(self, scheduler: Scheduler, engine: ScriptedAnswers) -> None:
        """Takes a scheduler of that engine, which serves nobody else."""
        self._scheduler = scheduler
        self._engine = engine
        self._requests = 0

    def serve(self, turn: Turn, unavoidable: int, arrived_s: float) -> Served:
        """Serve a turn to its end.

        Args:
            unavoidable: of `agent_trace.unavoidable`, for all turns that are served here.
            arrived_s: on the scheduler's clock.

        Raises:
            Violation: it read less than it must, or its slot holds other tokens than it should.
        """
        events: list[Event] = []
        self._engine.script = turn.answer
        self._scheduler.submit(self._request(turn, arrived_s), events.append)
        while not self._scheduler.idle:
            self._scheduler.step()
        last = events[-1]
        assert isinstance(last, Finished), last
        served = Served(turn, unavoidable, last.decision)
        if served.excess < 0:
            violated("reread", f"{_name(turn)} read {last.decision.reread} of {unavoidable} tokens")
        held = self._scheduler.slots[last.decision.slot].resident.ids
        if not np.array_equal(held, turn.forwarded):
            violated("state", f"{_name(turn)} left other tokens than its prompt and its answer")
        return served

    def _request(self, turn: Turn, arrived_s: float) -> GenerationRequest:
        self._requests += 1
        return GenerationRequest(
            id=f"turn-{self._requests}",
            prompt=Prompt(turn.prompt, turn.prompt),
            namespace=Namespace(),
            sampling=SamplingParams(),
            max_tokens=len(turn.answer),
            stop=(),
            chat=False,
            opens_reasoning=False,
            tools=False,
            ignore_end=True,
            session=turn.session,
            arrived_s=arrived_s,
        )


@dataclass(frozen=True, slots=True)
class Reread:
    """What turns read, in tokens.

    Attributes:
        hits: turns by what they resumed from.
        cached: tokens by the same.
    """

    prompts: int
    reread: int
    unavoidable: int
    hits: dict[str, int]
    cached: dict[str, int]

    @property
    def ratio(self) -> float:
        """Tokens that were read by those that had to be."""
        return self.reread / self.unavoidable


def reread_of(served: Iterable[Served]) -> Reread:
    """The sums over some turns, at least one."""
    prompts = reread = unavoidable = 0
    hits, cached = Counter[str](), Counter[str]()
    for one in served:
        prompts += len(one.turn.prompt)
        reread += one.decision.reread
        unavoidable += one.unavoidable
        hits[one.decision.source.value] += 1
        cached[one.decision.source.value] += one.decision.cached
    return Reread(prompts, reread, unavoidable, dict(hits), dict(cached))


def worst(served: Sequence[Served], count: int) -> list[Served]:
    """The turns that read most again, of those that read anything again."""
    found = sorted(served, key=lambda one: -one.excess)[:count]
    return [one for one in found if one.excess]


def _name(turn: Turn) -> str:
    return f"request {turn.number} of {turn.session}"
