"""Which copies of state an engine may hold: those that somebody needs, and no other."""

from ..application.scheduler import Scheduler
from ..ports.engine import Engine
from .violation import violated


def check_copies(engine: Engine, scheduler: Scheduler, spare: int) -> None:
    """No copy leaks: each is of an anchor of some slot, of a slot's end, or of what memory keeps.

    Args:
        spare: copies of sections in slots that no request gets, at most.

    Raises:
        Violation: some copy is nobody's.
    """
    live, slots, ram = engine.copies.counts(), scheduler.slots, scheduler.ram
    entries = () if ram is None else ram.entries
    held = {anchor.handle for entry in entries for anchor in entry.state.anchors}
    rows = {block.handle for entry in entries for block in entry.blocks} - {None}
    prefetch = scheduler.prefetch
    if prefetch is not None and prefetch.fetch is not None:
        held |= prefetch.fetch.arriving.section_handles
        rows |= prefetch.fetch.arriving.row_handles
    kept = sum(slot.resident.kept for slot in slots) + len(held)
    if live.sections > kept + len(slots) + spare:
        violated("leak", f"{live.sections} copies of sections for {kept} anchors and the ends")
    if live.rows != len(rows):
        violated("leak", f"{live.rows} copies of rows, and entries keep {len(rows)}")
