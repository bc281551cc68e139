"""The rules of memory, computed beside it: who leaves first, and why anybody may leave at all."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ..application.ram_entry import RamEntry
from ..application.ram_tier import RamTier
from ..domain.anchor import RowsHandle
from ..domain.entry import EntryId, Role
from ..domain.entry_value import DAY_S
from ..domain.ram_retention import loss_of
from .violation import violated

GIVEN_BACK: Final = (Role.SNAPSHOT, Role.STASH, Role.PARK, Role.PIN)
"""What is kept in memory, the cheapest reason first."""


@dataclass(frozen=True, slots=True)
class Held:
    """An entry at one moment.

    Attributes:
        lent: how many are reading it.
        copies: of its rows, block by block.
        alone: bytes that would come free with it.
        whole: bytes of all that it needs.
        safe: nothing is lost with it.
        given_up: the medium had it, and let it go for others.
    """

    entry: RamEntry
    line: int
    lent: int
    hits: int
    last_used_s: float
    copies: tuple[RowsHandle | None, ...]
    alone: int
    whole: int
    safe: bool
    given_up: bool
    in_session: bool

    @property
    def loss(self) -> int:
        """What it would be to lose it, as retention judges that."""
        return loss_of(safe=self.safe, given_up=self.given_up)


@dataclass(frozen=True, slots=True)
class MemoryState:
    """What memory holds at one moment, and what has become of entries until then.

    Attributes:
        judged: whether it was looked at what each entry is worth.
        demoted: that the medium has, or whose tokens a slot has again, healed.
    """

    judged: bool
    held: Mapping[EntryId, Held]
    kept: int
    superseded: int
    evicted: int
    demoted: int
    cut: int

    @classmethod
    def of(cls, ram: RamTier, *, judged: bool = True) -> "MemoryState":
        """The present one.

        Args:
            judged: False saves the time that it takes to look at what each entry is worth.
        """
        counts = ram.counts
        return cls(
            judged,
            {one.id: _held(ram, one, judged=judged) for one in ram.entries},
            counts.kept,
            counts.superseded,
            counts.evicted,
            counts.demoted + counts.healed,
            counts.cut,
        )


def check_leaving(
    before: MemoryState,
    after: MemoryState,
    asked: Mapping[EntryId, int],
    is_safe: Callable[[RamEntry], bool],
    now_s: float,
) -> list[Held]:
    """Between two moments of a process nobody leaves memory but by a rule, the least first.

    Args:
        asked: how often each was looked at in between whether it should leave.
        is_safe: whether nothing is lost with an entry by now, be it there or not.

    Returns:
        Who has made room, as far as that can be told.

    Raises:
        Violation: somebody is gone and nothing says why, or another one should have gone.
    """
    evicted, cut = after.evicted - before.evicted, after.cut - before.cut
    demoted = after.demoted - before.demoted
    superseded, came = after.superseded - before.superseded, after.kept - before.kept
    gone = [held for one, held in before.held.items() if one not in after.held]
    count = len(before.held) + came - len(after.held)
    if count > evicted + demoted + cut + superseded:
        violated("kept", f"{count} entries left memory, {evicted} of them to make room")
    unlike = [
        replace(held, safe=held.safe or is_safe(held.entry))  # it may just have become durable
        for held in gone
        if not is_continued(held.entry, after.held.values())
    ]
    # Who came and went in between may have continued one.
    passed = came - len(after.held.keys() - before.held.keys())
    if len(unlike) > evicted + demoted + cut + passed:
        violated("kept", f"{len(unlike)} entries are gone, and no other has their tokens")
    told = before.judged and after.judged and not (cut or demoted)
    if not told or len(unlike) != evicted or len(gone) - len(unlike) != superseded:
        return []
    staying = [
        (before.held[one], held)
        for one, held in after.held.items()
        if one in before.held and _is_as_it_was(before.held[one], held)
    ]
    for held in unlike:
        # Its session may have gone on meanwhile, and stand elsewhere.
        judged = replace(held, in_session=False)
        for was, now in staying:
            # Who was being read for a moment had to stay, and was not asked.
            if asked.get(now.entry.id, 0) >= asked.get(held.entry.id, 0) > 0:
                check_order(judged, was, now, now_s)
    return unlike


def check_order(gone: Held, before: Held, after: Held, now_s: float) -> None:
    """Nobody leaves to make room while one stays that is worth less, whatever was shared by then.

    Args:
        gone: at the last moment before.
        before: who stays, at the same moment.
        after: the same one when it was over.

    Raises:
        Violation: one has.
    """
    if not (before.alone and after.alone):
        return  # nothing would have come free with it
    if before.loss != after.loss or before.in_session != after.in_session:
        return
    least = _worth(gone, gone.whole, now_s)
    stays = (after.loss, after.in_session, _worth(after, min(before.alone, after.alone), now_s))
    if stays < (gone.loss, gone.in_session, least):
        violated("retention", f"{gone.entry.id} left memory, and {after.entry.id} is worth less")


def check_roles(before: MemoryState, after: MemoryState) -> None:
    """What is given back for others leaves role by role, the cheapest reason first.

    Raises:
        Violation: one has left that is kept for a better reason than one that stays.
    """
    gone = [held.entry.role for one, held in before.held.items() if one not in after.held]
    stays = [held.entry.role for held in after.held.values() if not held.lent and held.alone]
    best = max((GIVEN_BACK.index(role) for role in gone), default=0)
    if any(GIVEN_BACK.index(role) < best for role in stays):
        violated("retention", f"{gone} were given back, and {stays} are left")


def is_continued(entry: RamEntry, others: Iterable[Held]) -> bool:
    """Whether another one of its session has all of its tokens."""
    return any(
        other.entry.namespace == entry.namespace
        and other.entry.session == entry.session
        and other.line >= entry.line
        and np.array_equal(other.entry.state.key_ids[: entry.line], entry.state.key_ids)
        and np.array_equal(other.entry.ids[: entry.line], entry.ids)
        for other in others
    )


def _held(ram: RamTier, entry: RamEntry, *, judged: bool) -> Held:
    return Held(
        entry=entry,
        line=entry.line,
        lent=entry.lent,
        hits=entry.hits,
        last_used_s=entry.last_used_s,
        copies=tuple(block.handle for block in entry.blocks),
        alone=ram.bytes_alone(entry) if judged else 0,
        whole=ram.bytes_all(entry) if judged else 0,
        safe=ram.is_safe(entry) if judged else True,
        given_up=ram.given_up(entry) if judged else False,
        in_session=ram.in_session(entry) if judged else False,
    )


def _is_as_it_was(before: Held, after: Held) -> bool:
    """Whether nobody had it, used it, moved it or cut it meanwhile."""
    return (
        not before.lent
        and not after.lent
        and before.line == after.line
        and before.hits == after.hits
        and before.last_used_s == after.last_used_s
        and before.copies == after.copies
    )


def _worth(held: Held, nbytes: int, now_s: float) -> float:
    """Tokens saved per byte, by hits, halved for each day unused."""
    days = max(now_s - held.last_used_s, 0.0) / DAY_S
    return (held.hits + 1) * held.line / max(nbytes, 1) * 0.5**days
