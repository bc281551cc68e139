"""Which entry leaves memory first.

What is durable, or too short to be written at all, goes before what the medium had and let go for
others, and that before what would be lost unjudged; what nobody's open session names goes before
what one does. Among equals a policy decides.
"""

import enum
from dataclasses import dataclass

from .entry_value import days, saving


class Retention(enum.Enum):
    """What makes an entry worth keeping."""

    VALUE = "value"
    """Tokens saved per byte that it holds alone, by hits, halved for each day unused."""

    LRU = "lru"
    """The least recently used one goes first."""

    COST_SIZE = "cost-size"
    """GreedyDual: tokens saved per byte, on top of what the last one that went was worth."""


@dataclass(frozen=True, slots=True)
class RamHolding:
    """What retention knows of an entry.

    Attributes:
        tokens: that a resume at its highest line saves.
        alone_bytes: that come free with it.
        credit: for `COST_SIZE`: as `greedy_dual_credit` gave it at its last use.
        safe: it is durable, or too short to be worth a write.
        given_up: it is not, since the medium let it go for others after its last use.
        in_session: some open session's conversation.
    """

    tokens: int
    alone_bytes: int
    hits: int
    last_used_s: float
    credit: float = 0.0
    safe: bool = True
    given_up: bool = False
    in_session: bool = False


def greedy_dual_credit(inflation: float, tokens: int, nbytes: int) -> float:
    """What a use is worth: `inflation` is the credit of the last entry that went.

    Args:
        nbytes: of the whole entry: what comes free with it changes as its rows leave a slot.
    """
    return inflation + tokens / max(nbytes, 1)


def worth(holding: RamHolding, policy: Retention, now_s: float) -> tuple[float, float]:
    """The least goes first, among those that may go alike."""
    if policy is Retention.LRU:
        return holding.last_used_s, 0.0
    if policy is Retention.COST_SIZE:
        return holding.credit, holding.last_used_s
    unused = days(now_s, holding.last_used_s)
    value = saving(holding.tokens, holding.hits, unused) / max(holding.alone_bytes, 1)
    return value, holding.last_used_s


def leaves_first(
    holding: RamHolding, policy: Retention, now_s: float
) -> tuple[int, bool, float, float]:
    """The order in which entries leave: the smallest first."""
    loss = loss_of(safe=holding.safe, given_up=holding.given_up)
    return (loss, holding.in_session, *worth(holding, policy, now_s))


def loss_of(*, safe: bool, given_up: bool) -> int:
    """What it is to lose an entry: nothing, what is worth little, or what nobody has judged."""
    if safe:
        return 0
    return 1 if given_up else 2
