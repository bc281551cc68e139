"""Writes that go on behind the requests' backs: queued, fenced, and committed when durable."""

from dataclasses import dataclass

from ..domain.anchor import AnchorKind
from ..domain.entry import Role
from ..domain.entry_succession import ANCHORS_SAVED
from ..domain.errors import RowsChanged, StorageFull
from ..domain.prompt_chain import PromptChain
from ..domain.stored_entry import StoredEntry
from .disk_counters import Skip
from .disk_tier import DiskTier
from .entry_ids import entry_id
from .entry_write import EntryWrite, Progress
from .ram_entry import RamEntry


@dataclass(slots=True, eq=False)
class Write:
    """An entry on its way to the medium.

    Attributes:
        ready: whether its rows may be copied; those of a head only once its prefill has ended.
        entry: in memory, that it copies from; None where it copies from a slot.
    """

    slot: int
    work: EntryWrite
    ready: bool
    entry: RamEntry | None = None

    def give_back(self) -> None:
        """Let the entry leave memory again, once nothing is needed of it."""
        if self.entry is not None and self.work.copied:
            self.entry.lent -= 1
            self.entry = None


@dataclass(slots=True)
class WriteCounts:
    """What became of writes since the start.

    Attributes:
        changed: of those that failed: their rows changed under them.
    """

    committed: int = 0
    failed: int = 0
    dropped: int = 0
    changed: int = 0


class Writes:
    """All writes under way. Called on the engine thread."""

    def __init__(self, tier: DiskTier) -> None:
        self._tier = tier
        self._writes: list[Write] = []
        self.counts = WriteCounts()

    @property
    def pending(self) -> int:
        """How many are not durable yet."""
        return len(self._writes)

    @property
    def outstanding(self) -> int:
        """Bytes that room was made for and that are not written yet."""
        return sum(write.work.outstanding for write in self._writes)

    def of_slot(self, slot: int) -> list[Write]:
        """The writes that copy from a slot, or did."""
        return [write for write in self._writes if write.slot == slot]

    def continuing(self, chain: PromptChain, above: int) -> Write | None:
        """A conversation that will continue a prompt above a line, once it is durable."""
        for write in self._writes:
            if write.work.snapshot.role is Role.CONVERSATION:
                lines = [line for line, _ in self.ways(write, chain)]
                if max(lines, default=0) > above:
                    return write
        return None

    def ways(self, write: Write, chain: PromptChain) -> list[tuple[int, AnchorKind]]:
        """The anchors at which a conversation will continue a prompt, once it is durable."""
        work = write.work
        shared = [
            (line, kind)
            for line, kind in work.anchors
            if line < chain.length and chain.key(line) == work.chain.key(line)
        ]
        if not shared:
            return []
        # It takes the place of older ones, and keeps no more anchors than each of them.
        lines = {line for line, kind in work.anchors if kind is AnchorKind.GRID}
        for older in self._tier.index.entries():
            lines |= _lines_left_to(work.chain, older)
        newest = sorted(lines)[-ANCHORS_SAVED:]
        return [one for one in shared if one[1] is AnchorKind.END or one[0] in newest]

    def is_pending(self, write: Write) -> bool:
        """Whether a write has not been settled."""
        return write in self._writes

    def add(self, write: Write) -> None:
        """Take a write; its first copy is made by a later `step`."""
        self._writes.append(write)

    def step(self, *, ahead: bool = True) -> Progress:
        """Copy one block of one write, or commit one that is durable; see `EntryWrite.step`."""
        waiting = False
        for write in [write for write in self._writes if write.ready]:
            progress = write.work.step(ahead=ahead)
            write.give_back()
            if progress is Progress.DONE:
                self._writes.remove(write)
                self._settle(write)
                self._tier.unpin(write.work.names)
            if progress is not Progress.WAITING:
                return Progress.WORKED
            waiting = True
        return Progress.WAITING if waiting else Progress.DONE

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until one object under way is written, or the time is over; False if none is.

        Where none is being written any more, until the objects of one entry are durable.
        """
        buffers_first = sorted(self._writes, key=lambda write: not write.work.writing)
        return any(write.work.wait(timeout_s) for write in buffers_first)

    def fence(self, slot: int, line: int) -> None:
        """Rows of a slot from `line` on are about to be overwritten."""
        for write in self.of_slot(slot):
            if not write.work.copied:
                before = write.work.dropped
                write.work.fence(line)
                if write.work.dropped > before:
                    self.counts.dropped += 1
                    self._tier.ledger.skipped(Skip.WINDOW, write.work.snapshot.role)
            write.ready = True

    def fence_entry(self, entry: RamEntry, line: int) -> None:
        """Rows of an entry in memory from `line` on are gone."""
        for write in self._writes:
            if write.entry is entry:
                write.work.fence(line)
                write.give_back()

    def _settle(self, write: Write) -> None:
        """Commit what has become durable; count what has not."""
        role = write.work.snapshot.role
        failure = write.work.failure
        for name in write.work.damaged:
            self._tier.distrust(name, str(failure))
        if failure is not None:
            why = _why(failure)
            if why is Skip.CHANGED:
                self._tier.ledger.changed(str(failure))
            self._failed(role, why)
            return
        blocks, anchors = write.work.contents()
        if not anchors:
            self._tier.ledger.ended(failed=False)
            return
        now_s = self._tier.now_s()
        snapshot = write.work.snapshot
        ends = snapshot.end is not None and snapshot.end.line == anchors[-1].line
        entry = StoredEntry(
            # Of what it consists of: one that was cut short must not replace what reaches higher.
            id=entry_id(role, snapshot.fingerprint, anchors[-1].key),
            role=role,
            fingerprint=snapshot.fingerprint,
            blocks=blocks,
            anchors=anchors,
            taint=min(snapshot.taint, anchors[-1].line),
            end=snapshot.end if ends else None,
            session=snapshot.session,
            hits=0,
            created_s=now_s,
            last_used_s=now_s,
        )
        refused = self._tier.commit(entry, write.work.chain, write.work.bytes_written)
        if refused is not None:
            self._failed(role, refused)
            return
        self._tier.ledger.ended(failed=False)
        self.counts.committed += 1
        if role is Role.HEAD:
            self._tier.counters.heads += 1
        else:
            self._tier.counters.saved += 1

    def _failed(self, role: Role, why: Skip) -> None:
        """Nothing of it is kept; a medium or a catalog that failed is left alone for a while."""
        self.counts.failed += 1
        self.counts.changed += why is Skip.CHANGED
        self._tier.ledger.ended(failed=why not in (Skip.DAMAGED, Skip.CHANGED))
        self._tier.ledger.skipped(why, role)


def _why(failure: Exception) -> Skip:
    if isinstance(failure, RowsChanged):
        return Skip.CHANGED
    return Skip.FULL if isinstance(failure, StorageFull) else Skip.FAILED


def _lines_left_to(chain: PromptChain, older: StoredEntry) -> set[int]:
    """The lines of an older conversation's grid anchors, if one of a chain's tokens replaces it."""
    last = older.blocks[-1] if older.blocks else None
    if older.role is not Role.CONVERSATION or last is None or last.end > chain.length:
        return set()
    if chain.key(last.end) != last.key:
        return set()
    return {anchor.line for anchor in older.anchors if anchor.kind is AnchorKind.GRID}
