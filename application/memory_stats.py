"""The figures of one pool of memory at one moment, as plain values."""

from dataclasses import dataclass

from ..domain.memory_plan import Figure


@dataclass(frozen=True, slots=True)
class GivenBack:
    """What was given back since the start, of one cache for one reason."""

    cache: str
    reason: str
    times: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """How often a cache was refused to grow since the start, for one reason."""

    cache: str
    reason: str
    times: int


@dataclass(frozen=True, slots=True)
class WorkspaceStats:
    """Scratch memory of a prefill.

    Attributes:
        floor_bytes: of a chunk with nothing before it, as the engine estimates it.
        row_bytes: on top, per token of context.
        bytes_max: where that estimate ends.
        window_bytes: what a prefill of the whole window is expected to take.
        raised_bytes: how much of that was observed beyond the estimate.
        beside_bytes: what may come and go with what is written meanwhile.
    """

    floor_bytes: int
    row_bytes: int
    bytes_max: int
    window_bytes: int
    raised_bytes: int
    beside_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """One pool.

    Attributes:
        pool: host, or the device's name.
        total: bytes there are.
        available: that could still be taken without hurting others.
        held: by this process, free blocks included.
        highest: the most that this was since the server began to serve.
        free: of those, blocks that nothing uses.
        unwritten: rows of slots that were not touched yet, and are not held so far.
        limits: in force, each with where it comes from.
        caches: bytes by cache, the first to give back first.
        running: the longest prompt that is being served; its workspace is not given away.
        short: requests that were told to come back.
    """

    pool: str
    total: int
    available: int
    held: int
    highest: int
    free: int
    unwritten: int
    limits: dict[str, Figure]
    workspace: WorkspaceStats
    caches: dict[str, int]
    running: int
    given_back: tuple[GivenBack, ...]
    refused: tuple[Refused, ...]
    short: int
