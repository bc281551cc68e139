"""All planted faults, and what only looks like one."""

from typing import Final

from . import in_exact, in_memory, in_reads, in_requests, in_slots, in_writes, on_the_medium
from .patching import Planted

FAULTS: Final[tuple[Planted, ...]] = (
    *in_slots.FAULTS,
    *in_requests.FAULTS,
    *in_writes.FAULTS,
    *in_reads.FAULTS,
    *in_memory.FAULTS,
    *in_exact.FAULTS,
    *on_the_medium.FAULTS,
)

CONTROLS: Final[tuple[Planted, ...]] = (
    Planted(
        "keys of 8 bits",
        "they collide every day, which costs misses and never an answer",
        "domain.prefix_key.KEY_BYTES",
        in_reads.short_keys,
        tolerated=in_reads.COST_OF_COLLISIONS,
    ),
)
"""Not faults: no rule may be broken with them."""
