"""What leaves the medium when room is needed, and what has grown too old.

The value of an entry is what it saves per byte that it holds alone, and fades with every day that
nobody used it. The least valuable goes first; state of another arithmetic goes before everything,
since nobody can use it now.

Entries share objects, and a shared object becomes free with the last entry that needs it. So room
is counted in objects, as they stand on the medium, and never as a sum over entries.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .disk_index import share_of
from .entry import EntryId, Role
from .entry_value import DAY_S, days, saving
from .stored_entry import ObjectName


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
        return saving(self.tokens, self.hits, days(now_s, self.last_used_s))


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
    if bytes_held(holdings) + incoming_bytes <= limit:
        return []
    pool = _Pool(holdings, now_s)
    chosen: list[tuple[Holding, Left]] = []
    while pool.total + incoming_bytes > limit:
        may_go, why = _may_go_first(pool, shares, limit, role, incoming_bytes)
        if not may_go:
            return None
        victim = min(may_go, key=pool.order)
        pool.let_go(victim)
        chosen.append((victim, why))
    # Who turns out to have shared everything with entries that stay has left for nothing.
    return [(victim.id, why) for victim, why in chosen if pool.is_smaller_without(victim)]


def bytes_held(holdings: Iterable[Holding]) -> int:
    """What the medium holds for them, each object counted once."""
    objects: dict[ObjectName, int] = {}
    others = 0
    for holding in holdings:
        objects.update(holding.objects)
        if not holding.objects:
            others += holding.alone_bytes
    return others + sum(objects.values())


_SHARES: Final[tuple[Role, ...]] = (Role.HEAD, Role.CONVERSATION)
"""The roles that shares are named by; all but heads live in the conversations' one."""


def _share_of_role(role: Role) -> Role:
    return Role.HEAD if role is Role.HEAD else Role.CONVERSATION


def _may_go_first(
    pool: "_Pool", shares: Shares, limit: int, role: Role, incoming_bytes: int
) -> tuple[Sequence[Holding], Left]:
    """From whom the next victim is taken: foreign state, who is over its share, `role` itself.

    Args:
        limit: of the pool; where that is less than the shares, each share is less in proportion.
    """
    may_go = [holding for holding in pool.holdings.values() if not holding.in_use]
    foreign = [holding for holding in may_go if holding.foreign]
    if foreign:
        return foreign, Left.FOREIGN
    held = pool.held()
    held[_share_of_role(role)] += incoming_bytes
    over = {own for own in _SHARES if held[own] > shares.of(own) * limit // max(shares.pool, 1)}
    from_over = [holding for holding in may_go if _share_of_role(holding.role) in over]
    if from_over:
        return from_over, Left.SHARE
    # Who is over its share is in use, all of it: then what comes in makes room among its own.
    own_share = _share_of_role(role)
    return [holding for holding in may_go if _share_of_role(holding.role) is own_share], Left.ROOM


@dataclass(slots=True)
class _Segment:
    """Objects that the same entries need: most often a run of blocks below where prompts part."""

    nbytes: int
    holders: set[EntryId]


class _Pool:
    """What is held, object by object, while entries are let go."""

    def __init__(self, holdings: Iterable[Holding], now_s: float) -> None:
        """Counts every object once."""
        self.holdings = {holding.id: holding for holding in holdings}
        """Those that were not let go."""
        self.total = 0
        self._worths = {one.id: one.worth(now_s) for one in self.holdings.values()}
        # What each entry holds alone, with its share of what others need too.
        self._alone = dict.fromkeys(self.holdings, 0)
        self._segments: dict[EntryId, list[_Segment]] = {one: [] for one in self.holdings}
        for segment in _segments_of(tuple(self.holdings.values())):
            self.total += segment.nbytes
            for entry_id in segment.holders:
                self._segments[entry_id].append(segment)
            self._account(segment, share_of(segment.nbytes, len(segment.holders)))

    def held(self) -> dict[Role, int]:
        """By share: what its entries hold alone, with their shares of what others need too."""
        held: dict[Role, int] = dict.fromkeys(_SHARES, 0)
        for holding in self.holdings.values():
            held[_share_of_role(holding.role)] += self._alone[holding.id]
        return held

    def order(self, holding: Holding) -> tuple[float, float, EntryId]:
        """The least goes first."""
        value = self._worths[holding.id] / max(self._alone[holding.id], 1)
        return value, holding.last_used_s, holding.id

    def let_go(self, victim: Holding) -> None:
        """Free what nobody else needs; others account for the rest from now on."""
        del self.holdings[victim.id]
        for segment in self._segments[victim.id]:
            before = share_of(segment.nbytes, len(segment.holders))
            segment.holders.remove(victim.id)
            if segment.holders:
                self._account(segment, share_of(segment.nbytes, len(segment.holders)) - before)
            else:
                self.total -= segment.nbytes

    def is_smaller_without(self, victim: Holding) -> bool:
        """Whether anything became free with a victim, all the others gone too."""
        return any(
            segment.nbytes > 0 and not segment.holders for segment in self._segments[victim.id]
        )

    def _account(self, segment: _Segment, more: int) -> None:
        """Every holder of a segment accounts for so many bytes more."""
        alone = self._alone
        for entry_id in segment.holders:
            alone[entry_id] += more


def _segments_of(holdings: Sequence[Holding]) -> list[_Segment]:
    """All objects, those together that the same holdings need."""
    needing: dict[ObjectName, list[EntryId]] = {}
    sizes: dict[ObjectName, int] = {}
    for holding in holdings:
        sizes.update(holding.objects)
        for name in holding.objects:
            needing.setdefault(name, []).append(holding.id)
    nbytes: Counter[tuple[EntryId, ...]] = Counter()
    for name, holders in needing.items():
        nbytes[tuple(holders)] += sizes[name]
    shared = [_Segment(size, set(holders)) for holders, size in nbytes.items()]
    alone = [_Segment(one.alone_bytes, {one.id}) for one in holdings if not one.objects]
    return [*shared, *alone]
