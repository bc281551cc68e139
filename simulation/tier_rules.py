"""The tier's own rules, computed beside it: who leaves first, how age goes on, the day's budget."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..application.disk_tier import DiskTier
from ..domain.disk_index import objects_of
from ..domain.entry import Role
from ..domain.entry_value import DAY_S
from ..domain.stored_entry import ObjectName, StoredEntry
from ..domain.write_guard import WriteGuard, WriteLevel
from ..ports.catalog import Catalog
from .tier_watch import TierState, is_continued
from .violation import violated
from .watched_tier import WatchedTier

RESTART_S_MAX: Final = DAY_S
"""By which one restart may age the store, whatever the wall clock says."""

ROUNDING_S: Final = 1.0

DAYS_MAX: Final = 10_000
"""More than any world has."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What was written to a store, as its catalog has it, whoever wrote it.

    Attributes:
        by_day: bytes by the local day.
        latest: bytes of the last day of the monotonic clock: when at the latest, on which local
            day, how many.
    """

    by_day: Mapping[str, int] = field(default_factory=dict[str, int])
    latest: tuple[tuple[float, str, int], ...] = ()

    def then(self, catalog: Catalog, began_s: float, now_s: float) -> "Spent":
        """What it is now.

        Args:
            began_s: nothing that is new was written before.
        """
        by_day = {day: sum(of.values()) for day, of in catalog.written(DAYS_MAX).items()}
        was_lost = any(by_day.get(day, 0) < nbytes for day, nbytes in self.by_day.items())
        known = Spent() if was_lost else self
        grown = [(day, nbytes - known.by_day.get(day, 0)) for day, nbytes in by_day.items()]
        new = [(began_s, day, nbytes) for day, nbytes in grown if nbytes]
        young = [one for one in known.latest if now_s - one[0] < DAY_S]
        return Spent(by_day, (*young, *new))

    def least(self, day: str, now_s: float) -> int:
        """What counts on a local day at the least.

        All that was written on it, and what was written in the last day and has a later date: the
        wall clock went back since, and that gives nobody another budget.
        """
        ahead = (
            nbytes
            for written_s, written, nbytes in self.latest
            if written > day and now_s - written_s < DAY_S
        )
        return self.by_day.get(day, 0) + sum(ahead)


@dataclass(frozen=True, slots=True)
class DayState:
    """How a day's writing stands.

    Attributes:
        day: the local one.
        heads: that were committed since the process started.
        saved: conversations that were.
        pending: writes under way.
    """

    day: str
    heads: int
    saved: int
    pending: int

    @classmethod
    def of(cls, tier: DiskTier, day: str, pending: int) -> "DayState":
        """The present one."""
        return cls(day, tier.counters.heads, tier.counters.saved, pending)


def check_day(
    before: DayState, after: DayState, spent: int, guard: WriteGuard, *, flushed: bool
) -> None:
    """Over the day's budget no head is written, and far over it nothing but for a flush.

    Args:
        spent: what counted on that day at the least, all the time.
        flushed: somebody asked for durability meanwhile.

    Raises:
        Violation: something was.
    """
    if before.pending or before.day != after.day:
        return
    level = guard.level(spent)
    if level is not WriteLevel.OK and after.heads > before.heads:
        violated("guard", f"{after.heads - before.heads} heads over the budget of {before.day}")
    if level is WriteLevel.HARD and not flushed and after.saved > before.saved:
        count = after.saved - before.saved
        violated("guard", f"{count} conversations far over the budget of {before.day}")


def check_age(before_s: float, after_s: float) -> None:
    """A restart ages the store by a day at most.

    Raises:
        Violation: by more; what is stored would expire of a wall clock that is wrong.
    """
    if after_s > before_s + RESTART_S_MAX + ROUNDING_S:
        violated("retention", f"a restart aged the store by {after_s - before_s:.0f} s")


def check_order(before: TierState, after: TierState, tier: WatchedTier) -> None:
    """No conversation leaves for room while one stays that is worth less and would make room.

    Who was being read just then had to stay, whoever the reader was and whatever came of it.

    Raises:
        Violation: one did.
    """
    if after.evicted == before.evicted or after.quarantined != before.quarantined:
        return
    now_s, age_s_max = tier.now_s(), tier.limits.ages.conversations_s
    # What is held alone by this count was held alone at every moment, whoever else left then.
    held = {
        (entry.id, name)
        for state in (before, after)
        for entry in state.entries.values()
        for name in objects_of(entry)
    }
    holders = Counter(name for _, name in held)
    own = [
        entry
        for entry in before.entries.values()
        if entry.role is Role.CONVERSATION and entry.fingerprint in tier.fingerprints
    ]
    staying = [entry for entry in own if after.entries.get(entry.id) == entry]
    for gone in own:
        # Who was used may have been replaced by its next turn, which has no hits yet.
        may_tell = gone.id not in after.entries and gone.hits == 0
        if (
            not may_tell
            or now_s - gone.last_used_s > age_s_max
            or is_continued(gone, after.entries.values())
            # Its next turn took its place, and may have left by now itself.
            or tier.heirs.of(gone.id) != gone.id
        ):
            continue
        read = tier.read_while_left.get(gone.id, frozenset())
        for stays in staying:
            if stays.id in read:
                continue
            freed = _alone(stays, holders)
            if freed and stays.last_used_s <= gone.last_used_s and stays.hits == 0:
                least = _worth(gone, now_s) / sum(objects_of(gone).values())
                if _worth(stays, now_s) / freed < least:
                    violated("retention", f"{gone.id} left, and {stays.id} is worth less")


def _alone(entry: StoredEntry, holders: Counter[ObjectName]) -> int:
    """Bytes that would become free with an entry."""
    return sum(nbytes for name, nbytes in objects_of(entry).items() if holders[name] == 1)


def _worth(entry: StoredEntry, now_s: float) -> float:
    """Tokens saved, halved for each day unused."""
    return entry.anchors[-1].line * 0.5 ** ((now_s - entry.last_used_s) / DAY_S)
