"""Work beside the engine thread."""

import enum
from collections.abc import Callable
from typing import NewType, Protocol

JobHandle = NewType("JobHandle", int)


class JobStatus(enum.Enum):
    """Where a job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Jobs(Protocol):
    """Lanes of background work; the threads behind them are nobody else's business.

    A lane runs its jobs one at a time in the order they were submitted. Lanes run beside each
    other. Nothing is promised to survive the process.
    """

    def submit(self, lane: str, job: Callable[[], None]) -> JobHandle:
        """Queue `job`; returns at once.

        Raises:
            Unavailable: the lane's queue is full.
        """
        ...

    def poll(self, handle: JobHandle) -> JobStatus:
        """Where the job stands; does not wait."""
        ...

    def wait(self, handle: JobHandle, timeout_s: float | None = None) -> bool:
        """Block until the job has ended, or until the time is over; whether it has ended.

        Raises:
            ValueError: the handle is unknown.
        """
        ...

    def result(self, handle: JobHandle) -> BaseException | None:
        """What a failed job raised, None for one that is done; forgets the handle.

        Raises:
            ValueError: the job has not ended, or the handle is unknown.
        """
        ...
