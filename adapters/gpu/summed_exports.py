"""Rows on their way out, summed up and looked at as they pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...domain.sums import NO_SUMS, Sums
from ...ports.gpu_state import Look
from .kernels.sums import device_sums, host_sums
from .part_bytes import Bytes, PartBytes

PIECE_BYTES: Final = 1 << 20
"""What stands in a core's cache until it has been summed up, copied, and its copy looked at."""


@dataclass(frozen=True, slots=True)
class Export:
    """Bytes [start, end) of a part, and the buffer that they are copied to."""

    part: PartBytes
    start: int
    end: int
    into: Bytes


def export_summed(exports: Sequence[Export], look: Look | None) -> list[Sums]:
    """Copy all of them, as `StateTransfer.export_summed_rows`; the sums of each where it stands."""
    sources = [one.part.to_read(one.start, one.end, one.into) for one in exports]
    hosts = [source for source in sources if source is not None]
    if len(hosts) < len(exports):
        for one in exports:
            one.part.read(one.start, one.end, one.into)
        return device_sums([one.part.in_place(one.start, one.end) for one in exports])
    found = [NO_SUMS] * len(exports)
    longest = max(map(len, hosts), default=0)
    # All parts' first pieces first: they share the weights of those words.
    for at in range(0, longest, PIECE_BYTES):
        for index, (one, source) in enumerate(zip(exports, hosts, strict=True)):
            piece = source[at : at + PIECE_BYTES]
            if len(piece):
                copy = one.into[at : at + len(piece)]
                found[index] += host_sums(piece, at // 8)
                np.copyto(copy, piece)
                if look is not None:
                    look(one.part.name, copy)
    return found
