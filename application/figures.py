"""Figures of slots, as plain values."""

from collections.abc import Sequence

from ..domain.entry import Role, Tier
from ..ports.engine import Engine
from .slots import Slot
from .stats import EntryStats, SlotStats


def slot_stats(engine: Engine, slot: Slot) -> SlotStats:
    """What one slot holds."""
    resident = slot.resident
    _, anchor_bytes = engine.slots[slot.index].captured()
    return SlotStats(
        slot=slot.index,
        length=resident.length,
        taint=resident.taint.line,
        anchors=tuple(anchor.line for anchor in resident.anchors),
        end=None if resident.end is None else resident.end.line,
        anchor_bytes=anchor_bytes,
        busy=not slot.idle,
    )


def resident_entries(engine: Engine, slots: Sequence[Slot]) -> list[EntryStats]:
    """What stands in the slots and can be resumed."""
    layout = engine.profile.layout
    found: list[EntryStats] = []
    for slot in slots:
        resident = slot.resident
        last = resident.end_anchor or (resident.anchors[-1] if resident.anchors else None)
        if last is None:
            continue
        gate = resident.taint.gate(last.line, last.kind, engine.profile.row_invariant)
        _, copies = engine.slots[slot.index].captured()
        held = resident.length * layout.row_bytes + copies
        found.append(
            EntryStats(
                id=f"slot-{slot.index}",
                role=Role.RESIDENT.value,
                tier=Tier.SLOT.value,
                tokens=last.line,
                bytes_alone=held,
                bytes_all=held,
                hits=0,
                age_s=0.0,
                gate=gate.value,
                session=slot.session,
                foreign=False,
            )
        )
    return found
