"""Which stored entries continue a prompt, and how far.

Keys are hints: what this index finds has the right keys, not yet the right tokens. Whoever reads
the objects compares the token ids in their headers with the prompt's before a byte is used.

Everything that a lookup needs is laid out when an entry comes in, so that its cost does not grow
with what else is stored.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter
from typing import Final, NamedTuple

from .anchor import AnchorKind
from .entry import EntryId
from .prompt_chain import PromptChain
from .stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from .way_index import Way, WayIndex

# A hundred thousand objects are gone through at a start, and these are the quickest to do it with.
_BYTES: Final = attrgetter("nbytes")
_END: Final = attrgetter("end")
_END_AND_KEY: Final = attrgetter("end", "key")
_NAME_AND_BYTES: Final = attrgetter("name", "nbytes")


@dataclass(frozen=True, slots=True)
class Continuation:
    """A stored way to start a prompt's prefill.

    Attributes:
        block_count: how many of the entry's blocks are below the anchor's line: all rows there.
        block_bytes: of all the entry's blocks, summed up: at place `n` those of the first `n`.
    """

    entry: StoredEntry
    anchor: StoredAnchor
    block_count: int
    block_bytes: Sequence[int] = field(compare=False, repr=False)

    @property
    def line(self) -> int:
        return self.anchor.line

    @property
    def blocks(self) -> tuple[StoredBlock, ...]:
        """All rows below the anchor's line, ascending."""
        return self.entry.blocks[: self.block_count]

    @property
    def nbytes(self) -> int:
        """Bytes to read, if nothing of it is in place."""
        return self.anchor.nbytes + self.block_bytes[self.block_count]

    def missing(self, in_place: int) -> tuple[int, int]:
        """How many blocks reach above the rows that are in place, and their bytes."""
        last = self.block_count
        first = bisect_right(self.entry.blocks, in_place, hi=last, key=_END)
        return last - first, self.block_bytes[last] - self.block_bytes[first]


class _Kept(NamedTuple):
    """A continuation, and its order among those of one prompt."""

    order: tuple[int, bool, bool, EntryId]
    found: Continuation


