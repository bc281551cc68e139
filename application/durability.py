"""Durability: what a flush does, and what it may honestly say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ..domain.entry import EntryId, Role
from ..domain.namespace import Namespace
from ..domain.prompt_chain import PromptChain
from ..domain.stored_entry import StoredEntry
from ..domain.tokens import TokenIds
from ..domain.write_guard import WriteCause
from .conversations import NO_SLOT
from .disk_service import DiskService
from .entry_ids import entry_id
from .ram_entry import RamEntry
from .ram_tier import RamTier
from .writes import Write

if TYPE_CHECKING:
    from .slots import Slot

TURNS_MAX: Final = 4
"""How often a flush saves a slot whose conversation goes on before it has been copied."""


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What a flush found and did.

    Attributes:
        durable: every conversation that could be resumed when it was asked is on the medium now,
            or a longer one that took its place; nothing pending, failed, dropped or missing.
        tier: whether there is a disk tier at all.
        saved: conversations it has waited for that were committed.
        pending: writes it has waited for that were not finished.
        failed: those that failed.
        dropped: objects of those conversations whose bytes were overwritten before they were
            copied.
        missing: conversations that are not on the medium. For one that still stands in a slot none
            that took its place there counts.
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


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A conversation that must be on the medium.

    Attributes:
        line: the highest it can be resumed at.
        ends: whether a generation ended there.
    """

    id: EntryId
    line: int
    ends: bool

    def is_in(self, stored: StoredEntry | None) -> bool:
        """Whether an entry has it: that of its very tokens, or of one that took its place."""
        # Damage may have cut it back to a lower line.
        if stored is None or stored.anchors[-1].line < self.line:
            return False
        return stored.id != self.id or stored.end is not None or not self.ends


@dataclass(slots=True, eq=False)
class _Awaited:
    """A write that the flush waits for.

    Attributes:
        dropped_before: objects that it had given up before it was waited for.
        settled: whether it has ended.
        failed: whether it should have come to an entry then, and did not.
        came_to: the conversation that it was committed as.
    """

    write: Write
    dropped_before: int
    settled: bool = False
    failed: bool = False
    came_to: _Wanted | None = None

    @property
    def dropped(self) -> int:
        """Objects given up since then; of a head none: it holds nobody's state alone."""
        work = self.write.work
        is_head = work.snapshot.role is Role.HEAD
        return 0 if is_head else work.dropped - self.dropped_before


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """What a slot held when it was saved.

    Attributes:
        keys: all tokens up to the line, as caches compare them.
        used: of the slot; another number is another request.
        save: None if it was stored, or might not be written.
        number: how often the slot was saved, this time included.
    """

    wanted: _Wanted
    keys: TokenIds
    namespace: Namespace
    slot: "Slot"
    used: int
    save: _Awaited | None
    number: int

    @property
    def stands(self) -> bool:
        """Whether nobody has used the slot since."""
        return self.slot.idle and self.slot.used == self.used

    @property
    def goes_on(self) -> bool:
        """Whether the slot holds it still, or a continuation."""
        resident, line = self.slot.resident, self.wanted.line
        return (
            resident.highest >= line
            and resident.namespace == self.namespace
            and np.array_equal(resident.key_ids[:line], self.keys)
        )

    @property
    def was_cut(self) -> bool:
        """Whether a request took rows or sections before they were copied, and once more helps."""
        save = self.save
        return save is not None and save.settled and save.dropped > 0 and self.number < TURNS_MAX


