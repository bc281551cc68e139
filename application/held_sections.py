"""Copies of sections that slots and entries share: each lives as long as somebody needs it."""

from ..domain.anchor import Anchor, SectionsHandle
from ..domain.sums import PartSums
from ..ports.gpu_state import GpuState, StateCopies


class HeldSections:
    """Counts who holds which copy. On the engine thread."""

    def __init__(self, copies: StateCopies, section_bytes: int) -> None:
        """Takes whose copies they are, and the bytes of one; nothing is held yet."""
        self._copies = copies
        self._nbytes = section_bytes
        self._slots: dict[SectionsHandle, int] = {}
        self._entries: dict[SectionsHandle, int] = {}
        self._seals: dict[SectionsHandle, tuple[Anchor, PartSums]] = {}

    @property
    def entry_bytes(self) -> int:
        """Bytes of the copies that entries hold, whether slots hold them as well or not."""
        return self._nbytes * len(self._entries)

    def bytes_not_kept(self, handles: set[SectionsHandle]) -> int:
        """Bytes of those copies that no entry holds."""
        return self._nbytes * len(handles - self._entries.keys())

    def capture(self, state: GpuState, into: SectionsHandle | None = None) -> SectionsHandle:
        """Copy the sections in place for a slot.

        Args:
            into: what the slot held before and needs no more: written over if nobody else does.
        """
        if into is not None and self._is_alone(into):
            self._seals.pop(into, None)
            return state.capture_sections(into)
        if into is not None:
            self.release(into)
        handle = state.capture_sections()
        self._slots[handle] = 1
        return handle

    def hold(self, handle: SectionsHandle) -> SectionsHandle:
        """Another slot needs it."""
        self._slots[handle] = self._slots.get(handle, 0) + 1
        return handle

    def release(self, handle: SectionsHandle) -> None:
        """A slot needs it no more."""
        self._count_down(self._slots, handle)

    def keep(self, handle: SectionsHandle) -> None:
        """An entry needs it."""
        self._entries[handle] = self._entries.get(handle, 0) + 1

    def give_up(self, handle: SectionsHandle) -> None:
        """An entry needs it no more."""
        self._count_down(self._entries, handle)

    def seal(self, anchor: Anchor, sums: PartSums) -> None:
        """Note what an anchor's copy is, for as long as it is: whoever holds it shares the note."""
        self._seals[anchor.handle] = (anchor, sums)

    def seal_of(self, anchor: Anchor) -> PartSums | None:
        """What was noted of just this anchor; None if nothing was, or its copy is another's."""
        found = self._seals.get(anchor.handle)
        return None if found is None or found[0] != anchor else found[1]

    def freed_without(self, handles: set[SectionsHandle]) -> int:
        """Bytes of those copies that no other entry holds, for one that holds them all."""
        return self._nbytes * sum(self._entries.get(handle) == 1 for handle in handles)

    def holders(self, handle: SectionsHandle) -> int:
        """How many entries hold a copy."""
        return self._entries.get(handle, 0)

    def _is_alone(self, handle: SectionsHandle) -> bool:
        return self._slots.get(handle) == 1 and handle not in self._entries

    def _count_down(self, counts: dict[SectionsHandle, int], handle: SectionsHandle) -> None:
        counts[handle] -= 1
        if not counts[handle]:
            del counts[handle]
            if handle not in self._slots and handle not in self._entries:
                self._seals.pop(handle, None)
                self._copies.release_sections(handle)
