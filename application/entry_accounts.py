"""What each stored entry comes to: for retention, which weighs them, and for whoever asks."""

from collections.abc import Container, Iterable

from ..domain.disk_index import DiskIndex, objects_of
from ..domain.disk_retention import Holding
from ..domain.entry import EntryId, Tier
from ..domain.stored_entry import ObjectName, StoredEntry
from ..domain.taint_line import TaintLine
from .stats import EntryStats


def holdings(
    entries: Iterable[StoredEntry], index: DiskIndex, in_use: Container[EntryId]
) -> list[Holding]:
    """What retention knows of each entry.

    Args:
        index: of the running arithmetic; an entry that is not in it is another's.
    """
    return [
        Holding(
            id=entry.id,
            role=entry.role,
            tokens=max((anchor.line for anchor in entry.anchors), default=0),
            alone_bytes=_alone_bytes(entry, index),
            hits=entry.hits,
            created_s=entry.created_s,
            last_used_s=entry.last_used_s,
            foreign=_is_foreign(entry, index),
            in_use=entry.id in in_use,
            objects=objects_of(entry),
        )
        for entry in entries
    ]


def entry_stats(
    entries: Iterable[StoredEntry], index: DiskIndex, now_s: float, *, row_invariant: bool
) -> list[EntryStats]:
    """The figures of every entry that can be resumed; see `holdings`."""
    return [
        EntryStats(
            id=entry.id,
            role=entry.role.value,
            tier=Tier.DISK.value,
            tokens=entry.anchors[-1].line,
            bytes_alone=_alone_bytes(entry, index),
            bytes_all=sum(objects_of(entry).values()),
            hits=entry.hits,
            age_s=max(now_s - entry.last_used_s, 0.0),
            gate=TaintLine(entry.taint)
            .gate(entry.anchors[-1].line, entry.anchors[-1].kind, row_invariant)
            .value,
            session=entry.session,
            foreign=_is_foreign(entry, index),
        )
        for entry in entries
        if entry.anchors
    ]


def bytes_together(entries: Iterable[StoredEntry]) -> int:
    """Bytes that entries take on the medium, each object once: they share the blocks of a head."""
    objects: dict[ObjectName, int] = {}
    for entry in entries:
        objects.update(objects_of(entry))
    return sum(objects.values())


def _is_foreign(entry: StoredEntry, index: DiskIndex) -> bool:
    return index.entry(entry.id) is None


def _alone_bytes(entry: StoredEntry, index: DiskIndex) -> int:
    """Bytes that only this entry needs, with its share of others'; foreign ones are not shared."""
    if _is_foreign(entry, index):
        return sum(part.nbytes for part in (*entry.blocks, *entry.anchors))
    return index.held_alone(entry)
