"""Copies of rows in memory of the host, outside any slot.

One flat buffer holds all views of a span, in the layout's order, each from a page on, so that a
medium reads straight into it. On CUDA it is page-locked, so that a copy between it and a slot runs
at the speed of the bus, without a buffer in between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...domain.anchor import RowsHandle
from ...domain.errors import StateError
from ...domain.grid import Span
from ...domain.layout import View
from .alignment import PAGE_BYTES, aligned_starts
from .libraries import empty_host_cache
from .part_bytes import PartBytes


@dataclass(frozen=True, slots=True)
class RowsBuffer:
    """Room for some number of rows.

    Attributes:
        parts: one per view, its bytes of all rows.
        nbytes: that the buffer takes.
    """

    parts: Sequence[PartBytes]
    nbytes: int


@dataclass(frozen=True, slots=True)
class RowsCopy:
    """The rows of a span."""

    span: Span
    buffer: RowsBuffer


class RowCopies:
    """Buffers of rows by handle, and those of whole blocks that no handle names any more.

    Only these are kept: they are alike, so that each fits the next block. Buffers of other spans
    would pile up, one size beside the other.
    """

    def __init__(
        self, views: Sequence[View], *, block: int, pinned: bool, numbers: Iterator[int]
    ) -> None:
        """Allocates nothing.

        Args:
            views: of the layout, in its order.
            block: rows of a copy whose buffer is kept.
            pinned: page-locked.
            numbers: where handles come from.
        """
        self._views = tuple(views)
        self._block = block
        self._pinned = pinned
        self._numbers = numbers
        self._live: dict[RowsHandle, RowsCopy] = {}
        self._live_bytes = 0
        self._free: list[RowsBuffer] = []

    def new(self, span: Span) -> RowsHandle:
        """A live copy whose bytes are undefined."""
        reused = len(span) == self._block and self._free
        buffer = self._free.pop() if reused else self._buffer(len(span))
        handle = RowsHandle(next(self._numbers))
        self._live[handle] = RowsCopy(span, buffer)
        self._live_bytes += buffer.nbytes
        return handle

    def prepare(self) -> None:
        """One more free buffer of a whole block, every page of it written once.

        The system hands pages out when they are first written, and zeroes them: that takes several
        times as long as the copy. Page-locked memory is not taken ahead: to take it stops the
        device.
        """
        if self._pinned:
            return
        buffer = self._buffer(self._block)
        for part in buffer.parts:
            part.in_place(0, len(part)).zero_()
        self._free.append(buffer)

    def find(self, handle: RowsHandle) -> RowsCopy:
        """A live copy.

        Raises:
            StateError: there is none.
        """
        copy = self._live.get(handle)
        if copy is None:
            raise StateError(f"there is no live copy of rows {handle}")
        return copy

    def release(self, handle: RowsHandle) -> None:
        """Give a copy up, and keep its buffer if it is one of a whole block."""
        copy = self.find(handle)
        del self._live[handle]
        self._live_bytes -= copy.buffer.nbytes
        if len(copy.span) == self._block:
            self._free.append(copy.buffer)

    def counts(self) -> tuple[int, int, int]:
        """Live handles, bytes of their buffers, and bytes of free ones."""
        return len(self._live), self._live_bytes, sum(buffer.nbytes for buffer in self._free)

    def give_back(self) -> None:
        """Free the free buffers."""
        self._free.clear()
        if self._pinned:
            empty_host_cache()

    @torch.inference_mode(False)  # it is written outside inference mode as well
    def _buffer(self, count: int) -> RowsBuffer:
        sizes = [count * view.row_bytes for view in self._views]
        starts, nbytes = aligned_starts(sizes, PAGE_BYTES)
        if self._pinned and nbytes:
            # Torch takes page-locked memory by powers of two: what that adds is as gone as the
            # rest, and a part of a buffer all the same. It starts at a page by itself.
            nbytes = 1 << (nbytes - 1).bit_length()
        elif nbytes:
            nbytes += PAGE_BYTES
        data = torch.empty(nbytes, dtype=torch.uint8, pin_memory=self._pinned)
        data = data[-data.data_ptr() % PAGE_BYTES :]
        places = zip(self._views, starts, sizes, strict=True)
        return RowsBuffer([_part(view, data, start, size) for view, start, size in places], nbytes)


def _part(view: View, data: Tensor, start: int, size: int) -> PartBytes:
    return PartBytes(view.name, data[start : start + size])
