"""Bringing an entry from memory into a slot, block by block."""

from ..domain.anchor import Anchor
from ..ports.gpu_state import SlotState
from .entry_write import Progress
from .kept_blocks import KeptBlock
from .ram_entry import RamEntry
from .ram_tier import RamTier
from .resident_prefix import ResidentPrefix


class RamRestore:
    """One entry on its way into a slot. On the engine thread; end with `close`.

    It can be given up between any two steps: each block stands where it stood, or is in place.
    """

    def __init__(
        self,
        tier: RamTier,
        entry: RamEntry,
        anchor: Anchor,
        slot: int,
        state: SlotState,
        resident: ResidentPrefix,
    ) -> None:
        """Takes a slot whose conversation is kept, or is worth nothing; moves nothing yet.

        Args:
            anchor: one of the entry's: where the slot is to go on from.
        """
        self.entry = entry
        self._tier = tier
        self._anchor = anchor
        self._slot = slot
        self._state = state
        self._resident = resident
        self._missing: list[KeptBlock] | None = None
        self._closed = False
        self.bytes_moved = 0
        self.blocks_moved = 0
        entry.lent += 1

    def step(self) -> Progress | None:
        """Bring one block in; None if there is no room to do so, and never will be."""
        if self._missing is None:
            self._start()
        assert self._missing is not None
        if self._missing:
            block = self._missing.pop(0)
            if not block.is_there or not self._tier.blocks.bring(self._slot, block):
                return None
            self.bytes_moved += self._tier.blocks.bytes_of(block)
            self.blocks_moved += 1
            return Progress.WORKED
        line = self._anchor.line
        if not self._tier.has(self.entry) or self.entry.line < line:
            return None
        if self._resident.seals is not None:
            self._resident.seals.take_rows(self.entry.seals_below(line))
        self._resident.take(self.entry.state.below(line))
        return Progress.DONE

    def close(self) -> None:
        """It was brought in, or given up: the entry may leave again."""
        if not self._closed:
            self._closed = True
            self.entry.lent -= 1

    def _start(self) -> None:
        self._resident.forget()
        # If a forward failed here, what stands in the slot is of nothing until line 0 is resumed.
        self._state.resume_at(0)
        blocks = self.entry.blocks_below(self._anchor.line)
        self._missing = [block for block in blocks if self._slot not in block.places]
