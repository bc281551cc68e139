"""The index of what storage holds, and the counts that outlive the process.

An index only: when it is missing or damaged it is rebuilt from the objects' headers, which costs
hits and ages, never state. Objects are durable before an entry that needs them is committed, and an
entry is removed before objects that only it needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.entry import EntryId
from ..domain.fingerprint import Fingerprint
from ..domain.prefix_key import PrefixKey
from ..domain.stored_entry import ObjectName, StoredEntry


@dataclass(frozen=True, slots=True)
class AgeMark:
    """A reading of the age clock, and the wall clock's at the same moment.

    The age clock goes on from the newest mark after a restart.
    """

    age_s: float
    wall_s: float


class Catalog(Protocol):
    """Entries, references, counts.

    Called on one thread at a time. A call that changes something is durable when it returns, and
    takes milliseconds; if it raises, nothing has changed.

    Raises, from every call:
        StorageFull, StorageReadOnly, StorageUnavailable: as of `block_storage`.
    """

    @property
    def needs_rebuild(self) -> bool:
        """Whether entries may be missing that objects exist for: it is new, or was damaged.

        They are to be made again from the objects' headers. Until then no object may be taken for
        an unneeded one.
        """
        ...

    def finish_rebuild(self) -> None:
        """All entries are there; from here on `needs_rebuild` is false, after a restart too.

        A rebuild that a crash interrupts, or that could not read everything, begins again with the
        next start.
        """
        ...

    def entries(self) -> Sequence[StoredEntry]:
        """All entries of all fingerprints."""
        ...

    def put(self, entry: StoredEntry, replaces: Iterable[EntryId] = ()) -> None:
        """Commit an entry and remove others, in one transaction.

        An entry of the same id is replaced.
        """
        ...

    def remove(self, ids: Iterable[EntryId]) -> None:
        """Remove entries; those that are not there are ignored."""
        ...

    def touch(self, used: Mapping[EntryId, float]) -> None:
        """Count a hit for each entry and set when it was last used. May be lost in a crash.

        Entries that are not there are ignored.
        """
        ...

    def unreferenced(self, names: Iterable[ObjectName]) -> set[ObjectName]:
        """Of `names`, those that no entry needs."""
        ...

    def count_cold(self, keys: Iterable[PrefixKey]) -> Mapping[PrefixKey, int]:
        """Add one to each line's count of cold forwards; the new counts.

        Counts are traffic: they outlive fingerprints. Those that were counted the longest ago are
        forgotten over a bound.
        """
        ...

    def cold_counts(self, keys: Iterable[PrefixKey]) -> Mapping[PrefixKey, int]:
        """The counts of lines, 0 for unknown ones."""
        ...

    def add_written(self, day: str, kind: str, nbytes: int) -> None:
        """Add to the bytes written on a local day (ISO date), by kind (head, conversation).

        Days are kept for a year at the least; the oldest are forgotten over a bound.
        """
        ...

    def written(self, days: int) -> Mapping[str, Mapping[str, int]]:
        """Bytes written on the newest `days` days that have any, by day and kind, newest first."""
        ...

    def adopt(self, fingerprint: Fingerprint, older: Fingerprint) -> None:
        """Record that two formulas named the same inputs (`fp-equal`)."""
        ...

    def equal_to(self, fingerprint: Fingerprint) -> frozenset[Fingerprint]:
        """All fingerprints on record as equal to this one, by any number of steps, and itself."""
        ...

    def age_mark(self) -> AgeMark | None:
        """The newest mark, if there is any."""
        ...

    def set_age_mark(self, mark: AgeMark) -> None:
        """Replace the mark. May be lost in a crash."""
        ...

    def close(self) -> None:
        """Nothing may be called afterwards."""
        ...
