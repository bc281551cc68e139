"""Objects that no entry needs: deleted at once, or as soon as that can be done."""

from collections import Counter
from collections.abc import Callable, Container, Iterable

from ..domain.object_name import parse_name
from ..domain.stored_entry import ObjectName
from ..ports.block_storage import BlockStorage
from ..ports.catalog import Catalog
from .catalog_debt import CatalogDebt
from .tolerance import Tolerance


class UnneededObjects:
    """Deletes what nobody needs, and keeps what somebody is about to. One thread at a time.

    A pin is of a write that counts on an object being stored, or of a reader.
    """

    def __init__(
        self,
        storage: BlockStorage,
        catalog: Catalog,
        debt: CatalogDebt,
        tolerate: Tolerance,
        is_held: Callable[[ObjectName], bool],
    ) -> None:
        """Nothing is pinned, and nothing is left over.

        Args:
            is_held: whether an entry of the running arithmetic needs an object.
        """
        self._storage = storage
        self._catalog = catalog
        self._debt = debt
        self._tolerate = tolerate
        self._is_held = is_held
        self._pinned: Counter[ObjectName] = Counter()
        self._pinned_in_vain: set[ObjectName] = set()
        self._left_over: set[ObjectName] = set()  # that could not be deleted when they should have

    def pin(self, name: ObjectName) -> None:
        """Keep an object, one user more."""
        self._pinned[name] += 1

    def unpin(self, names: Iterable[ObjectName]) -> None:
        """One user less of each; what nobody needs then is deleted."""
        unpinned = list(names)
        self._pinned.subtract(unpinned)
        self._pinned = +self._pinned
        self._pinned_in_vain &= set(self._pinned)
        self.delete(unpinned)

    def is_pinned(self, name: ObjectName) -> bool:
        """Whether somebody counts on an object."""
        return name in self._pinned

    def damaged(self, name: ObjectName) -> None:
        """An object was moved aside; whoever has pinned it counts on it in vain."""
        if name in self._pinned:
            self._pinned_in_vain.add(name)

    def pinned_in_vain(self, names: Iterable[ObjectName]) -> bool:
        """Whether one of these was found damaged since it was pinned."""
        return not self._pinned_in_vain.isdisjoint(names)

    def delete(self, names: Iterable[ObjectName]) -> None:
        """Delete those that no entry needs and nobody has pinned; what fails now is tried again."""
        objects = set(names)
        self._left_over -= objects
        gone = {name for name in objects if not self._is_held(name) and name not in self._pinned}
        free: set[ObjectName] = set()
        if gone:
            told = self._tolerate(lambda: free.update(self._catalog.unreferenced(gone)))
            # The catalog may still name them for an entry that has left.
            self._left_over |= gone - free if self._debt or not told else set()
        for name in sorted(free):
            self._delete(name)

    def are_left_over(self, names: Iterable[ObjectName]) -> bool:
        """Whether one of these should have been deleted, and could not be."""
        return not self._left_over.isdisjoint(names)

    def try_again(self) -> None:
        """Delete what could not be deleted when it should have been."""
        self.delete(set(self._left_over))

    def reclaim(self, needed: Container[ObjectName]) -> int:
        """Delete every object that is not needed; how many there were.

        For the start, before anything is written: a crash leaves objects of entries that were never
        committed, and may bring deleted ones back.

        Raises:
            StorageError: the objects could not be listed.
        """
        if self._catalog.needs_rebuild:
            return 0  # nothing is known to be a stray while entries may be missing
        stray = [
            name
            for name in self._storage.all_names()
            if name not in needed and parse_name(name) is not None
        ]
        for name in sorted(stray):
            self._delete(name)
        return len(stray)

    def _delete(self, name: ObjectName) -> None:
        if not self._tolerate(lambda: self._storage.delete(name)):
            self._left_over.add(name)
