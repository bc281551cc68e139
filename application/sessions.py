"""Which conversations belong to sessions that are open: those leave memory last."""

from ..domain.entry import Tier
from ..domain.namespace import Namespace
from ..domain.session_index import Place, SessionIndex
from ..ports.clock import Clock
from .ram_entry import RamEntry
from .slots import Slot


class Sessions:
    """Notes where each session's newest state stands. On the engine thread.

    A preference alone. What a request resumes from is found by its tokens, which costs the same
    however much is kept, so a session that nobody knows here loses nothing but its precedence.
    """

    def __init__(self, clock: Clock) -> None:
        """Knows none yet."""
        self._index = SessionIndex()
        self._clock = clock

    def ended_in(self, slot: Slot) -> None:
        """A request has ended in a slot, and what it left stands there."""
        place = Place(Tier.SLOT, slot.index)
        self._index.forget(place)
        if slot.session is not None and slot.resident.highest:
            now_s = self._clock.monotonic()
            self._index.note(slot.resident.namespace, slot.session, place, now_s)

    def kept(self, entry: RamEntry) -> None:
        """A slot's conversation is kept in memory."""
        if entry.session is not None:
            place = Place(Tier.RAM, entry.id)
            self._index.note(entry.namespace, entry.session, place, entry.created_s)

    def dropped(self, entry: RamEntry) -> None:
        """Memory keeps it no more."""
        self._index.forget(Place(Tier.RAM, entry.id))

    def is_newest(self, entry: RamEntry) -> bool:
        """Whether an entry is where an open session's conversation stands."""
        if entry.session is None:
            return False
        place = self._index.find(entry.namespace, entry.session)
        return place is not None and place.where == entry.id

    def close(self, session: str, namespace: Namespace | None) -> int:
        """A session is over: its precedence is, and nothing else; how many places were known.

        Args:
            namespace: the only one that is meant; None where all are.
        """
        return self._index.close(session, namespace)
