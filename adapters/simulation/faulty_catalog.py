"""A catalog with the faults of real ones: calls that a test names, at rates or one by one."""

import enum
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ...domain.entry import EntryId
from ...domain.errors import StorageError, StorageFull, StorageReadOnly, StorageUnavailable
from ...domain.fingerprint import Fingerprint
from ...domain.prefix_key import PrefixKey
from ...domain.stored_entry import ObjectName, StoredEntry
from ...ports.catalog import AgeMark, Catalog


class CatalogFault(enum.Enum):
    """What may happen to a call."""

    FULL = "full"
    """Whatever changes something finds no room (ENOSPC)."""

    READ_ONLY = "read-only"
    """Whatever changes something is refused (EROFS)."""

    FAILED = "failed"
    """Any call fails: the drive, a lock, a page that is damaged (EIO, BUSY, CORRUPT)."""


CHANGES: Final = frozenset(
    {
        "finish_rebuild",
        "put",
        "remove",
        "touch",
        "count_cold",
        "add_written",
        "adopt",
        "set_age_mark",
        "close",
    }
)
"""Calls that change something."""

QUESTIONS: Final = frozenset(
    {
        "needs_rebuild",
        "entries",
        "unreferenced",
        "cold_counts",
        "written",
        "equal_to",
        "age_mark",
    }
)
"""Calls that do not."""

CALLS: Final = CHANGES | QUESTIONS

_Result = TypeVar("_Result")


class FaultyCatalog:
    """Implements `ports.catalog.Catalog` over another one.

    A call that `failing` names fails. Any other draws for each fault that may happen to it, in the
    order of `CatalogFault`, from one seeded source: the same calls in the same order meet the same
    faults. A call that fails has changed nothing; `close` closes the inner catalog all the same.

    It does not model crashes, a commit that is reported as failed and found after a crash, or
    records that say something else than was written.

    Attributes:
        rates: how likely each fault is per call it may happen to; 0 for those left out.
        failing: names of calls that fail, until they are taken out.
        happened: calls that failed, by name.
    """

    def __init__(
        self,
        inner: Catalog,
        *,
        seed: int = 0,
        rates: Mapping[CatalogFault, float] | None = None,
        failing: Iterable[str] = (),
    ):
        """No call has been made yet.

        Args:
            inner: does the work.
            seed: decides which calls meet a fault.
        """
        self._inner = inner
        self._random = random.Random(seed)  # noqa: S311 - an order, not a secret
        self.rates: Mapping[CatalogFault, float] = dict(rates or {})
        self.failing = set(failing)
        self.happened: Counter[str] = Counter()

    @property
    def needs_rebuild(self) -> bool:
        return self._call("needs_rebuild", lambda: self._inner.needs_rebuild)

    def finish_rebuild(self) -> None:
        self._call("finish_rebuild", self._inner.finish_rebuild)

    def entries(self) -> Sequence[StoredEntry]:
        return self._call("entries", self._inner.entries)

    def put(self, entry: StoredEntry, replaces: Iterable[EntryId] = ()) -> None:
        self._call("put", lambda: self._inner.put(entry, replaces))

    def remove(self, ids: Iterable[EntryId]) -> None:
        self._call("remove", lambda: self._inner.remove(ids))

    def touch(self, used: Mapping[EntryId, float]) -> None:
        self._call("touch", lambda: self._inner.touch(used))

    def unreferenced(self, names: Iterable[ObjectName]) -> set[ObjectName]:
        return self._call("unreferenced", lambda: self._inner.unreferenced(names))

    def count_cold(self, keys: Iterable[PrefixKey]) -> Mapping[PrefixKey, int]:
        return self._call("count_cold", lambda: self._inner.count_cold(keys))

    def cold_counts(self, keys: Iterable[PrefixKey]) -> Mapping[PrefixKey, int]:
        return self._call("cold_counts", lambda: self._inner.cold_counts(keys))

    def add_written(self, day: str, kind: str, nbytes: int) -> None:
        self._call("add_written", lambda: self._inner.add_written(day, kind, nbytes))

    def written(self, days: int) -> Mapping[str, Mapping[str, int]]:
        return self._call("written", lambda: self._inner.written(days))

    def adopt(self, fingerprint: Fingerprint, older: Fingerprint) -> None:
        self._call("adopt", lambda: self._inner.adopt(fingerprint, older))

    def equal_to(self, fingerprint: Fingerprint) -> frozenset[Fingerprint]:
        return self._call("equal_to", lambda: self._inner.equal_to(fingerprint))

    def age_mark(self) -> AgeMark | None:
        return self._call("age_mark", self._inner.age_mark)

    def set_age_mark(self, mark: AgeMark) -> None:
        self._call("set_age_mark", lambda: self._inner.set_age_mark(mark))

    def close(self) -> None:
        try:
            self._call("close", lambda: None)
        finally:
            self._inner.close()

    def _call(self, name: str, act: Callable[[], _Result]) -> _Result:
        assert name in CALLS, name
        error = self._error(name)
        if error is not None:
            self.happened[name] += 1
            raise error
        return act()

    def _error(self, name: str) -> StorageError | None:
        """What the call meets, if anything."""
        if name in self.failing:
            return StorageUnavailable(f"the catalog's {name} failed (simulated)")
        changes = name in CHANGES
        if changes and self._draws(CatalogFault.FULL):
            return StorageFull(f"no space is left for the catalog's {name} (simulated)")
        if changes and self._draws(CatalogFault.READ_ONLY):
            return StorageReadOnly(f"the catalog's {name} is refused (simulated)")
        if self._draws(CatalogFault.FAILED):
            return StorageUnavailable(f"the catalog's {name} failed (simulated)")
        return None

    def _draws(self, fault: CatalogFault) -> bool:
        rate = self.rates.get(fault, 0.0)
        return rate > 0.0 and self._random.random() < rate
