"""Figures of the cache, as plain values."""

from collections.abc import Sequence

from ..domain.anchor_budget import AnchorBudget
from ..domain.entry import Role, Tier
from ..ports.engine import Engine
from .disk_service import DiskService
from .live_verify import LiveVerifier
from .recorder import Recorder
from .slots import Slot, Slots
from .stats import CacheStats, EntryStats, SlotStats


def cache_stats(
    engine: Engine,
    slots: Slots,
    anchors: AnchorBudget,
    recorder: Recorder,
    disk: DiskService | None,
    verifier: LiveVerifier | None,
    *,
    queued: int,
    running: int,
) -> CacheStats:
    """The figures of this moment."""
    profile = engine.profile
    return CacheStats(
        enabled=slots.cache_enabled,
        slots=tuple(slot_stats(engine, slot) for slot in slots.all),
        anchor_bytes_max=anchors.bytes_max,
        anchor_count_max=anchors.capacity(profile.layout.section_bytes),
        section_bytes=profile.layout.section_bytes,
        row_bytes=profile.layout.row_bytes,
        grid=profile.grid.step,
        queued=queued,
        running=running,
        requests=recorder.requests,
        misses=recorder.misses,
        hits=dict(recorder.hits),
        tokens_cached=dict(recorder.tokens_cached),
        tokens_reread=recorder.tokens_reread,
        last=tuple(recorder.last),
        disk=None if disk is None else disk.tier.stats(disk.writes.pending),
        verify=None if verifier is None else verifier.stats(),
        arithmetic=profile.arithmetic,
    )


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
