"""What the disk tier does while nobody waits for it, and what is asked of all of it at once."""

from collections.abc import Callable, Sequence
from typing import Final

from ..domain.write_guard import WriteCause
from ..ports.clock import Clock
from .demotion import Demotion
from .disk_service import DiskService
from .durability import Flush, FlushReport
from .entry_write import Progress
from .ram_tier import RamTier
from .slots import Slot

SHARE_OF_REQUESTS: Final = 0.005
"""Of the engine thread's time that copying may take while requests run."""

LANE_S: Final = 0.002
LANE_PART: Final = 20
"""What a lane takes of the same interpreter for each object, its header and its file, whatever its
length: little beside a large one's copy, and up to so many times a small one's."""


class Background:
    """Steps the writes of the tier between the pieces of requests. On the engine thread."""

    def __init__(
        self,
        disk: DiskService | None,
        slots: Sequence[Slot],
        clock: Clock,
        ram: RamTier | None = None,
        demotion: Demotion | None = None,
    ) -> None:
        self._disk = disk
        self._ram = ram
        self._demotion = demotion
        self._slots = slots
        self._clock = clock
        self._flushes: list[Flush] = []
        self._active_s = clock.monotonic()
        self._resumes_s = clock.monotonic()

    def step(self, *, idle: bool) -> bool:
        """Copy a block out, save what nobody used for a while, answer who waits for durability.

        Args:
            idle: no request had anything to do.

        Returns:
            Whether there is more to do.
        """
        disk = self._disk
        if disk is None:
            return False
        began_s = self._clock.monotonic()
        if not idle:
            self._active_s = began_s
            if began_s < self._resumes_s:
                # A slot may be idle for this moment only.
                self._step_flushes()
                return False
        progress = disk.step(idle=idle)
        now_s = self._clock.monotonic()
        copied_s = now_s - began_s
        took_s = copied_s + min(LANE_PART * copied_s, LANE_S)
        self._resumes_s = now_s + took_s * (1 / SHARE_OF_REQUESTS - 1)
        if progress is Progress.DONE and idle:
            self._save_idle(disk)
            if self._demotion is not None:
                self._demotion.step()
        self._step_flushes()
        return progress is Progress.WORKED or (idle and disk.writes.pending > 0)

    def _step_flushes(self) -> None:
        self._flushes = [flush for flush in self._flushes if not flush.step()]

    def flush(self, answer: Callable[[FlushReport], None]) -> None:
        """Make every conversation durable that can be resumed; answered by a later step."""
        if self._disk is None:
            answer(FlushReport.without_tier())
            return
        self._flushes.append(Flush(self._disk, self._slots, answer, self._ram))

    def read_back(self) -> int:
        """Bring the newest conversations into the empty slots; how many tokens stand there now."""
        if self._disk is None:
            return 0
        entries = self._disk.tier.latest_conversations(len(self._slots))
        for slot, entry in zip(self._slots, entries, strict=False):
            if self._disk.read_back(slot.index, slot.resident, entry):
                slot.session, slot.read_back = entry.session, True
        return sum(slot.resident.length for slot in self._slots)

    def _save_idle(self, disk: DiskService) -> None:
        """Write what a crash would lose, once nobody has used it for a while."""
        policy = disk.conversations.policy
        if policy.idle_s is None or self._clock.monotonic() - self._active_s < policy.idle_s:
            return
        self._active_s = self._clock.monotonic()
        for slot in self._slots:
            if slot.resident.length >= policy.idle_tokens_min:
                disk.conversations.save(
                    slot.index, slot.resident, slot.session, WriteCause.EVICTION
                )
