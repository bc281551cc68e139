"""Where parts stand that share one block of memory, and where rows do."""

from collections.abc import Sequence
from typing import Final

ALIGNMENT_BYTES: Final = 64
"""What torch's own allocators give at least: parts must not become slower to compute with."""


PAGE_BYTES: Final = 4096
"""A medium moves bytes to and from memory that starts at its multiples without a copy."""


def aligned_starts(sizes: Sequence[int], alignment: int = ALIGNMENT_BYTES) -> tuple[list[int], int]:
    """Where each part starts, one after the other, and the bytes of all.

    Args:
        sizes: bytes of each part.
        alignment: that each starts at a multiple of.
    """
    starts: list[int] = []
    end = 0
    for size in sizes:
        starts.append(-(-end // alignment) * alignment)
        end = starts[-1] + size
    return starts, end
