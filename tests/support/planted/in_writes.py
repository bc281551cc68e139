"""Faults of saving: copies, fences, staging, commits, what a flush says."""

# pyright: reportPrivateUsage=false
# A fault is planted where it would be made, and that is inside.

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MappingProxyType
from weakref import WeakKeyDictionary

from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.application.conversations import Conversations
from anchorline.application.durability import Flush, FlushReport
from anchorline.application.entry_write import EntryWrite, Progress
from anchorline.application.object_parts import PartSpec, payload_bytes
from anchorline.application.outgoing_objects import OutgoingObjects
from anchorline.application.resident_prefix import ResidentPrefix
from anchorline.application.staging import StagingPool
from anchorline.application.write_source import SlotSource
from anchorline.application.writes import Write, Writes
from anchorline.domain.anchor import Anchor
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.entry_succession import with_anchors_of
from anchorline.domain.object_format import place_parts
from anchorline.domain.object_header import ObjectHeader
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.stored_entry import ObjectName, StoredEntry
from anchorline.domain.sums import Sums
from anchorline.domain.write_guard import WriteCause
from anchorline.ports.block_storage import ByteArray
from anchorline.ports.gpu_state import ByteBuffers

from .patching import Planted, everywhere, replaced, together

CHANGES_PER_COMMIT = 8


def _staging_reused() -> AbstractContextManager[None]:
    rings: WeakKeyDictionary[StagingPool, deque[ByteArray]] = WeakKeyDictionary()

    def acquire(self: StagingPool) -> ByteArray | None:
        ring = rings.setdefault(self, deque())
        if len(ring) < self._count_max:
            ring.append(self._allocate(self._nbytes))
        ring.rotate(-1)
        return ring[0]

    def release(self: StagingPool, buffer: ByteArray) -> None:
        """A ring's buffers are free by themselves, one round later."""
        del self, buffer

    return together(
        replaced(StagingPool, "acquire", acquire), replaced(StagingPool, "release", release)
    )


def _staging_not_given_back() -> AbstractContextManager[None]:
    collect = EntryWrite._collect

    def faulty(self: EntryWrite) -> None:
        failed = self.failure is not None
        collect(self)
        if self.failure is not None and not failed:
            self._pool.acquire()  # the one that the failed write had

    return replaced(EntryWrite, "_collect", faulty)


def _no_fence() -> AbstractContextManager[None]:
    def faulty(self: Writes, slot: int, line: int) -> None:
        del line
        for write in self.of_slot(slot):
            write.ready = True

    return replaced(Writes, "fence", faulty)


