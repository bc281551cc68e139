"""Large reads and writes at offsets, from and into arrays where they stand.

Direct I/O wants offsets, lengths and memory addresses at multiples of `ALIGNMENT`. Arrays that do
not start at one go through a small aligned buffer, piece by piece; all others are never copied.
"""

import errno
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...domain.errors import ObjectCorrupt
from ...ports.block_storage import ALIGNMENT, ByteArray, ByteRange

CALL_BYTES: Final = 64 << 20
"""In one system call at most: above 8 MiB drives gain nothing more, and a call this long still
lets another thread's call in between."""

BOUNCE_BYTES: Final = 4 << 20
ARRAYS_MAX: Final = 1024
"""IOV_MAX on Linux."""


_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_LARGE_PAGE: Final = 2 << 20


def aligned_buffer(nbytes: int) -> ByteArray:
    """Zeroed whole pages; given back to the system when nobody holds the array any more."""
    pages = mmap.mmap(-1, max(-(-nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT), flags=_PRIVATE)
    # Large pages: pinning 64 MiB for the drive takes 32 steps instead of 16,384.
    if len(pages) >= _LARGE_PAGE:
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype=np.uint8)


def write_arrays(
    fd: int, arrays: Sequence[ByteArray], *, aligned: bool, between: Callable[[int], None]
) -> None:
    """Write the arrays one after the other from offset 0; blocks.

    Args:
        aligned: memory addresses have to be multiples of `ALIGNMENT`.
        between: called after each system call or more with the number of bytes written since.

    Raises:
        OSError: as the system says.
    """
    at = 0
    for pieces in _batches(arrays, aligned):
        for piece in pieces:
            if piece.via is not None:
                np.copyto(piece.via, piece.array)
        left = [piece.memory for piece in pieces]
        start = at
        while left:
            moved = _advance(left, os.pwritev(fd, left, at))
            if moved == 0:  # less than a page: the last bytes before an end of space
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            at += moved
        between(at - start)


def read_ranges(
    fd: int, ranges: Sequence[ByteRange], arrays: Sequence[ByteArray], *, aligned: bool
) -> None:
    """Read each range into its array; ranges that follow each other are read together. Blocks.

    Raises:
        ObjectCorrupt: the file ends before a range does.
        OSError: as the system says.
    """
    run: list[ByteArray] = []
    start = end = 0
    for span, array in zip(ranges, arrays, strict=True):
        if span.start != end and run:
            _read_run(fd, start, run, aligned=aligned)
            run = []
        if not run:
            start = span.start
        run.append(array)
        end = span.end
    _read_run(fd, start, run, aligned=aligned)


def _read_run(fd: int, at: int, arrays: Sequence[ByteArray], *, aligned: bool) -> None:
    for pieces in _batches(arrays, aligned):
        left = [piece.memory for piece in pieces]
        while left:
            moved = _advance(left, os.preadv(fd, left, at))
            if moved == 0:
                raise ObjectCorrupt(f"the file ends at {at}, before what is to be read of it")
            at += moved
        for piece in pieces:
            if piece.via is not None:
                np.copyto(piece.array, piece.via)


@dataclass(slots=True)
class _Piece:
    """A part of an array that one call moves, and the aligned memory it goes through, if any."""

    array: ByteArray
    via: ByteArray | None

    @property
    def memory(self) -> memoryview:
        return (self.array if self.via is None else self.via).data


def _batches(arrays: Sequence[ByteArray], aligned: bool) -> Iterator[list[_Piece]]:
    """The arrays in pieces, as many together as one call may take."""
    pieces: list[_Piece] = []
    nbytes = bounced = 0
    bounce: ByteArray | None = None
    for array in arrays:
        direct = not aligned or array.ctypes.data % ALIGNMENT == 0
        start = 0
        while start < len(array):
            room = CALL_BYTES - nbytes
            if not direct:
                room = min(room, BOUNCE_BYTES - bounced)
            if room == 0 or len(pieces) == ARRAYS_MAX:
                yield pieces
                pieces, nbytes, bounced = [], 0, 0
                continue
            piece = _Piece(array[start : start + room], None)
            size = len(piece.array)
            if not direct:
                bounce = aligned_buffer(BOUNCE_BYTES) if bounce is None else bounce
                piece.via = bounce[bounced : bounced + size]
                bounced += size
            pieces.append(piece)
            nbytes += size
            start += size
    if pieces:
        yield pieces


def _advance(left: list[memoryview], count: int) -> int:
    """Take what a call moved off the front of `left`; how far the offset moves.

    A call that moved less than it was asked to may stop anywhere. What follows has to start at a
    whole multiple of `ALIGNMENT`, so a broken one is moved again.
    """
    moved = rest = count // ALIGNMENT * ALIGNMENT
    while left and rest >= len(left[0]):
        rest -= len(left.pop(0))
    if rest:
        left[0] = left[0][rest:]
    return moved
