"""What became of stored entries that are stored no more, as far as this process saw it."""

from collections.abc import Iterable
from typing import Final

from ..domain.entry import EntryId
from ..domain.stored_entry import StoredEntry

REMEMBERED_MAX: Final = 4096
"""Entries of which it is known; of older ones it is forgotten."""


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


class GivenUp:
    """Which entries the medium had, and let go for others. One thread at a time.

    To write one of them again before anybody has used it would be to overrule what was decided of
    its worth: the next one would go for it, and it for the next one.
    """

    def __init__(self) -> None:
        """Nothing has been let go."""
        self._entries: dict[EntryId, tuple[float, int, bool]] = {}

    def left(self, entry: StoredEntry, now_s: float) -> None:
        """An entry has been let go, for want of room."""
        self._entries[entry.id] = (now_s, entry.anchors[-1].line, entry.end is not None)
        while len(self._entries) > REMEMBERED_MAX:
            del self._entries[next(iter(self._entries))]

    def stored(self, entry_id: EntryId) -> None:
        """It is stored again; whatever became of it before is over."""
        self._entries.pop(entry_id, None)

    def clear(self) -> None:
        """There is room again for all of them."""
        self._entries.clear()

    def had(self, entry_id: EntryId, line: int, used_s: float, *, ends: bool) -> bool:
        """Whether an entry was let go that reached a line, and had its end if that is wanted.

        Args:
            used_s: when it was used last; what was let go before that was judged too early.
        """
        if entry_id not in self._entries:
            return False
        left_s, reached, ended = self._entries[entry_id]
        return left_s >= used_s and reached >= line and (ended or not ends)