def _catalog_before_objects() -> AbstractContextManager[None]:
    submit, step = EntryWrite._submit, Writes.step
    early: set[Write] = set()

    def submit_and_guess(
        self: EntryWrite,
        draft: ObjectHeader,
        name: ObjectName,
        buffer: ByteArray,
        checksums: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        specs = [PartSpec(part.name, part.dtype, part.shape) for part in draft.parts]
        payload = payload_bytes(specs)
        self._objects.sizes[name] = max(place_parts(draft).object_bytes, payload)
        submit(self, draft, name, buffer, checksums)

    def commit_copied(self: Writes, *, ahead: bool = True) -> Progress:
        for write in self._writes:
            work = write.work
            objects = work._objects
            if work.copied and objects._pending and work.failure is None and write not in early:
                early.add(write)
                pending, objects._pending = objects._pending, []
                synced, objects._synced = objects._synced, objects._submitted
                self._settle(write)
                objects._pending, objects._synced = pending, synced
        return step(self, ahead=ahead)

    return together(
        replaced(EntryWrite, "_submit", submit_and_guess), replaced(Writes, "step", commit_copied)
    )


def _catalog_before_the_sync() -> AbstractContextManager[None]:
    def submitted(self: OutgoingObjects) -> None:
        self._submit(self._medium.store.sync)
        self._synced = self._submitted

    return replaced(OutgoingObjects, "sync", submitted)


def _transaction_left_open() -> AbstractContextManager[None]:
    put, restart = MemoryCatalog.put, MemoryCatalog.restart
    changes: WeakKeyDictionary[MemoryCatalog, int] = WeakKeyDictionary()
    committed: WeakKeyDictionary[MemoryCatalog, dict[EntryId, StoredEntry]] = WeakKeyDictionary()

    def faulty_put(
        self: MemoryCatalog, entry: StoredEntry, replaces: Iterable[EntryId] = ()
    ) -> None:
        committed.setdefault(self, dict(self._entries))
        put(self, entry, replaces)
        changes[self] = changes.get(self, 0) + 1
        if changes[self] % CHANGES_PER_COMMIT == 0:
            committed[self] = dict(self._entries)

    def faulty_restart(self: MemoryCatalog) -> MemoryCatalog:
        fresh = restart(self)
        fresh._entries = dict(committed.get(self, fresh._entries))
        return fresh

    return together(
        replaced(MemoryCatalog, "put", faulty_put),
        replaced(MemoryCatalog, "restart", faulty_restart),
    )


def _flush_before_commit() -> AbstractContextManager[None]:
    report = Flush._report

    def step(self: Flush) -> bool:
        self._save_idle()
        if self._waiting:
            return False
        self._answer(self._report())
        return True

    def faulty(self: Flush) -> FlushReport:
        told = report(self)
        # Of what is under way the best is taken for granted.
        missing = 0 if told.pending else told.missing
        durable = not (told.failed or told.dropped or missing)
        return replace(told, pending=0, missing=missing, durable=durable)

    return together(replaced(Flush, "step", step), replaced(Flush, "_report", faulty))


def _newest_end_not_saved() -> AbstractContextManager[None]:
    is_dirty = Conversations.is_dirty

    def faulty(self: Conversations, resident: ResidentPrefix) -> bool:
        line = max((anchor.line for anchor in resident.anchors), default=0)
        if line == 0:
            return is_dirty(self, resident)
        chain = PromptChain(resident.key_ids[:line].copy(), resident.namespace, self._grid)
        stored = self._tier.index.continuations(chain, line)
        saved = any(
            found.line == line and found.entry.role is Role.CONVERSATION for found in stored
        )
        return not saved and is_dirty(self, resident)

    return replaced(Conversations, "is_dirty", faulty)


Save = Callable[[Conversations, int, ResidentPrefix, str | None, WriteCause], Write | None]


def _saved_by_reference() -> AbstractContextManager[None]:
    save: Save = Conversations.save

    def faulty(
        self: Conversations,
        slot: int,
        resident: ResidentPrefix,
        session: str | None,
        cause: WriteCause,
    ) -> Write | None:
        write = save(self, slot, resident, session, cause)
        if write is not None:
            snapshot = write.work.snapshot
            line = len(snapshot.ids)
            ids, key_ids = resident.ids[:line], resident.key_ids[:line]
            write.work.snapshot = replace(snapshot, ids=ids, key_ids=key_ids)
            write.work.chain = PromptChain(key_ids, snapshot.namespace, self._grid)
        return write

    return replaced(Conversations, "save", faulty)


def _saved_as_clean() -> AbstractContextManager[None]:
    save: Save = Conversations.save

    def faulty(
        self: Conversations,
        slot: int,
        resident: ResidentPrefix,
        session: str | None,
        cause: WriteCause,
    ) -> Write | None:
        write = save(self, slot, resident, session, cause)
        if write is not None:
            snapshot = write.work.snapshot
            write.work.snapshot = replace(snapshot, taint=len(snapshot.ids))
        return write

    return replaced(Conversations, "save", faulty)


def _sections_in_place_saved() -> AbstractContextManager[None]:
    def sums(self: SlotSource, anchor: Anchor) -> Mapping[str, Sums]:
        del anchor
        return self.state.section_sums()

    def export(self: SlotSource, anchor: Anchor, buffers: ByteBuffers) -> None:
        del anchor
        self.state.export_sections(buffers)

    return together(
        replaced(SlotSource, "section_sums", sums),
        replaced(SlotSource, "export_sections", export),
    )


def _end_lost_when_merged() -> AbstractContextManager[None]:
    def faulty(entry: StoredEntry, older: Sequence[StoredEntry]) -> StoredEntry:
        merged = with_anchors_of(entry, older)
        if not older:
            return merged
        # The newest four of all anchors, by line: an end has no place of its own among them.
        kept = [anchor for anchor in merged.anchors if anchor.kind.value == "grid"]
        return replace(merged, anchors=tuple(kept), end=None) if kept else merged

    return everywhere("with_anchors_of", with_anchors_of, faulty)


FAULTS = (
    Planted(
        "staging buffer reused",
        "takes buffers from a ring and never asks whether the write before has ended",
        "application.staging.StagingPool.acquire",
        _staging_reused,
    ),
    Planted(
        "staging buffer not given back",
        "releases the buffer where a write succeeds, and not where it fails",
        "application.entry_write.EntryWrite._collect",
        _staging_not_given_back,
    ),
    Planted(
        "no fence",
        "lets a save go on copying while the next prefill overwrites the rows",
        "application.writes.Writes.fence",
        _no_fence,
    ),
    Planted(
        "catalog before objects",
        "commits an entry once its rows are copied out",
        "application.writes.Writes.step",
        _catalog_before_objects,
    ),
    Planted(
        "catalog before the sync",
        "commits an entry once its objects are written, and does not wait until they are synced",
        "application.outgoing_objects.OutgoingObjects.sync",
        _catalog_before_the_sync,
    ),
    Planted(
        "transaction left open",
        "commits the catalog once for every eight changes",
        "adapters.memory.memory_catalog.MemoryCatalog.put",
        _transaction_left_open,
    ),
    Planted(
        "flush before the commit",
        "answers a flush when everything is under way",
        "application.durability.Flush.step",
        _flush_before_commit,
    ),
    Planted(
        "newest end not saved",
        "takes a conversation whose grid anchors are stored for saved",
        "application.conversations.Conversations.is_dirty",
        _newest_end_not_saved,
    ),
    Planted(
        "end lost when merged",
        "keeps the newest grid anchors of both when an entry replaces another",
        "domain.entry_succession.with_anchors_of",
        _end_lost_when_merged,
    ),
    Planted(
        "saved by reference",
        "hands the slot's own ids to a save that goes on behind it",
        "application.conversations.Conversations.save",
        _saved_by_reference,
    ),
    Planted(
        "saved as clean",
        "writes down the length of a conversation as its taint line",
        "application.conversations.Conversations.save",
        _saved_as_clean,
    ),
    Planted(
        "sections in place saved",
        "saves every anchor from what stands in the slot, without bringing its copy in",
        "application.write_source.SlotSource.export_sections",
        _sections_in_place_saved,
    ),
)
