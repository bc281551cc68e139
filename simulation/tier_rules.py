"""The tier's own rules, computed beside it: who leaves first, how age goes on, the day's budget."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from ..application.disk_tier import DiskTier
from ..domain.disk_index import objects_of
from ..domain.disk_retention import DAY_S
from ..domain.entry import Role
from ..domain.stored_entry import ObjectName, StoredEntry
from .tier_watch import TierState, is_continued
from .violation import violated

RESTART_S_MAX: Final = DAY_S
"""By which one restart may age the store, whatever the wall clock says."""

ROUNDING_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class DayState:
    """How a day's writing stands.

    Attributes:
        day: the local one.
        over: more was written on it than may be.
        heads: that were committed since the process started.
        pending: writes under way.
    """

    day: str
    over: bool
    heads: int
    pending: int

    @classmethod
    def of(cls, tier: DiskTier, day: str, pending: int) -> "DayState":
        """The present one."""
        over = tier.written_today() > tier.limits.guard.day_bytes_max
        return cls(day, over, tier.counters.heads, pending)


def check_day(before: DayState, after: DayState) -> None:
    """Over the day's budget no head is written any more.

    Raises:
        Violation: one was.
    """
    began = before.pending == 0 and before.day == after.day
    if began and before.over and after.heads > before.heads:
        violated("guard", f"{after.heads - before.heads} heads over the budget of {before.day}")


def check_age(before_s: float, after_s: float) -> None:
    """A restart ages the store by a day at most.

    Raises:
        Violation: by more; what is stored would expire of a wall clock that is wrong.
    """
    if after_s > before_s + RESTART_S_MAX + ROUNDING_S:
        violated("retention", f"a restart aged the store by {after_s - before_s:.0f} s")


def check_order(before: TierState, after: TierState, tier: DiskTier) -> None:
    """No conversation leaves for room while one stays that is worth less and would make room.

    Raises:
        Violation: one did.
    """
    if after.evicted == before.evicted or after.quarantined != before.quarantined:
        return
    now_s, age_s_max = tier.now_s(), tier.limits.ages.conversations_s
    holders = Counter(name for entry in after.entries.values() for name in objects_of(entry))
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
        ):
            continue
        for stays in staying:
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
