"""Where parts stand that share one block of memory."""

from collections.abc import Sequence
from typing import Final

ALIGNMENT_BYTES: Final = 64
"""What torch's own allocators give at least: parts must not become slower to compute with."""


def aligned_starts(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each part starts, one after the other, and the bytes of all.

    Args:
        sizes: bytes of each part.
    """
    starts: list[int] = []
    end = 0
    for size in sizes:
        starts.append(-(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        end = starts[-1] + size
    return starts, end
