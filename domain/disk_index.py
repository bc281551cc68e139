"""Which stored entries continue a prompt, and how far.

Keys are hints: what this index finds has the right keys, not yet the right tokens. Whoever reads
the objects compares the token ids in their headers with the prompt's before a byte is used.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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


class DiskIndex:
    """Entries of one arithmetic, found by the keys of their blocks and anchors."""

    def __init__(self) -> None:
        """Makes an empty index."""
        self._entries: dict[EntryId, StoredEntry] = {}
        self._by_anchor: dict[PrefixKey, set[EntryId]] = {}
        self._by_block: dict[PrefixKey, set[EntryId]] = {}
        self._references: Counter[ObjectName] = Counter()
        self._bytes: dict[ObjectName, int] = {}
        self._ends: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: StoredEntry) -> None:
        """Take an entry; one of the same id is replaced."""
        self.remove(entry.id)
        self._entries[entry.id] = entry
        for block in entry.blocks:
            self._by_block.setdefault(block.key, set()).add(entry.id)
        for anchor in entry.anchors:
            self._by_anchor.setdefault(anchor.key, set()).add(entry.id)
            if anchor.kind is AnchorKind.END:
                self._ends[anchor.line] += 1
        for name, nbytes in _objects(entry).items():
            self._references[name] += 1
            self._bytes[name] = nbytes

    def remove(self, entry_id: EntryId) -> StoredEntry | None:
        """Give an entry up; None if it is not here."""
        entry = self._entries.pop(entry_id, None)
        if entry is None:
            return None
        for block in entry.blocks:
            _discard(self._by_block, block.key, entry_id)
        for anchor in entry.anchors:
            _discard(self._by_anchor, anchor.key, entry_id)
            if anchor.kind is AnchorKind.END:
                self._ends[anchor.line] -= 1
        for name in _objects(entry):
            self._references[name] -= 1
            if not self._references[name]:
                del self._references[name], self._bytes[name]
        return entry

    def entry(self, entry_id: EntryId) -> StoredEntry | None:
        return self._entries.get(entry_id)

    def entries(self) -> tuple[StoredEntry, ...]:
        return tuple(self._entries.values())

    def holds(self, name: ObjectName) -> int | None:
        """The bytes of an object that some entry needs; None for any other."""
        return self._bytes.get(name)

    def needing(self, name: ObjectName) -> tuple[StoredEntry, ...]:
        """The entries that need an object."""
        if name not in self._references:
            return ()
        return tuple(entry for entry in self._entries.values() if name in _objects(entry))

    def held_alone(self, entry: StoredEntry) -> int:
        """Bytes that would become free with the entry, and its share of what others need too."""
        objects = _objects(entry).items()
        return sum(nbytes // max(self._references[name], 1) for name, nbytes in objects)

    def continuations(self, chain: PromptChain, highest: int) -> list[Continuation]:
        """What continues the prompt: each entry's highest usable grid anchor, and its end.

        Args:
            chain: of the prompt.
            highest: the highest line it may resume at.
        """
        found: list[Continuation] = []
        served: set[EntryId] = set()
        for line in self._candidate_lines(chain, highest):
            key = chain.key(line)
            for entry_id in sorted(self._by_anchor.get(key, ())):
                entry = self._entries[entry_id]
                for anchor in entry.anchors:
                    if anchor.line != line or anchor.key != key:
                        continue
                    if anchor.kind is AnchorKind.GRID and entry_id in served:
                        continue
                    blocks = _blocks_below(entry, line, chain)
                    if blocks is not None:
                        found.append(Continuation(entry, anchor, blocks))
                        if anchor.kind is AnchorKind.GRID:
                            served.add(entry_id)
        return found

    def shared_line(self, chain: PromptChain) -> int:
        """The highest grid line up to which some entry has the prompt's rows."""
        for line in range(chain.grid.floor(chain.length), 0, -chain.grid.step):
            if chain.key(line) in self._by_block:
                return line
        return 0

    def _candidate_lines(self, chain: PromptChain, highest: int) -> list[int]:
        """Grid lines and ends at or below `highest`, from the highest."""
        top = min(highest, chain.length)
        grid = range(chain.grid.step, top + 1, chain.grid.step)
        ends = {line for line, count in self._ends.items() if count and line <= top}
        return sorted({*grid, *ends}, reverse=True)


def _blocks_below(
    entry: StoredEntry, line: int, chain: PromptChain
) -> tuple[StoredBlock, ...] | None:
    """The entry's blocks for rows [0, line) if they are complete and the prompt's; else None."""
    blocks = tuple(block for block in entry.blocks if block.end <= line)
    if (blocks[-1].end if blocks else 0) != line:
        return None
    # One key holds the whole chain below it, so the last one speaks for all.
    if blocks and blocks[-1].key != chain.key(line):
        return None
    return blocks


def _objects(entry: StoredEntry) -> Mapping[ObjectName, int]:
    parts: Iterable[StoredBlock | StoredAnchor] = (*entry.blocks, *entry.anchors)
    return {part.name: part.nbytes for part in parts}


def _discard(index: dict[PrefixKey, set[EntryId]], key: PrefixKey, entry_id: EntryId) -> None:
    index[key].discard(entry_id)
    if not index[key]:
        del index[key]