class Flush:
    """One flush under way, stepped by the scheduler until it can answer.

    It answers for what could be resumed when it was asked: what stands in idle slots, what busy
    ones hold once their requests have ended, and what is being written. For writes that begin later
    it does not wait: in traffic there is always one more of them. Where the next turn of a
    conversation comes while that is being saved, it is saved again after that turn.
    """

    def __init__(
        self,
        disk: DiskService,
        slots: "Sequence[Slot]",
        answer: Callable[[FlushReport], None],
        ram: RamTier | None = None,
    ) -> None:
        """Begins to save what is idle: by the next step a request may have taken the slot."""
        self._disk = disk
        self._slots = slots
        self._ram = ram
        self._kept: dict[EntryId, _Wanted] = {}
        self._waiting = {slot.index for slot in slots}
        self._answer = answer
        self._turns: dict[int, _Turn] = {}
        self._awaited: list[_Awaited] = []
        for index in (NO_SLOT, *self._waiting):
            for write in disk.writes.of_slot(index):
                self._await(write)
        for entry in () if ram is None else ram.entries:
            self._save_kept(entry)
        self._save_idle()

    def step(self) -> bool:
        """Save the slots that are idle by now; True once the answer was given."""
        for awaited in self._awaited:
            if not awaited.settled and not self._disk.writes.is_pending(awaited.write):
                self._settle(awaited)
        self._waiting |= {index for index, turn in self._turns.items() if turn.was_cut}
        self._save_idle()
        if self._waiting or self._pending:
            return False
        self._answer(self._report())
        return True

    @property
    def _pending(self) -> int:
        return sum(not awaited.settled for awaited in self._awaited)

    def _save_idle(self) -> None:
        for slot in self._slots:
            if slot.index in self._waiting and slot.idle:
                self._waiting.discard(slot.index)
                self._save(slot)

    def _save(self, slot: "Slot") -> None:
        """Save what stands in a slot; once more only where it goes on with what was cut."""
        before, resident = self._turns.get(slot.index), slot.resident
        if before is not None and before.save is not None:
            kept = None if before.goes_on else self._kept_as(before)
            if kept is not None:
                # Another has the slot now, and memory has what stood there.
                self._awaited.remove(before.save)
                del self._turns[slot.index]
                self._save_kept(kept)
                return
            if not before.goes_on:
                # It is lost. Its slot is another's, who was not there when the flush was asked.
                self._turns[slot.index] = replace(before, number=TURNS_MAX)
                return
            self._awaited.remove(before.save)
        line = resident.highest
        if line == 0:
            return
        keys, tier = resident.key_ids[:line].copy(), self._disk.tier
        key = PromptChain(keys, resident.namespace, tier.profile.grid).key(line)
        own = entry_id(Role.CONVERSATION, tier.fingerprint, key)
        wanted = _Wanted(own, line, ends=resident.lasting.end is not None)
        write = self._disk.conversations.save(slot.index, resident, slot.session, WriteCause.STOP)
        self._turns[slot.index] = _Turn(
            wanted,
            keys,
            resident.namespace,
            slot,
            slot.used,
            None if write is None else self._await(write),
            1 if before is None else before.number + 1,
        )

    def _save_kept(self, entry: RamEntry) -> None:
        """Save what memory keeps."""
        tier = self._disk.tier
        dirty = self._disk.conversations.is_dirty_entry(entry)
        if not dirty and entry.stored is not None and tier.index.entry(entry.stored) is not None:
            # It was read from there, and is a part of what stands there.
            self._kept[entry.stored] = _Wanted(entry.stored, entry.line, ends=False)
            return
        ends = entry.state.lasting(tier.profile.grid).end is not None
        own = entry_id(Role.CONVERSATION, tier.fingerprint, entry.chain.key(entry.line))
        self._kept[own] = _Wanted(own, entry.line, ends)
        write = self._disk.conversations.save_entry(entry, WriteCause.STOP)
        if write is not None:
            self._await(write)

    def _kept_as(self, turn: _Turn) -> RamEntry | None:
        """The entry in memory that has what stood in a slot, or a continuation."""
        line = turn.wanted.line
        for entry in () if self._ram is None else self._ram.entries:
            same = entry.namespace == turn.namespace and entry.line >= line
            if same and np.array_equal(entry.state.key_ids[:line], turn.keys):
                return entry
        return None

    def _await(self, write: Write) -> _Awaited:
        for awaited in self._awaited:
            if awaited.write is write:
                return awaited
        self._awaited.append(_Awaited(write, write.work.dropped))
        return self._awaited[-1]

    def _settle(self, awaited: _Awaited) -> None:
        """A write has ended since the last step: what it came to must be on the medium."""
        work, tier = awaited.write.work, self._disk.tier
        awaited.settled, awaited.failed = True, work.failure is not None
        anchors = () if awaited.failed else work.contents()[1]
        if not anchors:
            return  # all of it was given up
        snapshot, line = work.snapshot, anchors[-1].line
        ends = snapshot.end is not None and snapshot.end.line == line
        own = entry_id(snapshot.role, snapshot.fingerprint, anchors[-1].key)
        came_to = _Wanted(own, line, ends)
        awaited.failed = not came_to.is_in(tier.index.entry(tier.heirs.of(own)))
        if snapshot.role is Role.CONVERSATION and not awaited.failed:
            awaited.came_to = came_to

    def _report(self) -> FlushReport:
        pending, failed = self._pending, sum(awaited.failed for awaited in self._awaited)
        dropped = sum(awaited.dropped for awaited in self._awaited)
        missing, entries = len(self._missing()), self._disk.tier.index.entries()
        return FlushReport(
            durable=not (pending or failed or dropped or missing),
            tier=True,
            saved=sum(awaited.came_to is not None for awaited in self._awaited),
            pending=pending,
            failed=failed,
            dropped=dropped,
            missing=missing,
            entries=len(entries),
            longest=max((entry.anchors[-1].line for entry in entries if entry.anchors), default=0),
        )

    def _missing(self) -> set[EntryId]:
        """What is wanted, and is not on the medium now, whatever it was before."""
        index, heirs = self._disk.tier.index, self._disk.tier.heirs
        missing = {
            own for own, one in self._kept.items() if not one.is_in(index.entry(heirs.of(own)))
        }
        for turn in self._turns.values():
            own = turn.wanted.id
            if not turn.wanted.is_in(index.entry(own if turn.stands else heirs.of(own))):
                missing.add(own)
        for awaited in self._awaited:
            came_to = awaited.came_to
            if came_to is not None and not came_to.is_in(index.entry(heirs.of(came_to.id))):
                missing.add(came_to.id)
        return missing
