"""What can be verified: the resident of a slot, an entry of the disk tier, and one in memory.

Each goes in two parts. First its own: what is claimed to be preserved is held against the sums that
were taken when it was made, and the sums of the rest are written down. Then the rest is recomputed
cold. Both are generators that do one piece of work for each value asked of them, and give the
difference that it has shown, or None; whoever asks stops at the first one. Entries in memory have a
module of their own, `live_verify_kept`.
"""

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Protocol

from ..domain.anchor import Anchor
from ..domain.entry import Tier
from ..domain.errors import StorageError
from ..domain.grid import Span
from ..domain.mismatch import Difference, Kind
from ..domain.namespace import Namespace
from ..domain.stored_entry import ObjectName, StoredEntry
from ..domain.sums import PartSums
from ..domain.tokens import TokenIds
from ..ports.engine import Engine, EngineProfile
from ..ports.gpu_state import ByteBuffers, SlotState, StateCopies
from .disk_service import DiskService
from .distrust import Distrust
from .entry_write import Progress
from .live_verify_cold import (
    Reference,
    Spare,
    departing,
    difference_of,
    exported_rows,
    hold_anchors,
    hold_rows,
    recompute,
)
from .read_queue import RestoreFailed
from .resident_prefix import ResidentPrefix
from .slots import Slot


class Subject(Protocol):
    """Something that is kept, and may be offered to a request."""

    @property
    def id(self) -> str:
        """As `/v1/cache/entries` shows it."""
        ...

    @property
    def tier(self) -> Tier: ...

    @property
    def version(self) -> Hashable:
        """Another one once something of it has changed."""
        ...

    @property
    def borrows(self) -> bool:
        """Whether it holds now what requests may need."""
        ...

    @property
    def namespace(self) -> Namespace: ...

    @property
    def ids(self) -> TokenIds:
        """The tokens it is of; known once `pieces` has begun to recompute."""
        ...

    def is_current(self) -> bool:
        """Whether it is still what it was when this subject was made."""
        ...

    def pieces(self, engine: Engine, spare: Spare) -> Generator[Difference | None]:
        """Verify it, see above.

        Raises:
            EngineError: a forward on the spare slot failed.
            RestoreFailed: it cannot be read; what is damaged of it has been quarantined.
        """
        ...

    def rows(self, span: Span) -> ByteBuffers | None:
        """The bytes of some of its rows; None where they cannot be had."""
        ...

    def distrust(self, difference: Difference, reason: str) -> None:
        """Nobody is to resume from it again, nor from what stands on it."""
        ...


class ResidentSubject:
    """What stands in an idle slot, up to the highest line that it can be resumed at."""

    tier = Tier.SLOT
    borrows = False

    def __init__(
        self, slot: Slot, state: SlotState, profile: EngineProfile, distrust: Distrust
    ) -> None:
        """Takes a slot that can be resumed."""
        self._slot = slot
        self._state = state
        self._profile = profile
        self._distrust = distrust
        self._changes = slot.resident.changes
        self.id = f"slot-{slot.index}"
        self.version: Hashable = (self._changes, slot.resident.length)
        self.namespace = slot.resident.namespace
        self.ids = slot.resident.ids[: slot.resident.highest].copy()

    def is_current(self) -> bool:
        return self._slot.resident.changes == self._changes

    def pieces(self, engine: Engine, spare: Spare) -> Generator[Difference | None]:
        resident, state = self._slot.resident, self._state
        for span, sealed in () if resident.seals is None else resident.seals.rows:
            if span.end <= len(self.ids):
                part = departing(sealed, state.row_sums(span))
                yield difference_of(Kind.PRESERVED_ROWS, span.end, part, span.start)
        seal_of = None if resident.seals is None else resident.seals.of_anchor
        reference = Reference(self.ids)
        yield from _held(reference, resident, state, self._profile, engine.copies, seal_of)
        yield from recompute(engine, spare, reference)

    def rows(self, span: Span) -> ByteBuffers | None:
        return exported_rows(self._state, self._profile.layout.views, span)

    def distrust(self, difference: Difference, reason: str) -> None:
        del reason
        self._distrust.resident(self._slot, difference)


