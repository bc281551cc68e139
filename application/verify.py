"""Going over a whole store, offline: every byte of every object, and every entry.

What a running server checks when it reads an object is checked here of all of them, at once, and
with the content sums recomputed over the raw bytes. Temporary files are not looked at: a storage
deletes them when it is opened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeAlias

from ..domain.content_chain import NO_ROWS, ContentChain
from ..domain.entry_remains import cut_back
from ..domain.errors import ObjectCorrupt, ObjectMissing, StorageUnavailable
from ..domain.fingerprint import Fingerprint
from ..domain.grid import Span
from ..domain.namespace import Namespace
from ..domain.object_header import LINE_BYTES, ObjectHeader, ObjectKind
from ..domain.object_name import chain_of, parse_name
from ..domain.prefix_key import PrefixKey, root_key
from ..domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from ..domain.sums import sums_of
from ..ports.block_storage import ByteArray, StoredObject
from ..ports.catalog import Catalog
from .object_store import ObjectStore
from .rebuild import RebuildReport, read_checked_header, rebuild

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many of how many objects have been looked at."""

NAMES_MAX: Final = 100
"""How many damaged objects a report names."""


@dataclass(frozen=True, slots=True)
class Damage:
    """An object that cannot be used, and why."""

    name: ObjectName
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a walk over a store found, and did about it.

    Attributes:
        objects: that are there; `nbytes` is what they take on the medium.
        damaged: of these, those that cannot be used.
        damage: the first `NAMES_MAX` of them.
        missing: objects that entries need and that are not there.
        entries: that were in the catalog.
        broken: of these, those that cannot be resumed as they say.
        orphans: whole objects that no entry needs: a crash leaves them, and a start deletes them.
        strange: names that are none of this program's; they are left alone.
        needs_rebuild: the catalog was lost: entries may be missing, and nothing is an orphan yet.
        repaired: whether the rest was done at all, and not only found.
        shortened: entries that still offer what lies below the damage.
        dropped: entries of which nothing was left.
        deleted: orphans that are gone.
        rebuilt: what became of a lost catalog.
    """

    objects: int
    nbytes: int
    damaged: int
    damage: tuple[Damage, ...]
    missing: int
    entries: int
    broken: int
    orphans: int
    orphan_bytes: int
    strange: int
    needs_rebuild: bool
    repaired: bool = False
    shortened: int = 0
    dropped: int = 0
    deleted: int = 0
    rebuilt: RebuildReport | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing was damaged, before any repair."""
        lost = self.needs_rebuild and self.objects > 0
        return not (self.damaged or self.missing or self.broken or lost)


def verify(
    store: ObjectStore,
    catalog: Catalog,
    *,
    repair: bool = False,
    progress: Progress = lambda done, total: None,
) -> VerifyReport:
    """Read everything, and hold it against what it says of itself; for a store nobody else uses.

    Args:
        repair: move damaged objects aside, make a lost catalog again, cut entries back to what can
            be resumed, and delete orphans.

    Raises:
        StorageError: the medium failed.
    """
    walk = _Walk(store, progress)
    walk.run()
    needs_rebuild = catalog.needs_rebuild
    checked = [_checked(entry, walk) for entry in catalog.entries()]
    orphans = [] if needs_rebuild else _orphans(catalog, walk)
    report = VerifyReport(
        objects=walk.objects,
        nbytes=walk.nbytes,
        damaged=len(walk.bad),
        damage=tuple(Damage(*one) for one in islice(walk.bad.items(), NAMES_MAX)),
        missing=len({name for one in checked for name in one.missing}),
        entries=len(checked),
        broken=sum(one.rest != one.entry for one in checked),
        orphans=len(orphans),
        orphan_bytes=sum(walk.whole[name].nbytes for name in orphans),
        strange=walk.strange,
        needs_rebuild=needs_rebuild,
    )
    return _repaired(store, catalog, walk, checked, report) if repair else report


@dataclass(frozen=True, slots=True)
class _Whole:
    """What is remembered of an object whose every byte was right."""

    nbytes: int
    fingerprint: Fingerprint
    namespace: Namespace
    kind: ObjectKind
    key: PrefixKey
    previous: PrefixKey
    below: ContentChain
    chain: ContentChain
    span: Span

    def holds(
        self,
        kind: ObjectKind,
        part: StoredBlock | StoredAnchor,
        entry: StoredEntry,
        first: "_Whole | None",
    ) -> bool:
        """Whether it is what an entry says it is; of the namespace of its first block."""
        return (
            (self.kind, self.key, self.nbytes) == (kind, part.key, part.nbytes)
            and self.fingerprint == entry.fingerprint
            and first is not None
            and self.namespace == first.namespace
        )


