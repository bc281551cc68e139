"""The index of what storage holds, and the counts that outlive the process.

An index only: when it is missing or damaged it is rebuilt from the objects' headers, which costs
hits and ages, never state. Objects are durable before an entry that needs them is committed, and an
entry is removed before objects that only it needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.anchor import AnchorKind
from ..domain.end import End
from ..domain.entry import EntryId, Role
from ..domain.fingerprint import Fingerprint
from ..domain.prefix_key import PrefixKey
from .block_storage import ObjectName


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A row block that an entry needs.

    Attributes:
        key: the prefix key at its last line.
        end: that line; the block reaches down to the one before it in its entry, or to 0.
        nbytes: on the medium.
    """

    name: ObjectName
    key: PrefixKey
    end: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class StoredAnchor:
    """An anchor that an entry holds.

    Attributes:
        key: the prefix key at its line.
        nbytes: on the medium.
    """

    name: ObjectName
    key: PrefixKey
    line: int
    kind: AnchorKind
    nbytes: int


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """State of one token sequence on the medium.

    Attributes:
        blocks: ascending and without gaps from row 0.
        anchors: ascending; none above the last block.
        taint: rows from here on were not written by a cold grid prefill.
        session: the caller's hint.
        created_s: on the age clock: seconds that a jump of the wall clock cannot turn back.
        last_used_s: on the age clock.
    """

    id: EntryId
    role: Role
    fingerprint: Fingerprint
    blocks: tuple[StoredBlock, ...]
    anchors: tuple[StoredAnchor, ...]
    taint: int
    end: End | None
    session: str | None
    hits: int
    created_s: float
    last_used_s: float


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
    def rebuilt(self) -> bool:
        """Whether it was missing or damaged at the start: its entries are to be made again."""
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
