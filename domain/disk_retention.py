"""What leaves the medium when room is needed, and what has grown too old.

The value of an entry is what it saves per byte that it holds alone, and fades with every day that
nobody used it. The least valuable goes first; state of another arithmetic goes before everything,
since nobody can use it now.

Entries share objects, and a shared object becomes free with the last entry that needs it. So room
is counted in objects, as they stand on the medium, and never as a sum over entries.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .disk_index import share_of
from .entry import EntryId, Role
from .stored_entry import ObjectName

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
        in_use: being read or written: never chosen. An entry that is about to be written over
            stored objects is one, with those as its objects: they cannot be freed for it.
        objects: what it needs, with the bytes each takes. Without them all of `alone_bytes` is
            taken to become free with it, which is true only of an entry that shares nothing.
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
    objects: Mapping[ObjectName, int] = field(default_factory=dict[ObjectName, int])

    def value(self, now_s: float) -> float:
        """Tokens saved per byte, by hits, halved for each day unused."""
        return self.worth(now_s) / max(self.alone_bytes, 1)

    def worth(self, now_s: float) -> float:
        """Tokens saved, by hits, halved for each day unused; whatever it costs."""
        days = max(now_s - self.last_used_s, 0.0) / DAY_S
        return (self.hits + 1) * self.tokens * 0.5**days


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
    holdings: Sequence[Holding],
    shares: Shares,
    role: Role,
    incoming_bytes: int,
    now_s: float,
    *,
    bytes_max: int | None = None,
) -> list[tuple[EntryId, Left]] | None:
    """Whom to let go before `incoming_bytes` are written for `role`, in this order.

    A role may grow over its share into what the other leaves unused, and gives that back when the
    other needs it. While a role is within its share nothing of it goes for the other, unless it is
    of another arithmetic.

    Args:
        holdings: all entries of the pool; an object that only others need is not counted.
        bytes_max: for all of it together, where the medium has less room than the shares.

    Returns:
        None if even everything that may go makes no room.
    """
    limit = shares.pool if bytes_max is None else min(bytes_max, shares.pool)
    pool = _Pool(holdings)
    worths = {holding.id: holding.worth(now_s) for holding in holdings}
    candidates = {holding.id: holding for holding in holdings if not holding.in_use}
    chosen: list[tuple[Holding, Left]] = []

    def order(holding: Holding) -> tuple[float, float, EntryId]:
        value = worths[holding.id] / max(pool.alone[holding.id], 1)
        return value, holding.last_used_s, holding.id

    while pool.total + incoming_bytes > limit:
        held = {own: pool.held[own] for own in _SHARES}
        held[_share_of_role(role)] += incoming_bytes
        may_go, why = _first_to_go(tuple(candidates.values()), held, shares, limit, role)
        if not may_go:
            return None
        victim = min(may_go, key=order)
        del candidates[victim.id]
        pool.let_go(victim)
        chosen.append((victim, why))
    # Who turns out to have shared everything with entries that stay has left for nothing.
    return [(victim.id, why) for victim, why in chosen if pool.is_smaller_without(victim)]


_SHARES: Final[tuple[Role, ...]] = (Role.HEAD, Role.CONVERSATION)
"""The roles that shares are named by; all but heads live in the conversations' one."""


def _share_of_role(role: Role) -> Role:
    return Role.HEAD if role is Role.HEAD else Role.CONVERSATION


def _first_to_go(
    candidates: Sequence[Holding],
    held: Mapping[Role, int],
    shares: Shares,
    limit: int,
    role: Role,
) -> tuple[Sequence[Holding], Left]:
    """From whom the next victim is taken: foreign state, who is over its share, `role` itself.

    Args:
        held: bytes by share, the incoming ones among them.
        limit: of the pool; where that is less than the shares, each share is less in proportion.
    """
    foreign = [holding for holding in candidates if holding.foreign]
    if foreign:
        return foreign, Left.FOREIGN
    over = {own for own in _SHARES if held[own] > shares.of(own) * limit // max(shares.pool, 1)}
    from_over = [holding for holding in candidates if _share_of_role(holding.role) in over]
    if from_over:
        return from_over, Left.SHARE
    # Who is over its share is in use, all of it: then what comes in makes room among its own.
    own_share = _share_of_role(role)
    return [one for one in candidates if _share_of_role(one.role) is own_share], Left.ROOM


class _Pool:
    """What is held, object by object, while entries are let go."""

    def __init__(self, holdings: Iterable[Holding]) -> None:
        """Counts every object once."""
        self._holders: dict[ObjectName, dict[EntryId, Holding]] = {}
        self._bytes: dict[ObjectName, int] = {}
        self.alone: dict[EntryId, int] = {}
        """By entry, with its share of what others need too."""
        self.held: dict[Role, int] = dict.fromkeys(_SHARES, 0)
        """By share: what its entries hold alone."""
        self.total = 0
        all_holdings = tuple(holdings)
        for holding in all_holdings:
            for name, nbytes in holding.objects.items():
                self._holders.setdefault(name, {})[holding.id] = holding
                self._bytes[name] = max(self._bytes.get(name, 0), nbytes)
        for holding in all_holdings:
            alone = 0 if holding.objects else holding.alone_bytes
            self.total += alone
            for name in holding.objects:
                alone += share_of(self._bytes[name], len(self._holders[name]))
            self.alone[holding.id] = alone
            self.held[_share_of_role(holding.role)] += alone
        self.total += sum(self._bytes.values())

    def is_smaller_without(self, victim: Holding) -> bool:
        """Whether anything became free with a victim, all the others gone too."""
        if not victim.objects:
            return victim.alone_bytes > 0
        return any(not self._holders[name] for name in victim.objects)

    def let_go(self, holding: Holding) -> None:
        """Free what nobody else needs; others account for the rest from now on."""
        self.held[_share_of_role(holding.role)] -= self.alone.pop(holding.id)
        if not holding.objects:
            self.total -= holding.alone_bytes
        for name in holding.objects:
            nbytes, holders = self._bytes[name], self._holders[name]
            before = share_of(nbytes, len(holders))
            del holders[holding.id]
            if not holders:
                self.total -= nbytes
                continue
            more = share_of(nbytes, len(holders)) - before
            for other in holders.values():
                self.alone[other.id] += more
                self.held[_share_of_role(other.role)] += more
