"""Background work on threads: one a lane."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...domain.errors import Draining, Unavailable
from ...ports.jobs import JobHandle, JobStatus


@dataclass(slots=True)
class _Record:
    """A job that was submitted and whose result nobody has taken."""

    status: JobStatus = JobStatus.WAITING
    error: BaseException | None = None
    awaited: threading.Condition | None = None
    """Of whoever waits for this job."""


class ThreadJobs:
    """Implements `ports.jobs.Jobs`; callable from any thread."""

    def __init__(self, lanes: Mapping[str, int]):
        """Starts a thread for each lane.

        Args:
            lanes: how many jobs may wait, by lane; the one that runs does not count.
        """
        self._queue_max = dict(lanes)
        # Everything below is read and written under `_lock`, and the jobs run outside it. Whoever
        # submits wakes one lane, and a job that ends wakes only who waits for it: with many short
        # jobs, threads that wake for nothing would take more of the interpreter than the jobs do.
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._submitted = {lane: threading.Condition(self._lock) for lane in lanes}
        self._waiting: dict[str, deque[tuple[JobHandle, Callable[[], None]]]] = {
            lane: deque() for lane in lanes
        }
        self._records: dict[JobHandle, _Record] = {}
        self._numbers = itertools.count(1)
        self._closing = False
        # Daemons: a job that hangs must not keep the process from ending after `close` gave up.
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name=f"jobs-{lane}", daemon=True)
            for lane in lanes
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, lane: str, job: Callable[[], None]) -> JobHandle:
        with self._lock:
            if self._closing:
                raise Draining("background jobs have been closed", retry_after_s=1)
            queue = self._waiting[lane]
            if len(queue) >= self._queue_max[lane]:
                raise Unavailable(f"{len(queue)} jobs wait in lane {lane} already", retry_after_s=1)
            handle = JobHandle(next(self._numbers))
            self._records[handle] = _Record()
            queue.append((handle, job))
            self._submitted[lane].notify()
            return handle

    def poll(self, handle: JobHandle) -> JobStatus:
        with self._lock:
            return self._record(handle).status

    def wait(self, handle: JobHandle, timeout_s: float | None = None) -> bool:
        ended = (JobStatus.DONE, JobStatus.FAILED)
        with self._lock:
            record = self._record(handle)
            if record.awaited is None:
                record.awaited = threading.Condition(self._lock)
            return record.awaited.wait_for(lambda: record.status in ended, timeout_s)

    def result(self, handle: JobHandle) -> BaseException | None:
        with self._lock:
            record = self._record(handle)
            if record.status not in (JobStatus.DONE, JobStatus.FAILED):
                raise ValueError(f"job {handle} is {record.status.value} and has no result")
            del self._records[handle]
            return record.error

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no job waits or runs; False if that took longer than `timeout_s`."""
        ended = (JobStatus.DONE, JobStatus.FAILED)
        with self._ended:
            return self._ended.wait_for(
                lambda: all(record.status in ended for record in self._records.values()), timeout_s
            )

    def close(self, timeout_s: float) -> bool:
        """Take no more jobs, run those that wait, end the threads; whether they all ended.

        Blocks for `timeout_s` at most. May be called again.
        """
        with self._lock:
            self._closing = True
            for submitted in self._submitted.values():
                submitted.notify_all()
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(deadline_s - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, lane: str) -> None:
        """The lane's thread: its jobs in order, until it is closed and none waits."""
        submitted = self._submitted[lane]
        while True:
            with submitted:
                submitted.wait_for(lambda: self._closing or self._waiting[lane])
                if not self._waiting[lane]:
                    return
                handle, job = self._waiting[lane].popleft()
                self._records[handle].status = JobStatus.RUNNING
            error: BaseException | None = None
            try:
                job()
            except BaseException as raised:  # whatever a job raises is its result
                error = raised
            del job  # what it holds may be large, and the next one may be long in coming
            with self._lock:
                record = self._records[handle]
                record.status = JobStatus.DONE if error is None else JobStatus.FAILED
                record.error = error
                if record.awaited is not None:
                    record.awaited.notify_all()
                self._ended.notify_all()  # for `wait_idle`

    def _record(self, handle: JobHandle) -> _Record:
        if handle not in self._records:
            raise ValueError(f"there is no job {handle}, or its result was taken")
        return self._records[handle]
