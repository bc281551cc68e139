"""Figures of the cache, as plain values."""

from collections import Counter
from collections.abc import Sequence

from ..domain.anchor_budget import AnchorBudget
from ..domain.entry import Role, Tier
from ..domain.taint_line import TaintLine
from ..ports.clock import Clock
from ..ports.engine import Engine
from .disk_service import DiskService
from .live_verify import LiveVerifier
from .ram_tier import RamTier
from .recorder import Recorder
from .response_cache import ResponseCache
from .slots import Slot, Slots
from .stats import CacheStats, EntryStats, RamStats, SlotStats


def cache_stats(
    engine: Engine,
    slots: Slots,
    anchors: AnchorBudget,
    recorder: Recorder,
    disk: DiskService | None,
    ram: RamTier | None,
    verifier: LiveVerifier | None,
    responses: ResponseCache | None,
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
        ram=None if ram is None else ram_stats(ram),
        verify=None if verifier is None else verifier.stats(),
        arithmetic=profile.arithmetic,
        responses=None if responses is None else responses.stats(),
    )


def slot_stats(engine: Engine, slot: Slot) -> SlotStats:
    """What one slot holds."""
    resident = slot.resident
    return SlotStats(
        slot=slot.index,
        length=resident.length,
        taint=resident.taint.line,
        anchors=tuple(anchor.line for anchor in resident.anchors),
        end=None if resident.end is None else resident.end.line,
        anchor_bytes=anchor_bytes(engine, slot),
        busy=not slot.idle,
    )


def anchor_bytes(engine: Engine, slot: Slot) -> int:
    """Bytes of the copies of sections that a slot can be resumed from."""
    copies = slot.resident.kept + (slot.resident.end_anchor is not None)
    return copies * engine.profile.layout.section_bytes


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
        held = resident.length * layout.row_bytes + anchor_bytes(engine, slot)
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


def ram_stats(ram: RamTier) -> RamStats:
    """The tier in memory."""
    moves, counts = ram.blocks.counts, ram.counts
    return RamStats(
        bytes_used=ram.nbytes,
        bytes_max=ram.bytes_max,
        entries=dict(Counter(entry.role.value for entry in ram.entries)),
        kept=counts.kept,
        restored=counts.restored,
        superseded=counts.superseded,
        evicted=counts.evicted,
        demoted=counts.demoted,
        healed=counts.healed,
        cut=counts.cut,
        collisions=counts.collisions,
        blocks_captured=moves.captured,
        blocks_restored=moves.restored,
        blocks_swapped=moves.swapped,
        blocks_lost=moves.lost,
        bytes_per_s=ram.rate.bytes_per_s,
    )


def ram_entries(ram: RamTier, engine: Engine, clock: Clock) -> list[EntryStats]:
    """What memory keeps."""
    now_s, found = clock.monotonic(), list[EntryStats]()
    for entry in ram.entries:
        last = entry.state.anchors[-1]
        gate = TaintLine(entry.state.taint).gate(last.line, last.kind, engine.profile.row_invariant)
        found.append(
            EntryStats(
                id=str(entry.id),
                role=entry.role.value,
                tier=Tier.RAM.value,
                tokens=entry.line,
                bytes_alone=ram.bytes_alone(entry),
                bytes_all=ram.bytes_all(entry),
                hits=entry.hits,
                age_s=now_s - entry.last_used_s,
                gate=gate.value,
                session=entry.session,
                foreign=False,
            )
        )
    return found
