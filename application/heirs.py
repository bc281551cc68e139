"""Which stored entries gave their place to longer ones, and to which."""

from collections.abc import Iterable
from typing import Final

from ..domain.entry import EntryId

REMEMBERED_MAX: Final = 4096
"""Entries whose heirs are known; of older ones it is forgotten."""


class Heirs:
    """Who has whose place, as far as this process saw it. One thread at a time."""

    def __init__(self) -> None:
        """Nobody has taken a place."""
        self._heirs: dict[EntryId, EntryId] = {}

    def took(self, heir: EntryId, places: Iterable[EntryId]) -> None:
        """An entry is stored, in the place of these; whatever became of it before is over."""
        self._heirs.pop(heir, None)
        for entry_id in places:
            self._heirs[entry_id] = heir
        while len(self._heirs) > REMEMBERED_MAX:
            del self._heirs[next(iter(self._heirs))]

    def of(self, entry_id: EntryId) -> EntryId:
        """Who has an entry's place by now: itself, an heir, or the heir of one."""
        while entry_id in self._heirs:
            entry_id = self._heirs[entry_id]
        return entry_id
