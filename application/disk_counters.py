"""What the tier on the medium has done since the start, and what it has left undone."""

import enum
from dataclasses import dataclass


class Skip(enum.Enum):
    """Why something was not written."""

    GUARD = "write_guard"
    ROOM = "no_room"
    FULL = "medium_full"
    FAILED = "medium_failed"
    WINDOW = "overwritten"
    BACKOFF = "after_a_failure"
    BUSY = "too_many_writes"
    DAMAGED = "damaged_meanwhile"
    CHANGED = "rows_changed"
    """While they were being copied: a fault, of the code or of the memory that they stand in."""


@dataclass(slots=True)
class DiskCounters:
    """What has happened since the start."""

    saved: int = 0
    heads: int = 0
    restores: int = 0
    bytes_written: int = 0
    bytes_read: int = 0
    quarantined: int = 0
    evicted: int = 0
