"""Making the catalog again from what the objects say about themselves.

Hits and ages are gone. Which rows an anchor stands on is not: it says so by their key and their
content chain, which are the name of the block directly below it, and so does each block in turn.

    rows     0 ....... 8 ....... 16 ....... 21
    blocks   [  one    ][  two   ][  three  ]      of this history
                        [  deux  ][  trois  ]      of another one of the same tokens
    anchors                               end      says: below me is `three`

So two histories of the same tokens are told apart, however much of either is there, and an anchor
is taken up where every row that it was written over is there, to the bit, and not otherwise.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..domain.anchor import AnchorKind
from ..domain.content_chain import NO_ROWS, ContentChain
from ..domain.end import End
from ..domain.entry import EntryId, Role
from ..domain.errors import ObjectCorrupt, ObjectMissing, StorageUnavailable
from ..domain.fingerprint import Fingerprint
from ..domain.grid import Span
from ..domain.namespace import Namespace
from ..domain.object_header import ObjectHeader, ObjectKind
from ..domain.object_name import ObjectIdentity, parse_name
from ..domain.prefix_key import PrefixKey, extend, root_key
from ..domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from ..ports.block_storage import StoredObject
from ..ports.catalog import Catalog
from .entry_ids import entry_id
from .object_store import ObjectStore

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many of how many objects have been looked at."""


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild found and made.

    Attributes:
        objects: that were looked at.
        damaged: of these, those that are not what was written; they were moved aside.
        entries: that the catalog holds now.
        lost: anchors that were read, and whose rows were not, or not all.
        unread: of the objects, those that the medium did not give; they stay where they are, and
            as long as there are any, the catalog is still to be made again.
    """

    objects: int
    damaged: int
    entries: int
    lost: int
    unread: int = 0


def rebuild(
    store: ObjectStore,
    catalog: Catalog,
    now_s: float,
    progress: Progress = lambda done, total: None,
) -> RebuildReport:
    """Make the catalog's entries again from the headers of all objects, of every arithmetic.

    For a store that nobody else uses. Entries that the catalog has, and whose objects are all
    there, stay as they are. Damaged objects are moved aside; no object is deleted. One that the
    medium does not give now may be whole: it is left for the next rebuild, and the catalog goes on
    saying that it needs one, so that nothing is taken for a stray meanwhile.

    Args:
        now_s: on the age clock: when the entries count as made and used.

    Raises:
        StorageError: the medium failed; the rebuild begins again with the next call.
    """
    shelf = _Shelf()
    listed = sorted(store.storage.names(), key=lambda one: one.name)
    progress(0, len(listed))
    for done, stored in enumerate(listed, start=1):
        _look(store, stored, shelf)
        progress(done, len(listed))
    found = [_with_rows(anchor, shelf.objects) for anchor in shelf.anchors]
    grown = [one for one in found if one is not None]
    held = {entry.id: entry for entry in catalog.entries() if _is_whole(entry, shelf)}
    catalog.remove([entry.id for entry in catalog.entries() if entry.id not in held])
    store.sync()
    for entry in _entries(grown, now_s):
        if entry.id not in held:
            catalog.put(entry)
            held[entry.id] = entry
    if not shelf.unread:
        catalog.finish_rebuild()
    return RebuildReport(
        objects=len(listed),
        damaged=shelf.damaged,
        entries=len(held),
        lost=len(found) - len(grown),
        unread=len(shelf.unread),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Object:
    """What is remembered of a header; its ids are hashed by then, since there may be millions.

    Attributes:
        ids: token ids and key ids of the span, hashed.
    """

    name: ObjectName
    nbytes: int
    fingerprint: Fingerprint
    namespace: Namespace
    kind: ObjectKind
    key: PrefixKey
    previous: PrefixKey
    below: ContentChain
    span: Span
    taint: int
    role: Role
    session: str | None
    end: End | None
    ids: bytes

    @property
    def line(self) -> int:
        return self.span.end


@dataclass(slots=True)
class _Shelf:
    """All objects of a store.

    Attributes:
        anchors: those of the objects that are anchors.
        damaged: how many are there whose headers are not what was written.
        unread: bytes of those that the medium did not give.
    """

    objects: dict[ObjectName, _Object] = field(default_factory=dict[ObjectName, _Object])
    anchors: list[_Object] = field(default_factory=list[_Object])
    damaged: int = 0
    unread: dict[ObjectName, int] = field(default_factory=dict[ObjectName, int])

    def nbytes(self, name: ObjectName) -> int | None:
        """What an object takes on the medium; None if it is not there, or damaged."""
        found = self.objects.get(name)
        return self.unread.get(name) if found is None else found.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class _Grown:
    """An anchor with all the rows below it, ascending."""

    anchor: _Object
    blocks: tuple[_Object, ...]

    @property
    def grid(self) -> bool:
        return self.anchor.kind is ObjectKind.GRID


def read_checked_header(store: ObjectStore, stored: StoredObject) -> ObjectHeader:
    """An object's header, its key recomputed from the key below it and the ids in it.

    Raises:
        ObjectCorrupt: it is damaged, or belongs to other tokens or to a longer object.
        ObjectMissing, StorageUnavailable.
    """
    header = store.read_header(stored.name)
    key = extend(header.previous, header.key_ids) if len(header.span) else header.previous
    if key != header.key:
        raise ObjectCorrupt(f"its ids have the key {key.hex()}, and it says {header.key.hex()}")
    if header.object_bytes != stored.nbytes:
        raise ObjectCorrupt(
            f"it says that it has {header.object_bytes} bytes, and {stored.nbytes} are there"
        )
    return header


def _look(store: ObjectStore, stored: StoredObject, shelf: _Shelf) -> None:
    """Take an object up, move it aside, or leave it for another time."""
    if parse_name(stored.name) is None:
        return  # nothing that this program writes
    try:
        header = read_checked_header(store, stored)
    except ObjectMissing:
        return
    except StorageUnavailable:
        shelf.unread[stored.name] = stored.nbytes
        return
    except ObjectCorrupt as error:
        store.storage.quarantine(stored.name, str(error))
        shelf.damaged += 1
        return
    found = _remembered(stored.name, header)
    shelf.objects[found.name] = found
    if found.kind is not ObjectKind.BLOCK:
        shelf.anchors.append(found)


def _remembered(name: ObjectName, header: ObjectHeader) -> _Object:
    return _Object(
        name=name,
        nbytes=header.object_bytes,
        fingerprint=header.fingerprint,
        namespace=header.namespace,
        kind=header.kind,
        key=header.key,
        previous=header.previous,
        below=header.below,
        span=header.span,
        taint=header.taint,
        role=header.role,
        session=header.session,
        end=header.end,
        ids=hashlib.sha256(header.token_ids.tobytes() + header.key_ids.tobytes()).digest(),
    )


def _with_rows(anchor: _Object, objects: Mapping[ObjectName, _Object]) -> _Grown | None:
    """An anchor with the rows that it was written over; None if they are not all there."""
    blocks: list[_Object] = []
    key, below, line = anchor.key, anchor.below, anchor.line
    while line > 0:
        name = ObjectIdentity(anchor.fingerprint, ObjectKind.BLOCK, key, below).name
        block = objects.get(name)
        if block is None or (block.namespace, block.line) != (anchor.namespace, line):
            return None
        blocks.append(block)
        key, below, line = block.previous, block.below, block.span.start
    blocks.reverse()
    whole = (
        blocks
        and (key, below) == (root_key(anchor.namespace), NO_ROWS)
        and (blocks[-1].span, blocks[-1].ids) == (anchor.span, anchor.ids)
    )
    return _Grown(anchor, tuple(blocks)) if whole else None


def _entries(grown: Sequence[_Grown], now_s: float) -> Iterator[StoredEntry]:
    """An entry for each anchor that is the highest of its kind of entry on its chain."""
    ending: dict[ObjectName, list[_Grown]] = defaultdict(list)
    for one in grown:
        ending[one.blocks[-1].name].append(one)
    made: set[EntryId] = set()
    taken: set[tuple[Role, ObjectName]] = set()
    for top in sorted(grown, key=_highest_first):
        role = Role.HEAD if top.anchor.role is Role.HEAD else Role.CONVERSATION
        made_id = entry_id(role, top.anchor.fingerprint, top.anchor.key)
        if (role, top.anchor.name) in taken or made_id in made:
            continue
        made.add(made_id)
        parts = [*_joining(top, ending), top]
        taken.update((role, one.anchor.name) for one in parts)
        yield StoredEntry(
            id=made_id,
            role=role,
            fingerprint=top.anchor.fingerprint,
            blocks=tuple(
                StoredBlock(block.name, block.key, block.line, block.nbytes) for block in top.blocks
            ),
            anchors=tuple(_stored_anchor(one.anchor) for one in parts),
            taint=top.anchor.taint,
            end=top.anchor.end,
            session=top.anchor.session,
            hits=0,
            created_s=now_s,
            last_used_s=now_s,
        )


def _joining(top: _Grown, ending: dict[ObjectName, list[_Grown]]) -> list[_Grown]:
    """The other grid anchors over the very rows of an entry, ascending; one at each line.

    A block's name tells all rows below it, so whatever ends there stands on the same ones. Sections
    of two histories may differ where their rows do not: what is not taken here is another entry's.
    """
    joining: dict[int, _Grown] = {}
    for block in top.blocks:
        for one in ending.get(block.name, ()):
            # What the entry says of its taint must be true of each of its anchors.
            taint = min(top.anchor.taint, one.anchor.line)
            if one is not top and one.grid and one.anchor.taint == taint:
                joining.setdefault(one.anchor.line, one)
    if top.grid:
        joining.pop(top.anchor.line, None)
    return list(joining.values())


def _highest_first(one: _Grown) -> tuple[int, bool, ObjectName]:
    return -one.anchor.line, one.grid, one.anchor.name


def _stored_anchor(anchor: _Object) -> StoredAnchor:
    return StoredAnchor(
        anchor.name, anchor.key, anchor.line, AnchorKind(anchor.kind.value), anchor.nbytes
    )


def _is_whole(entry: StoredEntry, shelf: _Shelf) -> bool:
    """Whether all that an entry needs is there."""
    parts: Iterable[StoredBlock | StoredAnchor] = (*entry.blocks, *entry.anchors)
    return all(shelf.nbytes(part.name) == part.nbytes for part in parts)