class DiskIndex:
    """Entries of one arithmetic, found by the keys of their blocks and anchors."""

    def __init__(self) -> None:
        """Makes an empty index."""
        self._entries: dict[EntryId, StoredEntry] = {}
        # Entries by what they need. All objects that an entry alone needs stand over one dictionary
        # of it: one of a single entry is never changed, only replaced.
        self._needing: dict[ObjectName, dict[EntryId, None]] = {}
        self._bytes: dict[ObjectName, int] = {}
        self._total = 0
        self._ways: WayIndex[_Kept] = WayIndex()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all objects that some entry needs, each counted once."""
        return self._total

    def add(self, entry: StoredEntry) -> None:
        """Take an entry, whose blocks end at grid lines but for the last; same ids are replaced."""
        self.remove(entry.id)
        self._entries[entry.id] = entry
        self._ways.add(entry.id, _ways_of(entry), map(_END_AND_KEY, entry.blocks))
        objects = objects_of(entry)
        shared = self._bytes.keys() & objects.keys()
        for name in shared:
            self._needed_too(name, entry.id)
            self._total -= self._bytes[name]
        alone: dict[EntryId, None] = {entry.id: None}
        new = objects.keys() - shared if shared else objects
        self._needing.update(dict.fromkeys(new, alone))
        self._bytes.update(objects)
        self._total += sum(objects.values())

    def remove(self, entry_id: EntryId) -> StoredEntry | None:
        """Give an entry up; None if it is not here."""
        entry = self._entries.pop(entry_id, None)
        if entry is None:
            return None
        self._ways.remove(entry_id)
        for name in objects_of(entry):
            needing = self._needing[name]
            if len(needing) > 1:
                del needing[entry_id]
            else:
                del self._needing[name]
                self._total -= self._bytes.pop(name)
        return entry

    def entry(self, entry_id: EntryId) -> StoredEntry | None:
        return self._entries.get(entry_id)

    def has(self, entry: StoredEntry) -> bool:
        """Whether an entry is still here with all that it needed, whoever has used it since."""
        return entry.id in self._entries and objects_of(entry).keys() <= self._bytes.keys()

    def entries(self) -> tuple[StoredEntry, ...]:
        return tuple(self._entries.values())

    def holds(self, name: ObjectName) -> int | None:
        """The bytes of an object that some entry needs; None for any other."""
        return self._bytes.get(name)

    def needing(self, name: ObjectName) -> tuple[StoredEntry, ...]:
        """The entries that need an object."""
        return tuple(self._entries[entry_id] for entry_id in self._needing.get(name, ()))

    def held_alone(self, entry: StoredEntry) -> int:
        """Bytes that only this entry needs, and its share of those that others need too.

        A measure of what it costs, not of what would become free with it: that is less.

        Args:
            entry: one of this index.
        """
        objects = objects_of(entry).items()
        return sum(share_of(nbytes, len(self._needing[name])) for name, nbytes in objects)

    def continuations(self, chain: PromptChain, highest: int) -> list[Continuation]:
        """What continues the prompt: each entry's highest usable grid anchor, and its end.

        The highest line comes first; of one line, what is clean, then what a prefill wrote.

        Args:
            chain: of the prompt.
            highest: the highest line it may resume at.
        """
        return _in_order(way.what for way in self._ways.find(chain, highest))

    def choices(self, chain: PromptChain, highest: int) -> list[Continuation]:
        """The continuations between which there is a choice.

        Of those that bring in the same objects under the same gate only one is told, which may be
        any: where a thousand conversations share a head, each of them offers the same anchor in it.

        Args:
            chain: of the prompt.
            highest: the highest line it may resume at.
        """
        return _in_order(way.what for way in self._ways.choices(chain, highest))

    def shared_line(self, chain: PromptChain) -> int:
        """The highest grid line up to which some entry has the prompt's rows."""
        return self._ways.shared_line(chain)

    def _needed_too(self, name: ObjectName, entry_id: EntryId) -> None:
        """One entry more needs an object that another one needs."""
        needing = self._needing[name]
        if len(needing) == 1:
            needing = self._needing[name] = dict(needing)
        needing[entry_id] = None


def objects_of(entry: StoredEntry) -> Mapping[ObjectName, int]:
    """All objects that an entry needs, with the bytes each takes."""
    return dict(map(_NAME_AND_BYTES, (*entry.blocks, *entry.anchors)))


def share_of(nbytes: int, holders: int) -> int:
    """What each of so many holders accounts for; rounded up, so that nothing goes uncounted."""
    return -(-nbytes // holders)


def _ways_of(entry: StoredEntry) -> Iterable[Way[_Kept]]:
    """What an entry can offer.

    An anchor is usable where a block ends at its line, under its key: one key speaks for the whole
    chain below it, so that one comparison tells that all the blocks are there.
    """
    blocks = entry.blocks
    block_bytes = tuple(accumulate(map(_BYTES, blocks), initial=0))
    ways: dict[tuple[int, AnchorKind], Way[_Kept]] = {}
    for anchor in entry.anchors:
        line, kind = anchor.line, anchor.kind
        number = bisect_left(blocks, line, key=_END)
        if number == len(blocks) or blocks[number].end != line or blocks[number].key != anchor.key:
            continue
        tainted = line > entry.taint
        kept = _Kept(
            (-line, tainted, kind is AnchorKind.END, entry.id),
            Continuation(entry, anchor, number + 1, block_bytes),
        )
        below = blocks[number - 1].key if number else None
        same = (anchor.name, blocks[number].name, tainted)
        ways[line, kind] = Way(entry.id, anchor.key, below, line, kind, kept, same)
    return ways.values()


def _in_order(kept: Iterable[_Kept]) -> list[Continuation]:
    """Sorted; of each entry only the highest grid anchor, where colliding keys bring out two."""
    served: set[EntryId] = set()
    found: list[Continuation] = []
    for one in sorted(kept, key=attrgetter("order")):
        if one.found.anchor.kind is AnchorKind.GRID:
            if one.found.entry.id in served:
                continue
            served.add(one.found.entry.id)
        found.append(one.found)
    return found
