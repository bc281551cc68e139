"""The tier of a process, with what cannot be told of it afterwards."""

from functools import cached_property

from ..application.disk_tier import DiskTier
from ..domain.entry import EntryId, Role


class WatchedTier(DiskTier):
    """Remembers who was being read when room was made: a reader may be gone by the next look."""

    @cached_property
    def read_while_left(self) -> dict[EntryId, frozenset[EntryId]]:
        """By who has left for room, the last time: who was being read, and so could not leave."""
        return {}

    def make_room(self, role: Role, incoming_bytes: int) -> bool:
        """As any tier does."""
        before = {entry.id for entry in self.entries()}
        fits = super().make_room(role, incoming_bytes)
        gone = before.difference(entry.id for entry in self.entries())
        self.read_while_left.update(dict.fromkeys(gone, frozenset(self._in_use)))
        return fits
