"""What leaves the medium when room is needed, and what has grown too old.

The value of an entry is what it saves per byte that it holds alone, and fades with every day that
nobody used it. The least valuable goes first; state of another arithmetic goes before everything,
since nobody can use it now.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .entry import EntryId, Role

DAY_S: Final = 86_400.0


class Left(enum.Enum):
    """Why an entry left."""

    FOREIGN = "foreign"
    EXPIRED = "expired"
    SHARE = "share"
    ROOM = "room"


@dataclass(frozen=True, slots=True)
class Holding:
    """What retention knows of an entry.

    Attributes:
        tokens: that a resume at its highest line saves.
        alone_bytes: that it holds alone, with its share of what others need too.
        foreign: made by another arithmetic.
        in_use: being read or written: never chosen.
    """

    id: EntryId
    role: Role
    tokens: int
    alone_bytes: int
    hits: int
    created_s: float
    last_used_s: float
    foreign: bool = False
    in_use: bool = False

    def value(self, now_s: float) -> float:
        """Tokens saved per byte, by hits, halved for each day unused."""
        days = max(now_s - self.last_used_s, 0.0) / DAY_S
        return (self.hits + 1) * self.tokens / max(self.alone_bytes, 1) * 0.5**days


@dataclass(frozen=True, slots=True)
class Shares:
    """Bytes that roles may hold, in one pool."""

    heads_bytes_max: int
    conversations_bytes_max: int

    @property
    def pool(self) -> int:
        return self.heads_bytes_max + self.conversations_bytes_max

    def of(self, role: Role) -> int:
        return self.heads_bytes_max if role is Role.HEAD else self.conversations_bytes_max


@dataclass(frozen=True, slots=True)
class Ages:
    """Seconds after which an unused entry has expired."""

    heads_s: float = 7 * DAY_S
    conversations_s: float = 2 * DAY_S

    def of(self, role: Role) -> float:
        return self.heads_s if role is Role.HEAD else self.conversations_s


def expired(holdings: Iterable[Holding], ages: Ages, now_s: float) -> list[EntryId]:
    """The entries that nobody used for too long, oldest use first."""
    old = [
        holding
        for holding in holdings
        if not holding.in_use and now_s - holding.last_used_s > ages.of(holding.role)
    ]
    return [holding.id for holding in sorted(old, key=lambda one: (one.last_used_s, one.id))]


def victims(
    holdings: Sequence[Holding], shares: Shares, role: Role, incoming_bytes: int, now_s: float
) -> list[tuple[EntryId, Left]] | None:
    """Whom to let go before `incoming_bytes` are written for `role`, in this order.

    A role may grow over its share into what the other leaves unused, and gives that back when the
    other needs it. None if even everything that may go makes no room.
    """
    chosen: list[tuple[EntryId, Left]] = []
    held = dict.fromkeys(Role, 0)
    for holding in holdings:
        held[holding.role] += holding.alone_bytes
    total = sum(held.values())
    candidates = [holding for holding in holdings if not holding.in_use]
    while total + incoming_bytes > shares.pool:
        if not candidates:
            return None
        victim, why = _least(candidates, shares, held, role, incoming_bytes, now_s)
        candidates.remove(victim)
        chosen.append((victim.id, why))
        held[victim.role] -= victim.alone_bytes
        total -= victim.alone_bytes
    return chosen


def _least(
    candidates: Sequence[Holding],
    shares: Shares,
    held: dict[Role, int],
    role: Role,
    incoming_bytes: int,
    now_s: float,
) -> tuple[Holding, Left]:
    """Foreign state first, then roles over their share, then all by value."""
    foreign = [holding for holding in candidates if holding.foreign]
    over = [
        holding
        for holding in candidates
        if held[holding.role] + (incoming_bytes if holding.role is role else 0)
        > shares.of(holding.role)
    ]
    pool, why = (
        (foreign, Left.FOREIGN)
        if foreign
        else (over, Left.SHARE)
        if over
        else (candidates, Left.ROOM)
    )
    return min(pool, key=lambda holding: (holding.value(now_s), holding.id)), why
