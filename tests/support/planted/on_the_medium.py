"""Faults of the store: syncs, deletes, budgets, retention, fingerprints, rebuilds."""

# pyright: reportPrivateUsage=false
# A fault is planted where it would be made, and that is inside.

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.application import rebuild
from anchorline.application.disk_tier import DiskTier
from anchorline.application.object_store import ObjectStore
from anchorline.domain import age_clock
from anchorline.domain.disk_retention import Holding, _Pool
from anchorline.domain.entry import EntryId
from anchorline.domain.entry_succession import with_anchors_of
from anchorline.domain.fingerprint import Fingerprint, fingerprint_of
from anchorline.domain.namespace import Namespace
from anchorline.domain.object_header import ObjectKind
from anchorline.domain.stored_entry import ObjectName, StoredEntry
from anchorline.domain.write_guard import WriteCause, WriteGuard
from anchorline.ports.block_storage import ALIGNMENT, ByteArray
from anchorline.ports.catalog import Catalog

from .patching import (
    Planted,
    damaged,
    everywhere,
    little_written,
    nearly_full,
    replaced,
    rough,
    together,
    two_lives,
    two_lives_without_rows,
)


def _file_not_synced() -> AbstractContextManager[None]:
    write = CrashableStorage._write

    def faulty(
        self: CrashableStorage, name: str, temporary: str, parts: Sequence[ByteArray]
    ) -> None:
        self._forgets = ("sync file",)
        write(self, name, temporary, parts)

    return replaced(CrashableStorage, "_write", faulty)


def _directory_not_synced() -> AbstractContextManager[None]:
    def faulty(self: CrashableStorage) -> None:
        with self._lock:
            for name in list(self._unsynced)[:1]:
                self._sync_directory(name)

    return replaced(CrashableStorage, "sync", faulty)


