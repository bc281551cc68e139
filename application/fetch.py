"""One stored entry that is read into memory before a slot is free for whoever asks for it."""

from dataclasses import dataclass, field

from ..domain.disk_index import Continuation
from ..domain.stored_entry import ObjectName
from .arriving import Arriving
from .ram_entry import RamEntry
from .ram_tier import RamWay
from .read_queue import RestoreFailed
from .restore import Restore


@dataclass(slots=True, eq=False)
class Fetch:
    """One read under way, or what came of it.

    Attributes:
        restore: brings it in; None once that is over.
        anchors: those that come: what it was begun for, and what others want of the same entry.
        waiting: ids of queued requests that it is for.
        holders: preparations of requests that have a slot already and wait for it.
        arrived: the entry in memory, if it became one.
        failure: what could not be used, if that is why it did not.
    """

    arriving: Arriving
    restore: Restore | None
    continuation: Continuation
    anchors: frozenset[ObjectName]
    waiting: set[str] = field(default_factory=set[str])
    holders: int = 0
    arrived: RamEntry | None = None
    failure: RestoreFailed | None = None

    @property
    def under_way(self) -> bool:
        return self.restore is not None

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for it."""
        return bool(self.waiting) or self.holders > 0

    def brings(self, continuation: Continuation | None) -> bool:
        """Whether a stored way to start is among what it brings in."""
        return (
            continuation is not None
            and continuation.entry.id == self.continuation.entry.id
            and continuation.anchor.name in self.anchors
        )

    def way(self, continuation: Continuation) -> RamWay | None:
        """That way to start from memory; None if it did not arrive."""
        entry, wanted = self.arrived, continuation.anchor
        if entry is None:
            return None
        for anchor in entry.state.anchors:
            if anchor.line == wanted.line and anchor.kind is wanted.kind:
                return RamWay(entry, anchor)
        return None
