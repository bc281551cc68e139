"""The figures of a cache as rows that people read."""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from ...domain.byte_size import size

Row: TypeAlias = tuple[str, str]
"""A label and a text."""


class Slot(msgspec.Struct):
    """A slot, as `application.stats.SlotStats` has it."""

    slot: int
    length: int = 0
    taint: int = 0
    anchors: list[int] = msgspec.field(default_factory=list[int])
    end: int | None = None
    anchor_bytes: int = 0
    busy: bool = False


class Ram(msgspec.Struct):
    """The tier in memory, as `application.stats.RamStats` has it."""

    bytes_used: int = 0
    bytes_max: int = 0
    entries: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    restored: int = 0
    evicted: int = 0
    demoted: int = 0
    healed: int = 0
    cut: int = 0


class Disk(msgspec.Struct):
    """The tier on a medium, as `application.stats.DiskStats` has it."""

    bytes_used: int = 0
    bytes_free: int = 0
    bytes_max: int = 0
    entries: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    foreign: int = 0
    restores: int = 0
    bytes_read: int = 0
    evicted: int = 0
    quarantined: int = 0
    pending_writes: int = 0
    read_bytes_per_s: float = 0.0
    written_by_day: dict[str, dict[str, int]] = msgspec.field(
        default_factory=dict[str, dict[str, int]]
    )
    write_level: str = ""


class Responses(msgspec.Struct):
    """Answers that are given again, as `application.stats.ResponseStats` has them."""

    answers: int = 0
    bytes_held: int = 0
    bytes_max: int = 0
    hits: int = 0
    misses: int = 0


class Prefetch(msgspec.Struct):
    """What was read ahead, as `application.stats.PrefetchStats` has it."""

    begun: int = 0
    arrived: int = 0
    bytes_read: int = 0


class Verify(msgspec.Struct):
    """What verifying has found, as `application.stats.VerifyStats` has it."""

    mode: str = ""
    samples: int = 0
    tokens: int = 0
    skipped: int = 0
    mismatches: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    serves_cold: bool = False


class Figure(msgspec.Struct):
    """A limit, as `domain.memory_plan.Figure` has it."""

    bytes: int = 0
    why: str = ""


class Pool(msgspec.Struct):
    """A pool of memory, as `application.memory_stats.MemoryStats` has it."""

    pool: str = ""
    held: int = 0
    available: int = 0
    limits: dict[str, Figure] = msgspec.field(default_factory=dict[str, Figure])
    caches: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    short: int = 0


class Stats(msgspec.Struct):
    """All of it, as `application.stats.CacheStats` has it; other versions' may lack some."""

    enabled: bool = True
    slots: list[Slot] = msgspec.field(default_factory=list[Slot])
    queued: int = 0
    running: int = 0
    requests: int = 0
    misses: int = 0
    hits: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    tokens_cached: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    tokens_reread: int = 0
    ram: Ram | None = None
    disk: Disk | None = None
    prefetch: Prefetch | None = None
    responses: Responses | None = None
    verify: Verify | None = None
    arithmetic: str = ""
    memory: list[Pool] = msgspec.field(default_factory=list[Pool])


def stats_rows(stats: Stats) -> Iterator[Row]:
    """The rows of the table, from what concerns most people."""
    if stats.verify is not None and stats.verify.serves_cold:
        yield "cache", "off since a kept state was wrong: every request starts cold"
    elif not stats.enabled:
        yield "cache", "off: every request starts cold"
    hits = sum(stats.hits.values())
    yield "requests", f"{stats.requests}: {hits} resumed, {stats.misses} cold"
    if hits:
        yield "resumed from", _counts(stats.hits)
    cached = sum(stats.tokens_cached.values())
    total = cached + stats.tokens_reread
    share = f" ({cached / total:.0%} cached)" if total else ""
    yield "prompt tokens", f"{cached} cached, {stats.tokens_reread} re-read{share}"
    yield "now", f"{stats.running} running, {stats.queued} waiting"
    for slot in stats.slots:
        yield f"slot {slot.slot}", _slot(slot)
    if stats.arithmetic:
        yield "arithmetic", stats.arithmetic
    for pool in stats.memory:
        yield f"memory of {pool.pool}", _pool(pool)
    if stats.ram is not None:
        yield from _ram(stats.ram)
    if stats.disk is None:
        yield "disk", "off"
    else:
        yield from _disk(stats.disk)
    if stats.prefetch is not None and stats.prefetch.begun:
        ahead = stats.prefetch
        yield "read ahead", f"{ahead.arrived} of {ahead.begun} entries, {size(ahead.bytes_read)}"
    if stats.responses is not None:
        yield "answers kept", _responses(stats.responses)
    if stats.verify is not None:
        yield "verified", _verified(stats.verify)


def _slot(slot: Slot) -> str:
    if slot.length == 0:
        return "busy" if slot.busy else "empty"
    clean = "all clean" if slot.taint >= slot.length else f"clean up to {slot.taint}"
    end = "no end kept" if slot.end is None else f"end at {slot.end}"
    state = "busy" if slot.busy else "idle"
    return f"{slot.length} tokens, {clean}, {len(slot.anchors)} anchors, {end}; {state}"


def _pool(pool: Pool) -> str:
    ceiling = pool.limits.get("ceiling", Figure()).bytes
    caches = f", {size(sum(pool.caches.values()))} in caches" if pool.caches else ""
    short = f"; {pool.short} prompts did not fit" if pool.short else ""
    return f"{size(pool.held)} of {size(ceiling)}{caches}{short}"


def _ram(ram: Ram) -> Iterator[Row]:
    yield "kept in memory", f"{size(ram.bytes_used)} of {size(ram.bytes_max)}"
    left = ram.evicted or ram.demoted
    gone = f"; {ram.evicted} gave way, {ram.demoted} are on disk alone" if left else ""
    yield "entries there", f"{_counts(ram.entries) or 'none'}; {ram.restored} resumed from{gone}"
    if ram.healed:
        yield "healed", f"{ram.healed} entries were read again on the grid"
    if ram.cut:
        yield "cut short", f"{ram.cut} lost rows for want of room"


def _disk(disk: Disk) -> Iterator[Row]:
    yield "disk", f"{size(disk.bytes_used)} of {size(disk.bytes_max)}, {size(disk.bytes_free)} free"
    foreign = f"; {disk.foreign} of other models" if disk.foreign else ""
    yield "disk entries", f"{_counts(disk.entries) or 'none'}{foreign}"
    rate = f" at {size(disk.read_bytes_per_s)}/s" if disk.restores else ""
    yield "disk reads", f"{disk.restores} restores, {size(disk.bytes_read)}{rate}"
    yield "disk writes", f"{disk.pending_writes} pending; the day's budget: {disk.write_level}"
    if disk.evicted or disk.quarantined:
        yield "gone", f"{disk.evicted} entries evicted, {disk.quarantined} objects quarantined"
    for day, kinds in disk.written_by_day.items():
        parts = ", ".join(f"{kind} {size(nbytes)}" for kind, nbytes in sorted(kinds.items()))
        yield f"written {day}", f"{size(sum(kinds.values()))}: {parts}"


def _responses(kept: Responses) -> str:
    held = f"{kept.answers} in {size(kept.bytes_held)} of {size(kept.bytes_max)}"
    return f"{held}; {kept.hits} of {kept.hits + kept.misses} requests were answered so"


def _verified(verify: Verify) -> str:
    wrong = _counts(verify.mismatches)
    found = f"WRONG: {wrong}" if wrong else "nothing wrong"
    return f"{verify.samples} entries, {verify.tokens} tokens recomputed; {found}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count)
