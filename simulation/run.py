"""Running a world by its seed, and what came of it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .action import Action
from .traits import Traits
from .violation import Violation
from .world import World


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule was broken.

    Attributes:
        history: all actions up to it, that last one included.
        exact: the arithmetic was row-invariant because somebody wanted it.
    """

    seed: int
    step: int
    rule: str
    message: str
    history: list[Action]
    exact: bool = False

    def as_json(self) -> dict[str, Any]:
        """What a replay needs, and what it will show."""
        return {
            "seed": self.seed,
            "step": self.step,
            "rule": self.rule,
            "message": self.message,
            "exact": self.exact,
            "history": [action.as_json() for action in self.history],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What a world went through.

    Attributes:
        counts: of actions by kind, of faults and of outcomes.
        tokens_cached: prompt tokens that needed no forward.
        tokens_reread: prompt tokens that were forwarded.
    """

    seed: int
    steps: int
    requests: int
    counts: dict[str, int] = field(default_factory=dict[str, int])
    tokens_cached: int = 0
    tokens_reread: int = 0
    violations: Failure | None = None


def simulate(
    seed: int,
    steps: int,
    *,
    on_progress: Callable[[int], None] | None = None,
    traits: Traits | None = None,
    exact: bool = False,
) -> Report:
    """Live through `steps` actions of a seed's world, or up to the first violation.

    Args:
        on_progress: told how many steps are done, after each.
        traits: instead of the seed's own.
        exact: instead of the seed's own, with row-invariant arithmetic.
    """
    world = World(seed, traits=traits_of(seed, exact=True) if exact else traits)
    history: list[Action] = []
    failure = None
    for number in range(steps):
        action = world.draw()
        history.append(action)
        try:
            world.step(action)
        except Violation as violation:
            failure = _failure(seed, number, violation, history, exact=exact)
            break
        if on_progress is not None:
            on_progress(number + 1)
    if failure is None:
        try:
            world.finish()
        except Violation as violation:
            failure = _failure(seed, steps, violation, history, exact=exact)
    return report_of(world, failure)


def replay(
    seed: int, history: Sequence[Action], *, traits: Traits | None = None
) -> Violation | None:
    """Live through given actions; the violation they end in, if they do."""
    try:
        world = World(seed, traits=traits)
        for action in history:
            world.step(action)
        world.finish()
    except Violation as violation:
        return violation
    return None


def report_of(world: World, failure: Failure | None) -> Report:
    """What a world went through so far."""
    return Report(
        seed=world.seed,
        steps=world.steps,
        requests=world.requests,
        counts=dict(sorted(Counter(world.counts).items())),
        tokens_cached=world.serving.tokens_cached,
        tokens_reread=world.serving.tokens_reread,
        violations=failure,
    )


def traits_of(seed: int, *, exact: bool = False) -> Traits:
    """Those of a seed's world, with row-invariant arithmetic if that is wanted."""
    drawn = Traits.draw(seed)
    return replace(drawn, row_invariant=True) if exact else drawn


def _failure(
    seed: int, step: int, violation: Violation, history: list[Action], *, exact: bool
) -> Failure:
    return Failure(seed, step, violation.rule, violation.message, history, exact)
