"""Copies between device and host beside the forwards: buffers they pass through, and their stream.

Threads that save and restore state do not touch the stream that forwards run on. They copy through
page-locked buffers on a stream of their own, ordered by events, and hold the capture lock while
they issue device calls: a call that falls into a graph capture on another thread would be recorded
by it or would break it.
"""

import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor

from .alignment import PAGE_BYTES


@dataclass(frozen=True, slots=True)
class StagingCounts:
    """What a pool holds.

    Attributes:
        taken: buffers in use.
        free: buffers allocated and not in use.
        nbytes: of both.
        refused: how often `take` came back without one.
    """

    taken: int
    free: int
    nbytes: int
    refused: int


class StagingPool:
    """A bounded number of buffers of one size; callable from any thread.

    A buffer is allocated when it is first needed and kept, since page-locking one takes longer than
    filling it.
    """

    def __init__(
        self,
        buffer_bytes: int,
        buffers_max: int,
        *,
        pinned: bool,
        capture_lock: "threading.Lock | None" = None,
    ):
        """Allocates nothing.

        Args:
            buffer_bytes: of each, a multiple of the page; a power of two wastes nothing.
            buffers_max: how many there may ever be.
            pinned: page-locked, as copies beside forwards need on CUDA.
            capture_lock: held while a buffer is page-locked; see `CopyStream`.
        """
        assert buffer_bytes > 0, f"{buffer_bytes} bytes are no buffer"
        assert buffer_bytes % PAGE_BYTES == 0, f"{buffer_bytes} bytes are not whole pages"
        self._buffer_bytes = buffer_bytes
        self._buffers_max = buffers_max
        self._pinned = pinned
        self._capture_lock = threading.Lock() if capture_lock is None else capture_lock
        self._changed = threading.Condition()
        # All below is read and written under `_changed`. By address, since tensors are compared by
        # their elements; held, so that a buffer that its user drops still counts.
        self._free: deque[Tensor] = deque()
        self._taken: dict[int, Tensor] = {}
        self._refused = 0

    def take(self, timeout_s: float = 0) -> Tensor | None:
        """A buffer, the caller's until `give_back`; None if none became free in time.

        Its contents are undefined. Shape (buffer_bytes,), uint8, on the CPU.
        """
        with self._changed:
            if not self._changed.wait_for(self._has_room, timeout_s):
                self._refused += 1
                return None
            buffer = self._free.pop() if self._free else self._allocated()
            self._taken[buffer.data_ptr()] = buffer
            return buffer

    def give_back(self, buffer: Tensor) -> None:
        """End the use of a buffer that `take` gave; no copy into or out of it may be under way."""
        with self._changed:
            assert buffer.data_ptr() in self._taken, "a buffer that is not of this pool, or is free"
            self._free.append(self._taken.pop(buffer.data_ptr()))
            self._changed.notify()

    def counts(self) -> StagingCounts:
        """Current figures."""
        with self._changed:
            buffers = len(self._taken) + len(self._free)
            return StagingCounts(
                len(self._taken), len(self._free), buffers * self._buffer_bytes, self._refused
            )

    def _has_room(self) -> bool:
        return bool(self._free) or len(self._taken) < self._buffers_max

    def _allocated(self) -> Tensor:
        with self._capture_lock:
            buffer = self._empty(self._buffer_bytes)
            if buffer.data_ptr() % PAGE_BYTES == 0:
                return buffer
            # Page-locked memory is always aligned, and a page more would be rounded up to twice
            # the size; other memory is not, and costs what is asked for.
            whole = self._empty(self._buffer_bytes + PAGE_BYTES)
        start = -whole.data_ptr() % PAGE_BYTES
        return whole[start : start + self._buffer_bytes]

    def _empty(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=self._pinned)


class Event(Protocol):
    """What is used of `torch.cuda.Event`."""

    def query(self) -> bool: ...
    def synchronize(self) -> None: ...


class CopyTicket:
    """A copy that was issued; holds what it copies from and to until it is known to be done."""

    def __init__(self, event: Event | None, lock: threading.Lock, kept: tuple[Tensor, ...] = ()):
        """`event` comes when the copy is done; None where it is. Asked under `lock` only."""
        self._event = event
        self._lock = lock
        self._kept = kept

    def done(self) -> bool:
        """Whether the copy has been carried out; blocks for no more than a graph capture."""
        if self._event is not None:
            with self._lock:
                if not self._event.query():
                    return False
                self._forget()
        return True

    def wait(self) -> None:
        """Block until the copy has been carried out."""
        if self._event is not None:
            # Under the lock, too: a capture waits for some milliseconds of copy, and one during
            # which another thread waits for an event breaks.
            with self._lock:
                self._event.synchronize()
                self._forget()

    def _forget(self) -> None:
        self._event = None  # under the lock: that destroys it, which is a device call, too
        self._kept = ()


class CopyStream:
    """Copies on a side stream of a CUDA device; at once, in the caller, on a CPU.

    A copy sees everything that was issued on the caller's current stream before it. What is issued
    there afterwards does not wait for the copy: a source must not be written, and a target not be
    read, before `join` or `CopyTicket.wait`.
    """

    def __init__(self, device: torch.device, capture_lock: "threading.Lock | None" = None):
        """Makes the stream.

        Args:
            device: one end of all copies.
            capture_lock: whoever captures a graph on the device holds it meanwhile; see
                `capturing`. None makes one.
        """
        self._device = device
        self._lock = threading.Lock() if capture_lock is None else capture_lock
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def capturing(self) -> Generator[None]:
        """No copy is issued while a graph is captured inside."""
        with self._lock:
            yield

    def copy(self, source: Tensor, target: Tensor) -> CopyTicket:
        """Issue a copy of a tensor into another of its shape and dtype; returns at once on CUDA.

        Neither may be reused before the ticket is done. The end on the host should be pinned, else
        the caller waits.
        """
        assert source.shape == target.shape, f"{tuple(source.shape)} into {tuple(target.shape)}"
        assert source.dtype == target.dtype, f"{source.dtype} into {target.dtype}"
        if self._stream is None:
            target.copy_(source)
            return CopyTicket(None, self._lock)
        with self._lock, torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                target.copy_(source, non_blocking=True)
                event = torch.cuda.Event()
                event.record(self._stream)
            # A ticket that is dropped early must not give device memory to others under a copy.
            for end in (source, target):
                if end.is_cuda:
                    end.record_stream(self._stream)
        return CopyTicket(cast("Event", event), self._lock, (source, target))

    def join(self) -> None:
        """Let what is issued on the caller's current stream from now on wait for all copies."""
        if self._stream is not None:
            with self._lock:
                torch.cuda.current_stream(self._device).wait_stream(self._stream)
