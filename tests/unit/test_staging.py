"""Staging buffers and copies on the CPU; scripts/gpu-check runs them on CUDA."""

import threading

import pytest
import torch

from anchorline.adapters.gpu.alignment import PAGE_BYTES
from anchorline.adapters.gpu.staging import (
    CopyStream,
    CopyTicket,
    StagingCounts,
    StagingPool,
)

WAIT_S = 30.0
"""How long a thread may take before a test gives up; a limit, not a sleep."""

SIZE = 4 * PAGE_BYTES


def pool_of(buffers_max: int) -> StagingPool:
    return StagingPool(SIZE, buffers_max, pinned=False)


class TestStagingPool:
    def test_buffers_are_whole_pages_that_start_at_pages(self) -> None:
        pool = pool_of(8)

        buffers = [pool.take() for _ in range(8)]

        for buffer in buffers:
            assert buffer is not None
            assert (buffer.dtype, buffer.shape) == (torch.uint8, (SIZE,))
            assert buffer.data_ptr() % PAGE_BYTES == 0

    def test_buffers_that_are_in_use_share_no_memory(self) -> None:
        pool = pool_of(4)
        buffers = [buffer for _ in range(4) if (buffer := pool.take()) is not None]
        for number, buffer in enumerate(buffers):
            buffer.fill_(number)

        assert [int(buffer.min()) for buffer in buffers] == [0, 1, 2, 3]
        assert [int(buffer.max()) for buffer in buffers] == [0, 1, 2, 3]

    def test_there_are_never_more_than_the_bound(self) -> None:
        pool = pool_of(2)

        assert [pool.take() is None for _ in range(4)] == [False, False, True, True]
        assert pool.counts() == StagingCounts(taken=2, free=0, nbytes=2 * SIZE, refused=2)

    def test_a_buffer_that_was_dropped_and_not_given_back_still_counts(self) -> None:
        pool = pool_of(2)

        for _ in range(2):
            pool.take()

        assert pool.take() is None
        assert pool.counts().taken == 2

    def test_nothing_is_allocated_before_it_is_needed_and_then_kept(self) -> None:
        pool = pool_of(3)
        assert pool.counts() == StagingCounts(taken=0, free=0, nbytes=0, refused=0)
        first = pool.take()
        assert first is not None

        pool.give_back(first)

        assert pool.counts() == StagingCounts(taken=0, free=1, nbytes=SIZE, refused=0)
        again = pool.take()
        assert again is not None
        assert again.data_ptr() == first.data_ptr()

    def test_who_waits_gets_the_next_buffer_that_is_given_back(self) -> None:
        pool = pool_of(1)
        held = pool.take()
        assert held is not None
        got: list[torch.Tensor | None] = []
        thread = threading.Thread(target=lambda: got.append(pool.take(WAIT_S)))
        thread.start()

        pool.give_back(held)
        thread.join(WAIT_S)

        assert got[0] is not None
        assert pool.counts().refused == 0

    def test_a_buffer_cannot_be_given_back_twice_or_to_another_pool(self) -> None:
        pool, other = pool_of(1), pool_of(1)
        buffer = pool.take()
        assert buffer is not None

        with pytest.raises(AssertionError, match="not of this pool"):
            other.give_back(buffer)
        pool.give_back(buffer)
        with pytest.raises(AssertionError, match="not of this pool"):
            pool.give_back(buffer)

    def test_no_buffer_is_page_locked_during_a_graph_capture(self) -> None:
        lock = threading.Lock()
        pool = StagingPool(SIZE, 1, pinned=False, capture_lock=lock)
        thread = threading.Thread(target=pool.take)

        with lock:
            thread.start()
            thread.join(0.01)
            assert thread.is_alive()

        thread.join(WAIT_S)
        assert not thread.is_alive()


class TestCopyStream:
    def test_a_copy_on_a_cpu_is_done_when_it_returns(self) -> None:
        stream = CopyStream(torch.device("cpu"))
        source, target = torch.arange(8), torch.zeros(8, dtype=torch.int64)

        ticket = stream.copy(source, target)

        assert ticket.done()
        ticket.wait()
        stream.join()
        assert torch.equal(source, target)

    def test_shapes_and_dtypes_must_agree(self) -> None:
        stream = CopyStream(torch.device("cpu"))

        with pytest.raises(AssertionError):
            stream.copy(torch.zeros(1), torch.zeros(8))
        with pytest.raises(AssertionError):
            stream.copy(torch.zeros(8), torch.zeros(8, dtype=torch.int32))

    def test_a_graph_capture_shares_the_lock_of_the_copies(self) -> None:
        lock = threading.Lock()
        stream = CopyStream(torch.device("cpu"), lock)

        with stream.capturing():
            assert lock.locked()
        assert not lock.locked()

    def test_a_ticket_asks_its_event_under_the_lock_and_then_no_more(self) -> None:
        lock = threading.Lock()
        event = FakeEvent(lock)
        ticket = CopyTicket(event, lock, (torch.zeros(1),))

        assert not ticket.done()
        event.came = True
        assert ticket.done()
        assert ticket.done()
        ticket.wait()
        assert event.calls == ["query", "query"]

    def test_a_ticket_that_is_waited_for_is_done(self) -> None:
        lock = threading.Lock()
        event = FakeEvent(lock)
        ticket = CopyTicket(event, lock)

        ticket.wait()

        assert ticket.done()
        assert event.calls == ["synchronize"]


class FakeEvent:
    """Stands for a CUDA event; it models no stream, only who may ask when."""

    def __init__(self, lock: threading.Lock) -> None:
        self.came = False
        self.calls: list[str] = []
        self._lock = lock

    def query(self) -> bool:
        assert self._lock.locked()
        self.calls.append("query")
        return self.came

    def synchronize(self) -> None:
        assert self._lock.locked()
        self.calls.append("synchronize")
        self.came = True