def _rest_not_counted() -> AbstractContextManager[None]:
    def faulty(self: CrashableStorage) -> int:
        objects = [file for name, file in self._seen.items() if ".tmp-" not in name]
        return sum(-(-len(file.content) // ALIGNMENT) * ALIGNMENT for file in objects)

    return replaced(CrashableStorage, "_used", faulty)


def _budget_ignored() -> AbstractContextManager[None]:
    init = CrashableStorage.__init__

    def make_room(self: DiskTier, role: object, incoming_bytes: int) -> bool:
        del self, role, incoming_bytes
        return True

    def put_anything(self: CrashableStorage, **how: object) -> None:
        init(self, **how)  # type: ignore[arg-type]
        self._bytes_max = 1 << 40

    return together(
        replaced(DiskTier, "make_room", make_room),
        replaced(CrashableStorage, "__init__", put_anything),
    )


def _quarantined_stays() -> AbstractContextManager[None]:
    def faulty(self: CrashableStorage, name: ObjectName, reason: str) -> None:
        del self, name, reason

    return replaced(CrashableStorage, "quarantine", faulty)


def _stale_index() -> AbstractContextManager[None]:
    def faulty(self: DiskTier, entry: StoredEntry) -> bool:
        if not self._tolerate(lambda: self._catalog.remove([entry.id])):
            return False
        self._foreign.pop(entry.id, None)
        for part in (*entry.blocks, *entry.anchors):
            if not self._catalog.unreferenced([part.name]):
                continue
            self._tolerate(lambda name=part.name: self._store.storage.delete(name))
        return True

    return replaced(DiskTier, "_forget", faulty)


def _referenced_deleted() -> AbstractContextManager[None]:
    def faulty(self: DiskTier, objects: set[ObjectName]) -> None:
        for name in sorted(objects):
            if not self._unneeded.is_pinned(name):
                self._tolerate(lambda name=name: self._store.storage.delete(name))

    def orphans(self: DiskTier, entries: Sequence[StoredEntry]) -> None:
        faulty(self, {part.name for entry in entries for part in (*entry.blocks, *entry.anchors)})

    return replaced(DiskTier, "_delete_orphans", orphans)


def _pinned_deleted() -> AbstractContextManager[None]:
    def faulty(self: DiskTier, name: ObjectName) -> int | None:
        return self._index.holds(name)

    return replaced(DiskTier, "pin", faulty)


def _orphans_stay() -> AbstractContextManager[None]:
    def faulty(self: DiskTier, entries: Sequence[StoredEntry]) -> None:
        del self, entries

    return replaced(DiskTier, "_delete_orphans", faulty)


def _namespace_not_in_the_key() -> AbstractContextManager[None]:
    def faulty(self: Namespace) -> bytes:
        return self.kv_scheme.encode()

    return replaced(Namespace, "canonical", faulty)


def _weights_not_in_the_fingerprint() -> AbstractContextManager[None]:
    def faulty(facts: Mapping[str, str]) -> Fingerprint:
        return fingerprint_of({name: fact for name, fact in facts.items() if name != "weights"})

    return everywhere("fingerprint_of", fingerprint_of, faulty)


def _foreign_indexed() -> AbstractContextManager[None]:
    def faulty(self: DiskTier, entry: StoredEntry) -> None:
        self._index.add(entry)

    return replaced(DiskTier, "_take", faulty)


def _newest_first() -> AbstractContextManager[None]:
    order = _Pool.order

    def faulty(self: _Pool, holding: Holding) -> tuple[float, float, EntryId]:
        value, used_s, entry_id = order(self, holding)
        return -used_s, -value, entry_id

    return replaced(_Pool, "order", faulty)


def _age_by_the_wall_clock() -> AbstractContextManager[None]:
    return replaced(age_clock, "GAP_S_MAX", 1e18)


def _guard_ignored() -> AbstractContextManager[None]:
    def faulty(self: WriteGuard, cause: WriteCause, tokens: int, written_today: int) -> bool:
        del self, cause, tokens, written_today
        return True

    return replaced(WriteGuard, "allows", faulty)


def _no_rebuild() -> AbstractContextManager[None]:
    def faulty(
        store: ObjectStore, catalog: Catalog, now_s: float, progress: object = None
    ) -> rebuild.RebuildReport:
        del store, now_s, progress
        catalog.finish_rebuild()
        return rebuild.RebuildReport(objects=0, damaged=0, entries=0, lost=0)

    return everywhere("rebuild", rebuild.rebuild, faulty)


def _rebuilt_by_tokens() -> AbstractContextManager[None]:
    def faulty(
        anchor: rebuild._Object, objects: Mapping[ObjectName, rebuild._Object]
    ) -> rebuild._Grown | None:
        by_key = {one.key: one for one in objects.values() if one.kind is ObjectKind.BLOCK}
        blocks: list[rebuild._Object] = []
        key, line = anchor.key, anchor.line
        while line > 0:
            block = by_key.get(key)
            if block is None or block.line != line or block.namespace != anchor.namespace:
                return None
            blocks.append(block)
            key, line = block.previous, block.span.start
        blocks.reverse()
        return rebuild._Grown(anchor, tuple(blocks)) if blocks else None

    return replaced(rebuild, "_with_rows", faulty)


def _merged_without_taint() -> AbstractContextManager[None]:
    def faulty(entry: StoredEntry, older: Sequence[StoredEntry]) -> StoredEntry:
        return with_anchors_of(entry, [replace(one, taint=entry.taint) for one in older])

    return everywhere("with_anchors_of", with_anchors_of, faulty)


FAULTS = (
    Planted(
        "file not synced",
        "renames a file that is not on the medium yet",
        "adapters.memory.crashable_storage.CrashableStorage._write",
        _file_not_synced,
    ),
    Planted(
        "directory not synced",
        "syncs one directory, and not all in which something was renamed",
        "adapters.memory.crashable_storage.CrashableStorage.sync",
        _directory_not_synced,
    ),
    Planted(
        "temporary and quarantined not counted",
        "counts objects against the budget, and not what stands beside them",
        "adapters.memory.crashable_storage.CrashableStorage._used",
        _rest_not_counted,
        world=nearly_full,
    ),
    Planted(
        "budget ignored during writes",
        "holds the budget at the start only",
        "application.disk_tier.DiskTier.make_room",
        _budget_ignored,
    ),
    Planted(
        "quarantined object trusted",
        "notes that an object is damaged and leaves it under its name: the next save finds it",
        "adapters.memory.crashable_storage.CrashableStorage.quarantine",
        _quarantined_stays,
        world=damaged,
    ),
    Planted(
        "stale index after a delete",
        "removes an entry from the catalog and its objects from the drive, and goes on offering it",
        "application.disk_tier.DiskTier._forget",
        _stale_index,
    ),
    Planted(
        "referenced block deleted",
        "deletes all objects of an entry that leaves",
        "application.disk_tier.DiskTier._delete_orphans",
        _referenced_deleted,
    ),
    Planted(
        "counted-on block deleted",
        "does not keep what a write under way found stored",
        "application.disk_tier.DiskTier.pin",
        _pinned_deleted,
    ),
    Planted(
        "orphans stay",
        "removes entries and leaves their objects to the next start",
        "application.disk_tier.DiskTier._delete_orphans",
        _orphans_stay,
    ),
    Planted(
        "namespace not in the key",
        "hashes the tokens, and not for whom they were read",
        "domain.namespace.Namespace.canonical",
        _namespace_not_in_the_key,
    ),
    Planted(
        "weights not in the fingerprint",
        "leaves an input out of the fingerprint",
        "domain.fingerprint.fingerprint_of",
        _weights_not_in_the_fingerprint,
    ),
    Planted(
        "foreign entries offered",
        "indexes every entry of the catalog, whichever arithmetic made it",
        "application.disk_tier.DiskTier._take",
        _foreign_indexed,
    ),
    Planted(
        "newest conversation first",
        "sorts what has to go by its last use, and takes the wrong end",
        "domain.disk_retention._Pool.order",
        _newest_first,
    ),
    Planted(
        "age by the wall clock",
        "believes a wall clock that jumps by years between two starts",
        "domain.age_clock.GAP_S_MAX",
        _age_by_the_wall_clock,
        world=rough,
    ),
    Planted(
        "write guard ignored",
        "counts the day's bytes and asks nobody",
        "domain.write_guard.WriteGuard.allows",
        _guard_ignored,
        world=little_written,
    ),
    Planted(
        "no rebuild",
        "takes a new catalog for an empty store, and reclaims what no entry needs",
        "application.rebuild.rebuild",
        _no_rebuild,
        world=rough,
    ),
    Planted(
        "rebuilt by tokens",
        "takes any block with the right key for a tainted anchor's own",
        "application.rebuild._with_rows",
        _rebuilt_by_tokens,
        world=two_lives,
    ),
    Planted(
        "merged without the taint",
        "takes anchors over equal rows for equal anchors",
        "domain.entry_succession.with_anchors_of",
        _merged_without_taint,
        world=two_lives_without_rows,
    ),
)