@dataclass(slots=True)
class _Walk:
    """All objects of a store, read one after the other."""

    store: ObjectStore
    progress: Progress
    objects: int = 0
    nbytes: int = 0
    strange: int = 0
    bad: dict[ObjectName, str] = field(default_factory=dict[ObjectName, str])
    whole: dict[ObjectName, _Whole] = field(default_factory=dict[ObjectName, _Whole])

    def run(self) -> None:
        storage = self.store.storage
        listed = sorted(storage.names(), key=lambda one: one.name)
        staging = storage.buffer(LINE_BYTES)
        self.progress(0, len(listed))
        for done, stored in enumerate(listed, start=1):
            self.objects += 1
            self.nbytes += stored.nbytes
            if parse_name(stored.name) is None:
                self.strange += 1
            else:
                staging = self._look(stored, staging)
            self.progress(done, len(listed))

    def _look(self, stored: StoredObject, staging: ByteArray) -> ByteArray:
        """Read an object whole; the buffer it was read into, a larger one if need be."""
        try:
            header = read_checked_header(self.store, stored)
            if len(staging) < stored.nbytes:
                staging = self.store.storage.buffer(stored.nbytes)
            parts = self.store.read(stored.name, stored.nbytes, staging).parts
            _check_sums(header, parts)
        except ObjectMissing:
            pass  # it is missing then, and whoever needs it says so
        except (ObjectCorrupt, StorageUnavailable) as error:
            self.bad[stored.name] = str(error)
        else:
            self.whole[stored.name] = _Whole(
                nbytes=stored.nbytes,
                fingerprint=header.fingerprint,
                namespace=header.namespace,
                kind=header.kind,
                key=header.key,
                previous=header.previous,
                below=header.below,
                chain=chain_of(header),
                span=header.span,
            )
        return staging


def _check_sums(header: ObjectHeader, parts: Mapping[str, ByteArray]) -> None:
    """Recompute the content sums, over the raw bytes.

    Raises:
        ObjectCorrupt: they are not those that the object is named by.
    """
    for part in header.parts:
        if sums_of(parts[part.name]) != part.sums:
            raise ObjectCorrupt(f"part {part.name} has other sums than when it was written")


@dataclass(frozen=True, slots=True)
class _Checked:
    """An entry, and what of it can be resumed; None if nothing can."""

    entry: StoredEntry
    rest: StoredEntry | None
    missing: frozenset[ObjectName]


def _checked(entry: StoredEntry, walk: _Walk) -> _Checked:
    """Hold an entry against the objects: the chains of its blocks, and its anchors on them."""
    there = walk.whole
    reached: dict[int, tuple[PrefixKey, ContentChain]] = {}
    first = there.get(entry.blocks[0].name) if entry.blocks else None
    line, key, chain = 0, root_key(first.namespace) if first else None, NO_ROWS
    for block in entry.blocks:
        found = there.get(block.name)
        if (
            found is None
            or not found.holds(ObjectKind.BLOCK, block, entry, first)
            or (found.span, found.previous, found.below) != (Span(line, block.end), key, chain)
        ):
            break
        line, key, chain = block.end, block.key, found.chain
        reached[line] = block.key, chain
    anchors: list[StoredAnchor] = []
    for anchor in entry.anchors:
        found = there.get(anchor.name)
        if (
            found is not None
            and found.holds(ObjectKind.of_anchor(anchor.kind), anchor, entry, first)
            and found.span.end == anchor.line
            and reached.get(anchor.line) == (anchor.key, found.below)
        ):
            anchors.append(anchor)
    complete = len(reached) == len(entry.blocks) and len(anchors) == len(entry.anchors) > 0
    names = {part.name for part in (*entry.blocks, *entry.anchors)}
    return _Checked(
        entry,
        entry if complete else cut_back(entry, anchors),
        frozenset(names - there.keys() - walk.bad.keys()),
    )


def _orphans(catalog: Catalog, walk: _Walk) -> list[ObjectName]:
    """The whole objects that no entry needs."""
    return sorted(catalog.unreferenced(walk.whole))


def _repaired(
    store: ObjectStore,
    catalog: Catalog,
    walk: _Walk,
    checked: Sequence[_Checked],
    report: VerifyReport,
) -> VerifyReport:
    """Do what a report asks for. Entries let go of objects before these leave."""
    short = [one.rest for one in checked if one.rest is not None and one.rest != one.entry]
    dropped = [one.entry.id for one in checked if one.rest is None]
    for rest in short:
        catalog.put(rest)
    catalog.remove(dropped)
    for name, reason in walk.bad.items():
        store.storage.quarantine(name, reason)
    rebuilt = None
    if report.needs_rebuild:
        mark = catalog.age_mark()
        rebuilt = rebuild(store, catalog, 0.0 if mark is None else mark.age_s)
    # A rebuild that could not read everything leaves entries out: nothing is known to be an orphan.
    deleted = [] if catalog.needs_rebuild else _orphans(catalog, walk)
    for name in deleted:
        store.storage.delete(name)
    return replace(
        report,
        repaired=True,
        shortened=len(short),
        dropped=len(dropped),
        deleted=len(deleted),
        rebuilt=rebuilt,
    )
