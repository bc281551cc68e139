"""Durability: what a flush does, and what it may honestly say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..domain.write_guard import WriteCause
from .disk_service import DiskService

if TYPE_CHECKING:
    from .slots import Slot


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What a flush found and did.

    Attributes:
        durable: every conversation that can be resumed is on the medium; nothing pending, failed,
            dropped or missing.
        tier: whether there is a disk tier at all.
        saved: conversations that this flush committed.
        pending: writes that were not finished.
        failed: writes that failed during this flush.
        dropped: blocks whose rows were overwritten before they were copied.
        missing: slots whose conversation is not on the medium.
        entries: conversations and heads on the medium.
        longest: tokens of the longest one.
    """

    durable: bool
    tier: bool
    saved: int = 0
    pending: int = 0
    failed: int = 0
    dropped: int = 0
    missing: int = 0
    entries: int = 0
    longest: int = 0

    @classmethod
    def without_tier(cls) -> "FlushReport":
        """Without a tier nothing outlives the process."""
        return cls(durable=False, tier=False)


class Flush:
    """One flush under way, stepped by the scheduler until it can answer."""

    def __init__(
        self,
        disk: DiskService,
        slots: "Sequence[Slot]",
        answer: Callable[[FlushReport], None],
    ) -> None:
        """Begins with every slot still to be saved."""
        self._disk = disk
        self._slots = slots
        self._waiting = {slot.index for slot in slots}
        self._answer = answer
        counts = disk.writes.counts
        self._before = (counts.committed, counts.failed, counts.dropped)

    def step(self) -> bool:
        """Save the slots that are idle by now; True once the answer was given."""
        for slot in self._slots:
            if slot.index in self._waiting and slot.idle:
                self._waiting.discard(slot.index)
                self._disk.conversations.save(
                    slot.index, slot.resident, slot.session, WriteCause.STOP
                )
        if self._waiting or self._disk.writes.pending:
            return False
        self._answer(self._report())
        return True

    def _report(self) -> FlushReport:
        counts = self._disk.writes.counts
        committed, failed, dropped = self._before
        missing = sum(
            slot.idle and self._disk.conversations.is_dirty(slot.resident) for slot in self._slots
        )
        entries = self._disk.tier.index.entries()
        new_failures, new_drops = counts.failed - failed, counts.dropped - dropped
        return FlushReport(
            durable=not (new_failures or new_drops or missing),
            tier=True,
            saved=counts.committed - committed,
            pending=self._disk.writes.pending,
            failed=new_failures,
            dropped=new_drops,
            missing=missing,
            entries=len(entries),
            longest=max((entry.anchors[-1].line for entry in entries if entry.anchors), default=0),
        )
