"""The index of a storage, in memory."""

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...domain.entry import EntryId
from ...domain.fingerprint import Fingerprint
from ...domain.prefix_key import PrefixKey
from ...domain.stored_entry import ObjectName, StoredEntry
from ...ports.catalog import AgeMark


class MemoryCatalog:
    """Implements `ports.catalog.Catalog`.

    `restart()` is what a new process finds. It does not model errors, a commit that a crash
    catches halfway, or the loss of what "may be lost in a crash": that is always kept.
    """

    def __init__(
        self, *, needs_rebuild: bool = True, cold_counts_max: int = 1 << 18, days_max: int = 400
    ):
        """An empty catalog.

        Args:
            needs_rebuild: what it says of itself.
            cold_counts_max: lines whose counts are kept.
            days_max: days whose written bytes are kept.
        """
        self._needs_rebuild = needs_rebuild
        self._cold_counts_max = cold_counts_max
        self._days_max = days_max
        self._entries: dict[EntryId, StoredEntry] = {}
        self._cold: dict[PrefixKey, int] = {}  # in the order in which they were last counted
        self._written: dict[str, Counter[str]] = {}
        self._equal: list[tuple[Fingerprint, Fingerprint]] = []
        self._age_mark: AgeMark | None = None

    @property
    def needs_rebuild(self) -> bool:
        return self._needs_rebuild

    def finish_rebuild(self) -> None:
        self._needs_rebuild = False

    def entries(self) -> Sequence[StoredEntry]:
        return list(self._entries.values())

    def put(self, entry: StoredEntry, replaces: Iterable[EntryId] = ()) -> None:
        self.remove(replaces)
        self._entries[entry.id] = entry

    def remove(self, ids: Iterable[EntryId]) -> None:
        for entry_id in ids:
            self._entries.pop(entry_id, None)

    def touch(self, used: Mapping[EntryId, float]) -> None:
        for entry_id, used_s in used.items():
            entry = self._entries.get(entry_id)
            if entry is not None:
                self._entries[entry_id] = replace(entry, hits=entry.hits + 1, last_used_s=used_s)

    def unreferenced(self, names: Iterable[ObjectName]) -> set[ObjectName]:
        needed = {
            part.name
            for entry in self._entries.values()
            for part in (*entry.blocks, *entry.anchors)
        }
        return set(names) - needed

    def count_cold(self, keys: Iterable[PrefixKey]) -> Mapping[PrefixKey, int]:
        counts: dict[PrefixKey, int] = {}
        for key in keys:
            counts[key] = self._cold[key] = self._cold.pop(key, 0) + 1
        while len(self._cold) > self._cold_counts_max:
            del self._cold[next(iter(self._cold))]
        return counts

    def cold_counts(self, keys: Iterable[PrefixKey]) -> Mapping[PrefixKey, int]:
        return {key: self._cold.get(key, 0) for key in keys}

    def add_written(self, day: str, kind: str, nbytes: int) -> None:
        self._written.setdefault(day, Counter())[kind] += nbytes
        while len(self._written) > self._days_max:
            del self._written[min(self._written)]

    def written(self, days: int) -> Mapping[str, Mapping[str, int]]:
        newest = sorted(self._written, reverse=True)[:days]
        return {day: dict(self._written[day]) for day in newest}

    def adopt(self, fingerprint: Fingerprint, older: Fingerprint) -> None:
        self._equal.append((fingerprint, older))

    def equal_to(self, fingerprint: Fingerprint) -> frozenset[Fingerprint]:
        found = {fingerprint}
        while True:
            more = {end for pair in self._equal if found.intersection(pair) for end in pair}
            if more <= found:
                return frozenset(found)
            found |= more

    def age_mark(self) -> AgeMark | None:
        return self._age_mark

    def set_age_mark(self, mark: AgeMark) -> None:
        self._age_mark = mark

    def close(self) -> None:
        """Nothing to let go of."""

    def restart(self) -> "MemoryCatalog":
        """The catalog as the next process finds it."""
        return copy.deepcopy(self)
