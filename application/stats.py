"""The cache's figures at one moment, as plain values."""

from dataclasses import dataclass

from .request import Decision


@dataclass(frozen=True, slots=True)
class SlotStats:
    """One slot.

    Attributes:
        length: tokens whose state it holds.
        taint: the lowest row that no cold grid prefill wrote.
        anchors: the lines of its grid anchors.
        end: the line of its end anchor, or None.
        anchor_bytes: bytes of all copies of sections, free buffers included.
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
