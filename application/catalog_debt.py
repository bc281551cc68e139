"""What the catalog could not be told when it happened, and is told once it works again."""

from collections.abc import Callable, Iterable

from ..domain.entry import EntryId
from ..domain.stored_entry import StoredEntry
from ..ports.catalog import Catalog


class CatalogDebt:
    """Entries that are held otherwise than the catalog has them. One thread at a time.

    Lost with the process: the next one finds what the catalog has, and objects that are missing
    from an entry cost a miss there.
    """

    def __init__(self, catalog: Catalog, held: Callable[[EntryId], StoredEntry | None]) -> None:
        """Owes nothing.

        Args:
            held: the entry as it stands now; None if it has left.
        """
        self._catalog = catalog
        self._held = held
        self._ids: dict[EntryId, None] = {}  # only of entries that the catalog had: as bounded

    def __len__(self) -> int:
        return len(self._ids)

    def owe(self, entry_id: EntryId) -> None:
        """The catalog was not told of a change."""
        self._ids[entry_id] = None

    def settled(self, ids: Iterable[EntryId]) -> None:
        """The catalog has these as they stand."""
        for entry_id in ids:
            self._ids.pop(entry_id, None)

    def pay(self) -> None:
        """Tell the catalog how everything stands that is owed.

        Raises:
            StorageError: it still fails; what was not told is still owed.
        """
        for entry_id in list(self._ids):
            entry = self._held(entry_id)
            if entry is None:
                self._catalog.remove([entry_id])
            else:
                self._catalog.put(entry)
            del self._ids[entry_id]
