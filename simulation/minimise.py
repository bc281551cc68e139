"""Shorter histories that end in the same violation, by delta debugging.

Zeller and Hildebrandt, Simplifying and isolating failure-inducing input (2002).
"""

from collections.abc import Callable, Sequence
from typing import Final

from .action import Action
from .run import replay
from .traits import Traits

RUNS_MAX: Final = 2000
"""Replays that are tried at most."""


def minimise(
    seed: int,
    history: Sequence[Action],
    *,
    rule: str | None = None,
    traits: Traits | None = None,
    runs_max: int = RUNS_MAX,
    on_progress: Callable[[int, int], None] = lambda runs, length: None,
) -> list[Action]:
    """A part of a history, in its order, that still breaks the same rule.

    Args:
        rule: the one to break; None takes the one that the whole history breaks.
        on_progress: told how many replays were made and how long the shortest history is.

    Raises:
        ValueError: the whole history breaks no rule, or another one.
    """
    whole = replay(seed, history, traits=traits)
    if whole is None or rule not in (None, whole.rule):
        raise ValueError(f"this history does not break {rule or 'any rule'}")
    shortest: list[Action] = list(history)
    wanted, runs = whole.rule, 0

    def fails(candidate: Sequence[Action]) -> bool:
        nonlocal runs
        runs += 1
        found = replay(seed, candidate, traits=traits)
        on_progress(runs, len(shortest))
        return found is not None and found.rule == wanted

    pieces = 2
    while len(shortest) > 1 and runs < runs_max:
        size = -(-len(shortest) // pieces)
        for start in range(0, len(shortest), size):
            rest: list[Action] = [*shortest[:start], *shortest[start + size :]]
            if rest and fails(rest):
                shortest, pieces = rest, max(pieces - 1, 2)
                break
            if runs >= runs_max:
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(shortest))
    return shortest
