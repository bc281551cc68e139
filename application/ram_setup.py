"""Putting the tier in memory together with the one on a medium."""

from ..ports.clock import Clock
from ..ports.engine import Engine
from .demotion import Demotion
from .disk_service import DiskService
from .held_sections import HeldSections
from .limits import Limits
from .ram_entry import RamEntry
from .ram_tier import RamTier


def ram_tier(
    engine: Engine,
    sections: HeldSections,
    clock: Clock,
    limits: Limits,
    disk: DiskService | None,
) -> RamTier | None:
    """The tier in memory, if there is one; what the medium lacks is the last to leave it."""
    if not limits.cache_enabled or limits.ram_bytes_max is None:
        return None
    ram = RamTier(engine, sections, clock, limits.ram_bytes_max, limits.retention)
    if disk is not None:
        conversations, writes = disk.conversations, disk.writes

        def is_safe(entry: RamEntry) -> bool:
            short = entry.line < conversations.policy.lost_tokens_min
            return short or not conversations.is_dirty_entry(entry)

        ram.is_safe, ram.cut = is_safe, writes.fence_entry
        ram.given_up = conversations.was_given_up
    return ram


def demotion(
    ram: RamTier | None, disk: DiskService | None, clock: Clock, idle_s: float | None
) -> Demotion | None:
    """What lets idle entries leave memory, where that is wanted and there is a medium."""
    if ram is None or disk is None or idle_s is None:
        return None
    return Demotion(ram, disk.conversations, clock, idle_s)
