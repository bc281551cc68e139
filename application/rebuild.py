"""Making the catalog again from what the objects say about themselves.

Hits and ages are gone, and so is the knowledge which rows were written together with which anchor.
That matters where rows are tainted: two histories of the same tokens have blocks with the same
keys and other bytes, and a state is exact only over the rows of its own history.

    rows     0 ............ taint ............ line
    blocks   clean          of this very history
             all are alike  only where nothing else has the key, and a short block ends them

So an anchor is taken up where each block below it is beyond doubt, and else counted: a cache in
doubt misses. What is lost so are grid anchors above the taint line, and ends on a grid line.
"""

import enum
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..domain.anchor import AnchorKind
from ..domain.end import End
from ..domain.entry import EntryId, Role
from ..domain.errors import ObjectCorrupt, ObjectMissing, StorageUnavailable
from ..domain.fingerprint import Fingerprint
from ..domain.grid import Span
from ..domain.namespace import Namespace
from ..domain.object_header import ObjectHeader, ObjectKind
from ..domain.object_name import parse_name
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
        damaged: of these, those that cannot be read; they were moved aside.
        entries: that the catalog holds now.
        lost: anchors that are there, and whose rows are not, or not all.
        ambiguous: anchors of which it cannot be told which rows are theirs.
    """

    objects: int
    damaged: int
    entries: int
    lost: int
    ambiguous: int


def rebuild(
    store: ObjectStore,
    catalog: Catalog,
    now_s: float,
    progress: Progress = lambda done, total: None,
) -> RebuildReport:
    """Make the catalog's entries again from the headers of all objects, of every arithmetic.

    For a store that nobody else uses. Entries that the catalog has, and whose objects are all
    there, stay as they are. Damaged objects are moved aside; no object is deleted.

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
    found = [_with_rows(anchor, shelf) for anchor in shelf.anchors]
    grown = [one for one in found if isinstance(one, _Grown)]
    held = {entry.id: entry for entry in catalog.entries() if _is_whole(entry, shelf)}
    catalog.remove([entry.id for entry in catalog.entries() if entry.id not in held])
    for entry in _entries(grown, now_s):
        if entry.id not in held:
            catalog.put(entry)
            held[entry.id] = entry
    catalog.finish_rebuild()
    return RebuildReport(
        objects=len(listed),
        damaged=shelf.unread.total(),
        entries=len(held),
        lost=sum(one is _Doubt.INCOMPLETE for one in found),
        ambiguous=sum(one is _Doubt.AMBIGUOUS for one in found),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Object:
    """What is remembered of a header; its ids are hashed by then, since there may be millions.

    Attributes:
        ids: token ids and key ids of the span, hashed.
        empty: it has no bytes: it only names tokens, and is right for every history of them.
    """

    name: ObjectName
    nbytes: int
    fingerprint: Fingerprint
    namespace: Namespace
    kind: ObjectKind
    key: PrefixKey
    previous: PrefixKey
    span: Span
    taint: int
    role: Role
    session: str | None
    end: End | None
    ids: bytes
    empty: bool

    @property
    def line(self) -> int:
        return self.span.end

    @property
    def clean(self) -> bool:
        """Whether a cold grid prefill wrote all of it, and all below it."""
        return self.taint == self.line


_Place: TypeAlias = tuple[Fingerprint, ObjectKind, PrefixKey]


@dataclass(slots=True)
class _Shelf:
    """All objects of a store.

    Attributes:
        unread: places of objects that are there and whose headers cannot be read.
    """

    at: dict[_Place, list[_Object]] = field(
        default_factory=lambda: defaultdict[_Place, list[_Object]](list)
    )
    anchors: list[_Object] = field(default_factory=list[_Object])
    sizes: dict[ObjectName, int] = field(default_factory=dict[ObjectName, int])
    unread: Counter[_Place] = field(default_factory=Counter[_Place])

    def others(self, one: _Object) -> int:
        """How many objects besides this one have its place, those that cannot be read included."""
        place = (one.fingerprint, one.kind, one.key)
        return len(self.at[place]) - 1 + self.unread[place]


@dataclass(frozen=True, slots=True, eq=False)
class _Grown:
    """An anchor with all the rows below it, ascending."""

    anchor: _Object
    blocks: tuple[_Object, ...]

    @property
    def grid(self) -> bool:
        return self.anchor.kind is ObjectKind.GRID


class _Doubt(enum.Enum):
    """Why an anchor is not taken up."""

    INCOMPLETE = "incomplete"
    AMBIGUOUS = "ambiguous"


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
    """Take an object up, or move it aside."""
    identity = parse_name(stored.name)
    if identity is None:
        return  # nothing that this program writes
    try:
        header = read_checked_header(store, stored)
    except ObjectMissing:
        return
    except (ObjectCorrupt, StorageUnavailable) as error:
        # Where the medium has failed altogether, this raises, and nothing is concluded.
        store.storage.quarantine(stored.name, str(error))
        shelf.unread[identity.fingerprint, identity.kind, identity.key] += 1
        return
    found = _remembered(stored.name, header)
    shelf.at[identity.fingerprint, identity.kind, identity.key].append(found)
    shelf.sizes[found.name] = found.nbytes
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
        span=header.span,
        taint=header.taint,
        role=header.role,
        session=header.session,
        end=header.end,
        ids=hashlib.sha256(header.token_ids.tobytes() + header.key_ids.tobytes()).digest(),
        empty=not any(part.raw_bytes for part in header.parts),
    )