class StoredSubject:
    """An entry of the running arithmetic, read as a start reads it back."""

    tier = Tier.DISK

    def __init__(
        self, entry: StoredEntry, disk: DiskService, spare: Spare, profile: EngineProfile
    ) -> None:
        """Takes an entry that has anchors; reads nothing yet."""
        self._entry = entry
        self._disk = disk
        self._spare = spare
        self._profile = profile
        self.id = str(entry.id)
        self.borrows = False
        self.version: Hashable = (entry.blocks[-1:], entry.anchors)
        self.namespace = Namespace()
        self.ids = spare.resident.ids

    def is_current(self) -> bool:
        now, then = self._disk.tier.index.entry(self._entry.id), self._entry
        return now is not None and (now.blocks, now.anchors) == (then.blocks, then.anchors)

    def pieces(self, engine: Engine, spare: Spare) -> Generator[Difference | None]:
        yield from self._restored(spare)
        self.namespace = spare.resident.namespace
        self.ids = spare.resident.ids.copy()
        reference = Reference(self.ids)
        yield from _held(reference, spare.resident, spare.state, self._profile, engine.copies)
        spare.resident.forget()
        yield from recompute(engine, spare, reference)

    def rows(self, span: Span) -> ByteBuffers | None:
        start, block = 0, self._entry.blocks[0]
        for above in self._entry.blocks[1:]:
            if block.end >= span.end:
                break
            start, block = block.end, above
        buffer = self._disk.pool.acquire()
        if buffer is None:
            return None
        try:
            found = self._disk.tier.store.read(block.name, block.nbytes, buffer).parts
            return {
                view.name: found[view.name][
                    (span.start - start) * view.row_bytes : (span.end - start) * view.row_bytes
                ].copy()
                for view in self._profile.layout.views
            }
        except StorageError:
            return None
        finally:
            self._disk.pool.release(buffer)

    def distrust(self, difference: Difference, reason: str) -> None:
        for name in self._departing(difference):
            self._disk.tier.distrust(name, reason)

    def _departing(self, difference: Difference) -> Sequence[ObjectName]:
        """The objects that a difference is in: one block, or the anchors of one line."""
        if difference.kind is Kind.BITWISE_ROWS:
            blocks = self._entry.blocks
            return [block.name for block in blocks if block.end >= difference.line][:1]
        return [anchor.name for anchor in self._entry.anchors if anchor.line == difference.line]

    def _restored(self, spare: Spare) -> Generator[None]:
        """Bring it into the spare slot; every byte is held against its recorded sums there."""
        restore = self._disk.restore_whole(spare.index, spare.resident, self._entry)
        settled = False
        self.borrows = True
        try:
            while restore.step(wait=True) is not Progress.DONE:
                yield None
            settled = True
            self._disk.read_whole(restore)
        except RestoreFailed as failure:
            settled = True
            self._disk.failed(restore, failure)
            raise
        finally:
            if not settled:
                self._disk.abandoned(restore)
            self.borrows = False


def _held(
    reference: Reference,
    resident: ResidentPrefix,
    state: SlotState,
    profile: EngineProfile,
    copies: StateCopies,
    seal_of: Callable[[Anchor], PartSums | None] | None = None,
) -> Generator[Difference | None]:
    """What stands in a slot, see `hold_anchors`."""
    taint = resident.taint
    yield from hold_anchors(reference, lambda: resident.resumable, taint, profile, copies, seal_of)
    top = min(taint.line, len(reference.ids))
    yield from hold_rows(reference, top, profile.grid, lambda span: [state.row_sums(span)])
