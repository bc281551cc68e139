"""What happens next, drawn by a seed: mostly requests, sometimes what goes wrong."""

import random
from typing import Final

from .action import Action, Crash, Kind
from .traits import Traits

REQUESTS: Final = {
    Kind.BEGIN: 8,
    Kind.TURN: 40,
    Kind.STRIPPED: 6,
    Kind.TITLE: 8,
    Kind.TAG: 5,
    Kind.COMPACT: 3,
    Kind.EDIT: 6,
    Kind.BRANCH: 5,
    Kind.RETRY: 7,
    Kind.RETURN: 6,
    Kind.READ: 2,
    Kind.LIMIT: 1,
    Kind.CANCEL: 6,
    Kind.BURST: 5,
}
"""How often a client does what, beside each other."""

KEEPING: Final = {
    Kind.OTHER: 16,
    Kind.CHAT: 14,
    Kind.SUMMARY: 3,
    Kind.CLOSE: 2,
    Kind.PREWARM: 3,
    Kind.SHRINK: 4,
}
"""The same where memory keeps conversations."""

LIFE: Final = {
    Kind.IDLE: 4.0,
    Kind.FLUSH: 2.0,
    Kind.STOP: 1.2,
    Kind.COMEBACK: 1.0,
    Kind.WEIGHTS: 0.25,
    Kind.BUDGET: 0.4,
    Kind.WAIT: 0.8,
    Kind.JUMP: 0.4,
    Kind.CLEAR: 0.3,
    Kind.MEND: 1.5,
    Kind.NEW_DISK: 0.05,
}
"""What the machine does, or somebody with it."""

CRASHES: Final = {Kind.KILL: 0.7, Kind.POWER: 0.5, Kind.LOSE_CATALOG: 0.2}
DAMAGE: Final = {Kind.DAMAGE: 0.8, Kind.TROUBLE: 0.4, Kind.SPOIL: 1.0}

CUT_SHORT: Final = 0.012
"""How often the process ends in the middle of something."""


FOLLOWED: Final = {
    Kind.IDLE: (Kind.BEGIN, Kind.EDIT, Kind.BRANCH, Kind.RETURN),
    Kind.SPOIL: (Kind.BURST,),
}
"""What is the more telling behind it: saves under way meet other prompts, failures meet batches."""

FOLLOWS: Final = 0.5
SAME_CLIENT: Final = 0.5
"""How often the next action is of the client that acted last."""


def draw(rng: random.Random, traits: Traits, last: Action | None) -> Action:
    """The next thing that happens in a world of such traits, after `last`."""
    weights: dict[Kind, float] = {kind: float(weight) for kind, weight in REQUESTS.items()}
    weights |= KEEPING if traits.ram_bytes else {}
    weights |= LIFE
    weights |= {kind: weight * traits.crashes for kind, weight in CRASHES.items()}
    weights |= {kind: weight * traits.damage for kind, weight in DAMAGE.items()}
    kind = rng.choices(list(weights), list(weights.values()))[0]
    if last is not None and last.kind in FOLLOWED and rng.random() < FOLLOWS:
        kind = rng.choice(FOLLOWED[last.kind])
    crash, after, within_put = Crash.NONE, 0, False
    if rng.random() < CUT_SHORT * traits.crashes:
        crash = rng.choice([Crash.KILL, Crash.POWER])
        within_put = rng.random() < 0.5
        after = rng.choice([rng.randint(0, 6), rng.randint(0, 60)])
    client = rng.randrange(traits.clients)
    return Action(
        kind=kind,
        client=last.client if last is not None and rng.random() < SAME_CLIENT else client,
        tokens=rng.choice([rng.randint(1, 6), rng.randint(1, 16), rng.randint(1, 40)]),
        answer=rng.choice([0, 1, rng.randint(1, 6), rng.randint(1, 16)]),
        seed=rng.randrange(1 << 32),
        crash=crash,
        after=after,
        within_put=within_put,
    )
