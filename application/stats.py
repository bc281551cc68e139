"""The cache's figures at one moment, as plain values."""

from dataclasses import dataclass

from .memory_stats import MemoryStats
from .request import Decision


@dataclass(frozen=True, slots=True)
class SlotStats:
    """One slot.

    Attributes:
        length: tokens whose state it holds.
        taint: the lowest row that no cold grid prefill wrote.
        anchors: the lines of its grid anchors.
        end: the line of its end anchor, or None.
        anchor_bytes: bytes of the copies of sections that it can be resumed from.
        busy: whether a request is being served in it.
    """

    slot: int
    length: int
    taint: int
    anchors: tuple[int, ...]
    end: int | None
    anchor_bytes: int
    busy: bool


@dataclass(frozen=True, slots=True)
class RequestStats:
    """What one of the last requests started from."""

    id: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class DiskStats:
    """The tier on a medium.

    Attributes:
        bytes_used: by all that stands there, temporary and quarantined objects included.
        bytes_free: that could still be written.
        entries: by role, foreign ones included.
        foreign: entries of other arithmetic.
        pending_writes: entries that are not durable yet.
        read_bytes_per_s: the measured rate of restores.
        written_by_day: bytes by local day and role, newest first.
        write_level: where today's writing stands: ok, over, hard.
    """

    fingerprint: str
    bytes_used: int
    bytes_free: int
    bytes_max: int
    entries: dict[str, int]
    foreign: int
    restores: int
    bytes_read: int
    bytes_written: int
    saved: int
    heads: int
    evicted: int
    quarantined: int
    pending_writes: int
    read_bytes_per_s: float
    written_by_day: dict[str, dict[str, int]]
    write_level: str


@dataclass(frozen=True, slots=True)
class RamStats:
    """The tier in memory.

    Attributes:
        bytes_used: by copies of rows, and of sections that only entries hold.
        entries: by role.
        superseded: given up because a longer one of the same conversation was kept.
        evicted: given up for room.
        demoted: that nobody used for a while, and that the medium has.
        healed: whose tokens were prefilled again on the grid.
        cut: that lost rows for which there was no room.
        collisions: prefix keys that were equal over tokens that were not.
        blocks_captured: copied out of a slot.
        blocks_restored: copied into one.
        blocks_swapped: exchanged with what stood there.
        blocks_lost: overwritten with no room for a copy.
        bytes_per_s: the measured rate of copies into slots.
    """

    bytes_used: int
    bytes_max: int
    entries: dict[str, int]
    kept: int
    restored: int
    superseded: int
    evicted: int
    demoted: int
    healed: int
    cut: int
    collisions: int
    blocks_captured: int
    blocks_restored: int
    blocks_swapped: int
    blocks_lost: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class EntryStats:
    """One kept entry; never a text of a user.

    Attributes:
        tokens: that a resume at its highest line saves.
        bytes_alone: that only it needs, with its share of what others need too.
        gate: under which its highest line resumes.
        age_s: seconds since it was last used.
    """

    id: str
    role: str
    tier: str
    tokens: int
    bytes_alone: int
    bytes_all: int
    hits: int
    age_s: float
    gate: str
    session: str | None
    foreign: bool


@dataclass(frozen=True, slots=True)
class Cleared:
    """What a clear has freed."""

    ram_tokens: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class ResponseStats:
    """Answers that are kept to be given again.

    Attributes:
        bytes_held: with those of answers that are still being written.
        hits: requests that were answered so.
        misses: requests that could have been, had an equal one been answered before.
        dropped: answers that are not given again, by reason.
    """

    answers: int
    bytes_held: int
    bytes_max: int
    hits: int
    misses: int
    dropped: dict[str, int]


@dataclass(frozen=True, slots=True)
class PrefetchStats:
    """Stored state that is read into memory for requests that wait for a slot.

    Attributes:
        begun: reads.
        arrived: that became entries in memory.
        joined: requests that wanted what was being read for another one already.
        abandoned: that nobody waited for any more, or that gave way to a need of memory.
        refused: for which there was no room.
        failed: whose objects could not be used.
        bytes_read: of those that arrived.
        under_way: whether one goes on now.
    """

    begun: int
    arrived: int
    joined: int
    abandoned: int
    refused: int
    failed: int
    bytes_read: int
    under_way: bool


@dataclass(frozen=True, slots=True)
class VerifyStats:
    """What verifying kept state has found since the start.

    Attributes:
        mode: on or strict.
        samples: entries that were judged.
        tokens: that were forwarded for it.
        skipped: entries that could not be judged, because they were replaced meanwhile or could
            not be read.
        mismatches: by kind.
        serves_cold: a mismatch was found, and no request resumes from anything until a restart.
    """

    mode: str
    samples: int
    tokens: int
    skipped: int
    mismatches: dict[str, int]
    serves_cold: bool


@dataclass(frozen=True, slots=True)
class CacheStats:
    """All of it.

    Attributes:
        anchor_bytes_max: the budget for the grid anchors of one slot.
        anchor_count_max: how many anchors that is for this model.
        section_bytes: bytes of one anchor.
        row_bytes: bytes of one token's rows.
        hits: requests that resumed, by source.
        tokens_cached: prompt tokens that needed no forward, by source.
        tokens_reread: prompt tokens that were forwarded.
        last: newest last.
        verify: None where nothing is verified.
        memory: of each pool, the one that the model runs in first.
        arithmetic: the engine's, and what its proof found; for people.
        responses: None where no answer is given again.
        prefetch: None where nothing is read ahead.
    """

    enabled: bool
    slots: tuple[SlotStats, ...]
    anchor_bytes_max: int
    anchor_count_max: int
    section_bytes: int
    row_bytes: int
    grid: int
    queued: int
    running: int
    requests: int
    misses: int
    hits: dict[str, int]
    tokens_cached: dict[str, int]
    tokens_reread: int
    last: tuple[RequestStats, ...]
    disk: DiskStats | None = None
    ram: RamStats | None = None
    verify: VerifyStats | None = None
    arithmetic: str = ""
    responses: ResponseStats | None = None
    memory: tuple[MemoryStats, ...] = ()
    prefetch: PrefetchStats | None = None
