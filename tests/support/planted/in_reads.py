"""Faults of restoring: what is compared, what is checked, what is left in place."""

# pyright: reportPrivateUsage=false
# A fault is planted where it would be made, and that is inside.

from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from anchorline.adapters.memory.checkable_state import CheckableState
from anchorline.application import object_store
from anchorline.application.disk_tier import DiskTier
from anchorline.application.object_store import StoredState
from anchorline.application.resident_prefix import ResidentPrefix
from anchorline.application.restore import Restore
from anchorline.application.slot_anchors import SlotAnchors
from anchorline.domain import prefix_key
from anchorline.domain.anchor import Anchor
from anchorline.domain.entry_remains import without
from anchorline.domain.errors import StorageError
from anchorline.domain.grid import Span
from anchorline.domain.object_header import ObjectHeader
from anchorline.domain.object_name import chain_of
from anchorline.domain.stored_entry import ObjectName, StoredBlock, StoredEntry
from anchorline.domain.sums import Sums, sums_of
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.ports.gpu_state import ByteBuffers

from .patching import Planted, everywhere, failing_reads, replaced, together

SHORT_KEY_BYTES = 1

COST_OF_COLLISIONS = frozenset({"counter", "damage", "durable", "index", "reread"})
"""What collisions cost: state that is taken for damaged, or replaced, or not found; and counts."""


def short_keys() -> AbstractContextManager[None]:
    """Prefix keys of 8 bits: collisions every day, which must cost misses only."""
    return replaced(prefix_key, "KEY_BYTES", SHORT_KEY_BYTES)


def _stored_tokens_not_compared() -> AbstractContextManager[None]:
    def check(self: Restore, name: ObjectName, header: ObjectHeader) -> None:
        if header.below != self._below:
            self._refuse(name, "its rows were written over others than those below it")
        self._below = chain_of(header)
        self._key = header.key
        self._ids.append(token_ids(header.token_ids))
        self._key_ids.append(token_ids(header.key_ids))

    def ends_with(self: Restore, key_ids: TokenIds) -> bool:
        del self, key_ids
        return True

    return together(
        short_keys(),
        replaced(Restore, "_check_tokens", check),
        replaced(Restore, "_ends_with", ends_with),
    )


def _in_place_by_tokens() -> AbstractContextManager[None]:
    def faulty(self: Restore, block: StoredBlock) -> bool:
        if self._expected is None or block.end > self._expected.shared:
            return False
        try:
            header = self._lanes.store.read_header(block.name)
        except StorageError:
            return False
        self._check_tokens(block.name, header)
        self._line = block.end
        return True

    return replaced(Restore, "_in_place", faulty)


def _sums_not_checked() -> AbstractContextManager[None]:
    def check_sums(self: Restore, name: ObjectName, header: object, found: object) -> None:
        del self, name, header, found

    def check_stored(part: object, stored: object, checksum: object) -> None:
        del part, stored, checksum

    return together(
        replaced(Restore, "_check_sums", check_sums),
        replaced(object_store, "check_stored", check_stored),
    )


def _view_not_restored() -> AbstractContextManager[None]:
    def faulty(self: CheckableState, span: Span, buffers: ByteBuffers) -> None:
        for name, data in self._row_bytes(span).items():
            if name != "bits":
                data[:] = buffers[name]

    return replaced(CheckableState, "import_rows", faulty)


def _view_not_restored_and_sums_of_what_was_read() -> AbstractContextManager[None]:
    def faulty(self: Restore, block: StoredBlock, found: StoredState) -> None:
        span = self._span_of(block, found.header)
        if self._layout.views:
            self._target.import_rows(span, found.parts)
            read: dict[str, Sums] = {name: sums_of(np.array(d)) for name, d in found.parts.items()}
            self._check_sums(block.name, found.header, read)
        self._line = block.end

    return together(_view_not_restored(), replaced(Restore, "_import_rows", faulty))


def _anchors_kept_over_an_import() -> AbstractContextManager[None]:
    take = SlotAnchors.take

    def cut_for_import(self: ResidentPrefix, line: int, taint: int) -> None:
        del self, line, taint

    def take_once(self: SlotAnchors, line: int) -> Anchor:
        return self._anchors[line] if line in self else take(self, line)

    return together(
        replaced(ResidentPrefix, "cut_for_import", cut_for_import),
        replaced(SlotAnchors, "take", take_once),
    )


def _damaged_entry_kept() -> AbstractContextManager[None]:
    def faulty(self: DiskTier, name: ObjectName, reason: str) -> None:
        self.counters.quarantined += 1
        self._tolerate(lambda: self._store.storage.quarantine(name, reason))

    return replaced(DiskTier, "distrust", faulty)


def _anchors_kept_above_damage() -> AbstractContextManager[None]:
    def faulty(entry: StoredEntry, name: ObjectName) -> StoredEntry | None:
        blocks = tuple(block for block in entry.blocks if block.name != name)
        anchors = tuple(anchor for anchor in entry.anchors if anchor.name != name)
        ends = any(anchor.kind.value == "end" for anchor in anchors)
        if not anchors or not blocks:
            return None
        end = entry.end if ends else None
        return replace(entry, blocks=blocks, anchors=anchors, end=end)

    return everywhere("without", without, faulty)


FAULTS = (
    Planted(
        "stored tokens not compared",
        "believes the key of a stored block; keys have 8 bits here, so that they collide",
        "application.restore.Restore._check_tokens",
        _stored_tokens_not_compared,
        tolerated=COST_OF_COLLISIONS,
    ),
    Planted(
        "in place by its tokens",
        "takes rows of the same tokens for the same rows",
        "application.restore.Restore._in_place",
        _in_place_by_tokens,
        world=failing_reads,
    ),
    Planted(
        "sums and checksums not checked",
        "trusts the drive",
        "application.restore.Restore._check_sums",
        _sums_not_checked,
    ),
    Planted(
        "view not restored",
        "forgets one view where rows are brought in",
        "adapters.memory.checkable_state.CheckableState.import_rows",
        _view_not_restored,
    ),
    Planted(
        "view not restored, sums of what was read",
        "the same, and holds the sums against the bytes that were read, not where they stand",
        "application.restore.Restore._import_rows",
        _view_not_restored_and_sums_of_what_was_read,
    ),
    Planted(
        "anchors kept over an import",
        "does not drop what stands above the rows that are about to be replaced",
        "application.resident_prefix.ResidentPrefix.cut_for_import",
        _anchors_kept_over_an_import,
    ),
    Planted(
        "damaged entry kept",
        "moves a damaged object aside and leaves its entries in the index",
        "application.disk_tier.DiskTier.distrust",
        _damaged_entry_kept,
    ),
    Planted(
        "anchors kept above damage",
        "takes a damaged block out of an entry, and leaves what stands on it",
        "domain.entry_remains.without",
        _anchors_kept_above_damage,
    ),
)
