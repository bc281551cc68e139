"""Conversations that left the medium because a longer one with all of their tokens came to it.

A longer one's entry takes the other's place, whose end is then stored no more. Where slots hold
both, or the longer one was displaced and is still being written, a flush finds the shorter one
missing and says so, though nothing went wrong.
"""

from collections.abc import Mapping

from ..application.disk_tier import DiskTier
from ..application.entry_ids import entry_id
from ..application.object_store import ObjectStore
from ..application.resident_prefix import ResidentPrefix
from ..domain.entry import EntryId, Role
from ..domain.errors import StorageError
from ..domain.grid import Grid
from ..domain.object_header import ObjectHeader
from ..domain.prompt_chain import PromptChain
from ..domain.stored_entry import StoredEntry
from .box import Box
from .tier_watch import is_continued


class Succession:
    """Whose place was taken from now on, and by which tokens: an entry itself knows keys alone."""

    def __init__(self, tier: DiskTier | None, box: Box) -> None:
        """Nobody's yet.

        Args:
            tier: of the running process, if it has one.
        """
        self._tier = tier
        self._box = box
        self._entries = self._now()
        self._taken: dict[EntryId, list[ObjectHeader]] = {}

    def look(self) -> None:
        """Note what has come and gone since the last look; after every small step, to miss none."""
        now = self._now()
        # One that is there already may be written again, and only then take a place.
        came = [one for one_id, one in now.items() if self._entries.get(one_id) is not one]
        for gone in self._entries.keys() - now.keys():
            entry = self._entries[gone]
            self._taken[gone] = [
                header
                for one in came
                if is_continued(entry, [one])
                and (header := self._above_the_shared(entry, one)) is not None
            ]
        self._entries = now

    def took_place_of(self, resident: ResidentPrefix) -> bool:
        """Whether a slot's conversation is not stored for this reason."""
        line = resident.highest
        if self._tier is None or line == 0:
            return False
        keys = resident.key_ids[:line].copy()
        key = PromptChain(keys, resident.namespace, Grid(self._box.grid)).key(line)
        own = entry_id(Role.CONVERSATION, self._tier.fingerprint, key)
        return own not in self._entries and any(
            header.namespace == resident.namespace
            and header.key_ids[: line - header.span.start].tolist()
            == keys[header.span.start :].tolist()
            for header in self._taken.get(own, [])
        )

    def _now(self) -> Mapping[EntryId, StoredEntry]:
        entries = () if self._tier is None else self._tier.index.entries()
        return {entry.id: entry for entry in entries}

    def _above_the_shared(self, older: StoredEntry, entry: StoredEntry) -> ObjectHeader | None:
        """Of the block that stands where the older one's last block stood; None if unreadable."""
        shared = len(older.blocks) - 1
        store = ObjectStore(self._box.storage, self._box.codec)
        try:
            return store.read_header(entry.blocks[shared].name)
        except StorageError:
            return None
