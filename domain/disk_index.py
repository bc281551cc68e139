"""Which stored entries continue a prompt, and how far.

Keys are hints: what this index finds has the right keys, not yet the right tokens. Whoever reads
the objects compares the token ids in their headers with the prompt's before a byte is used.

Everything that a lookup needs is laid out when an entry comes in, so that a lookup costs one visit
of each grid line of the prompt, whatever else is stored.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from .anchor import AnchorKind
from .entry import EntryId
from .prefix_key import PrefixKey
from .prompt_chain import PromptChain
from .stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry


@dataclass(frozen=True, slots=True)
class Continuation:
    """A stored way to start a prompt's prefill.

    Attributes:
        blocks: all rows below the anchor's line, ascending.
    """

    entry: StoredEntry
    anchor: StoredAnchor
    blocks: tuple[StoredBlock, ...]

    @property
    def line(self) -> int:
        return self.anchor.line

    @property
    def nbytes(self) -> int:
        """Bytes to read, if nothing of it is in place."""
        return self.anchor.nbytes + sum(block.nbytes for block in self.blocks)


_Way: TypeAlias = tuple[EntryId, int, AnchorKind]
"""An entry, a line and a kind: at most one continuation each."""

_Counted = TypeVar("_Counted")


class DiskIndex:
    """Entries of one arithmetic, found by the keys of their blocks and anchors."""

    def __init__(self) -> None:
        """Makes an empty index."""
        self._entries: dict[EntryId, StoredEntry] = {}
        self._needing: dict[ObjectName, dict[EntryId, None]] = {}
        self._bytes: dict[ObjectName, int] = {}
        self._total = 0
        self._blocks: Counter[PrefixKey] = Counter()
        self._by_anchor: dict[PrefixKey, dict[_Way, Continuation]] = {}
        # Ends stand off the grid, where each key costs a hash. So an end is looked for only where
        # the block below its own is the prompt's: by that block's key, None for row 0.
        self._ends_above: dict[PrefixKey | None, Counter[int]] = {}

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
        self._blocks.update(block.key for block in entry.blocks)
        for found, below in _continuations_of(entry):
            ways = self._by_anchor.setdefault(found.anchor.key, {})
            ways[entry.id, found.line, found.anchor.kind] = found
            if found.anchor.kind is AnchorKind.END:
                self._ends_above.setdefault(below, Counter())[found.line] += 1
        for name, nbytes in objects_of(entry).items():
            self._needing.setdefault(name, {})[entry.id] = None
            self._total += nbytes - self._bytes.get(name, 0)
            self._bytes[name] = nbytes

    def remove(self, entry_id: EntryId) -> StoredEntry | None:
        """Give an entry up; None if it is not here."""
        entry = self._entries.pop(entry_id, None)
        if entry is None:
            return None
        for block in entry.blocks:
            _count_down(self._blocks, block.key)
        for found, below in _continuations_of(entry):
            ways = self._by_anchor.get(found.anchor.key, {})
            ways.pop((entry_id, found.line, found.anchor.kind), None)
            if not ways:
                self._by_anchor.pop(found.anchor.key, None)
            if found.anchor.kind is AnchorKind.END:
                _count_down(self._ends_above[below], found.line)
                if not self._ends_above[below]:
                    del self._ends_above[below]
        for name in objects_of(entry):
            del self._needing[name][entry_id]
            if not self._needing[name]:
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
        served: set[EntryId] = set()
        found: list[Continuation] = []
        for way in sorted(self._ways(chain, min(highest, chain.length)), key=_order):
            if way.anchor.kind is AnchorKind.GRID:
                if way.entry.id in served:
                    continue
                served.add(way.entry.id)
            found.append(way)
        return found

    def shared_line(self, chain: PromptChain) -> int:
        """The highest grid line up to which some entry has the prompt's rows."""
        for line in range(chain.grid.floor(chain.length), 0, -chain.grid.step):
            if chain.key(line) in self._blocks:
                return line
        return 0

    def _ways(self, chain: PromptChain, top: int) -> Iterator[Continuation]:
        """All that continues the prompt at or below `top`."""
        for line in chain.grid.lines(0, top):
            yield from self._at(chain.key(line), line)
        for line in range(0, top + 1, chain.grid.step):
            for end in self._ends_above.get(chain.key(line) if line else None, ()):
                if line < end <= top and end < line + chain.grid.step:
                    yield from self._at(chain.key(end), end)

    def _at(self, key: PrefixKey, line: int) -> Iterator[Continuation]:
        """What has this key at this line, and not only this key."""
        for way in self._by_anchor.get(key, {}).values():
            if way.anchor.line == line:
                yield way


def objects_of(entry: StoredEntry) -> Mapping[ObjectName, int]:
    """All objects that an entry needs, with the bytes each takes."""
    parts: Iterable[StoredBlock | StoredAnchor] = (*entry.blocks, *entry.anchors)
    return {part.name: part.nbytes for part in parts}


def share_of(nbytes: int, holders: int) -> int:
    """What each of so many holders accounts for; rounded up, so that nothing goes uncounted."""
    return -(-nbytes // holders)


def _continuations_of(entry: StoredEntry) -> Iterator[tuple[Continuation, PrefixKey | None]]:
    """What an entry can offer, and the key at the start of the block that ends at each line.

    An anchor is usable where a block ends at its line, under its key: one key speaks for the whole
    chain below it, so that one comparison tells that all the blocks are there.
    """
    ending = {block.end: number for number, block in enumerate(entry.blocks)}
    for anchor in entry.anchors:
        number = ending.get(anchor.line)
        if number is None or entry.blocks[number].key != anchor.key:
            continue
        below = entry.blocks[number - 1].key if number else None
        yield Continuation(entry, anchor, entry.blocks[: number + 1]), below


def _order(found: Continuation) -> tuple[int, bool, bool, EntryId]:
    tainted = found.line > found.entry.taint
    return (-found.line, tainted, found.anchor.kind is AnchorKind.END, found.entry.id)


def _count_down(counts: Counter[_Counted], key: _Counted) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