def _with_rows(anchor: _Object, shelf: _Shelf) -> "_Grown | _Doubt":
    """An anchor with the rows of its own history, if it is beyond doubt which they are."""
    if anchor.clean:
        place = (anchor.fingerprint, anchor.kind, anchor.key)
        if sum(one.clean for one in shelf.at[place]) > 1:
            return _Doubt.AMBIGUOUS  # the same forwards have left other bytes: none is believed
    elif shelf.others(anchor):
        return _Doubt.AMBIGUOUS
    blocks: list[_Object] = []
    key, line = anchor.key, anchor.line
    while line > 0:
        block = _block_of(anchor, key, line, shelf)
        if isinstance(block, _Doubt):
            return block
        blocks.append(block)
        key, line = block.previous, block.span.start
    blocks.reverse()
    whole = (
        blocks
        and key == root_key(anchor.namespace)
        and (blocks[-1].span, blocks[-1].ids) == (anchor.span, anchor.ids)
    )
    if not whole:
        return _Doubt.INCOMPLETE
    if not anchor.clean and not _was_written_whole(anchor, blocks):
        return _Doubt.AMBIGUOUS
    return _Grown(anchor, tuple(blocks))


def _was_written_whole(anchor: _Object, blocks: Sequence[_Object]) -> bool:
    """Whether all tainted rows of an anchor's history were stored, so that none is another's.

    A history that was written in part may have its anchor there, and, where its own blocks are
    missing, those of another history of the same tokens. The last block of a write is stored when
    all else of it is durable, see `EntryWrite`. So a short block, which belongs to a history that
    ends right there, says that all of it was there; a block on the grid may be anybody's.
    """
    if all(block.empty for block in blocks if block.line > anchor.taint):
        return True
    is_short = len(blocks) > 1 and len(blocks[-1].span) < len(blocks[0].span)
    return anchor.kind is ObjectKind.END and is_short


def _block_of(anchor: _Object, key: PrefixKey, line: int, shelf: _Shelf) -> "_Object | _Doubt":
    """The block that ends at a line below an anchor, or at it."""
    there = shelf.at[anchor.fingerprint, ObjectKind.BLOCK, key]
    fitting = [
        block for block in there if block.line == line and block.namespace == anchor.namespace
    ]
    if line <= anchor.taint:
        # Every cold prefill of these tokens wrote the same bytes, whatever else has the key.
        right = [block for block in fitting if block.clean or block.empty]
        if len(right) > 1:
            return _Doubt.AMBIGUOUS
    else:
        right = [block for block in fitting if block.taint == anchor.taint or block.empty]
        if right and shelf.others(right[0]):
            return _Doubt.AMBIGUOUS
    return right[0] if right else _Doubt.INCOMPLETE


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
    """The other grid anchors over the very rows of an entry, ascending."""
    return [
        one
        for number, block in enumerate(top.blocks, start=1)
        for one in ending.get(block.name, ())
        if one is not top
        and one.grid
        and one.blocks == top.blocks[:number]
        # What the entry says of its taint must be true of each of its anchors.
        and one.anchor.taint == min(top.anchor.taint, one.anchor.line)
    ]


def _highest_first(one: _Grown) -> tuple[int, bool, ObjectName]:
    return -one.anchor.line, one.grid, one.anchor.name


def _stored_anchor(anchor: _Object) -> StoredAnchor:
    return StoredAnchor(
        anchor.name, anchor.key, anchor.line, AnchorKind(anchor.kind.value), anchor.nbytes
    )


def _is_whole(entry: StoredEntry, shelf: _Shelf) -> bool:
    """Whether all that an entry needs is there."""
    parts: Iterable[StoredBlock | StoredAnchor] = (*entry.blocks, *entry.anchors)
    return all(shelf.sizes.get(part.name) == part.nbytes for part in parts)
