"""Background jobs that run when they are told to, in an order that a seed decides."""

import itertools
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...domain.errors import Unavailable
from ...ports.jobs import JobHandle, JobStatus


@dataclass(slots=True)
class _Record:
    """A job that was submitted and whose result nobody has taken."""

    status: JobStatus = JobStatus.WAITING
    error: BaseException | None = None


class SteppedJobs:
    """Implements `ports.jobs.Jobs` without threads: any order of lanes can be had again.

    It models lanes that overtake each other, full queues and failing jobs. It does not model two
    jobs that run at one time: each runs from its start to its end within a step.
    """

    def __init__(self, lanes: Mapping[str, int], *, seed: int = 0):
        """Makes the lanes.

        Args:
            lanes: how many jobs may wait, by lane.
            seed: decides which lane's job runs at each step.
        """
        self._queue_max = dict(lanes)
        self._waiting: dict[str, deque[tuple[JobHandle, Callable[[], None]]]] = {
            lane: deque() for lane in lanes
        }
        self._records: dict[JobHandle, _Record] = {}
        self._numbers = itertools.count(1)
        self._random = random.Random(seed)  # noqa: S311 - an order, not a secret

    @property
    def waiting(self) -> int:
        """How many jobs have not run."""
        return sum(len(queue) for queue in self._waiting.values())

    def submit(self, lane: str, job: Callable[[], None]) -> JobHandle:
        queue = self._waiting[lane]
        if len(queue) >= self._queue_max[lane]:
            raise Unavailable(f"{len(queue)} jobs wait in lane {lane} already", retry_after_s=1)
        handle = JobHandle(next(self._numbers))
        self._records[handle] = _Record()
        queue.append((handle, job))
        return handle

    def poll(self, handle: JobHandle) -> JobStatus:
        return self._record(handle).status

    def wait(self, handle: JobHandle, timeout_s: float | None = None) -> bool:
        """Let jobs run, in any order of lanes, until this one has; one of them takes all the time.

        So any medium is a slow one for those who have no time.
        """
        ended = (JobStatus.DONE, JobStatus.FAILED)
        while self._record(handle).status not in ended:
            self.step()
            if timeout_s is not None:
                break
        return self._record(handle).status in ended

    def result(self, handle: JobHandle) -> BaseException | None:
        record = self._record(handle)
        if record.status not in (JobStatus.DONE, JobStatus.FAILED):
            raise ValueError(f"job {handle} is {record.status.value} and has no result")
        del self._records[handle]
        return record.error

    def step(self) -> bool:
        """Run the first job of one lane; False if none waits."""
        lanes = [lane for lane, queue in self._waiting.items() if queue]
        if not lanes:
            return False
        handle, job = self._waiting[self._random.choice(lanes)].popleft()
        record = self._records[handle]
        record.status = JobStatus.RUNNING
        try:
            job()
            record.status = JobStatus.DONE
        except BaseException as error:  # whatever a job raises is its result
            record.status, record.error = JobStatus.FAILED, error
        return True

    def run_all(self, *, steps_max: int = 100_000) -> int:
        """Step until no job waits; how many ran."""
        for ran in range(steps_max):
            if not self.step():
                return ran
        raise AssertionError(f"jobs submit jobs: {self.waiting} wait after {steps_max} steps")

    def _record(self, handle: JobHandle) -> _Record:
        if handle not in self._records:
            raise ValueError(f"there is no job {handle}, or its result was taken")
        return self._records[handle]
