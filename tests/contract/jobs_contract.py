"""What `ports/jobs.py` promises, as tests over any adapter."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest

from anchorline.domain.errors import Unavailable
from anchorline.ports.jobs import JobHandle, Jobs, JobStatus

T = TypeVar("T")

LANES = ("copy", "write")
QUEUE_MAX = 3


class JobsContract(ABC):
    """Holds an adapter to its port."""

    @abstractmethod
    def make_jobs(self) -> Jobs:
        """New jobs with the lanes `LANES`, in each of which `QUEUE_MAX` jobs may wait."""

    @abstractmethod
    def finish(self, jobs: Jobs) -> None:
        """Come back when every job that was submitted has ended."""

    @abstractmethod
    def held(self, jobs: Jobs, lane: str) -> AbstractContextManager[None]:
        """While the context is open no job of the lane begins."""

    def test_a_job_runs_once_and_is_done(self) -> None:
        jobs = self.make_jobs()
        ran: list[int] = []

        handle = jobs.submit("copy", lambda: ran.append(1))
        self.finish(jobs)

        assert ran == [1]
        assert jobs.poll(handle) is JobStatus.DONE
        assert jobs.result(handle) is None

    def test_a_job_that_has_not_begun_is_waiting(self) -> None:
        jobs = self.make_jobs()

        with self.held(jobs, "copy"):
            handle = jobs.submit("copy", lambda: None)
            assert jobs.poll(handle) is JobStatus.WAITING
        self.finish(jobs)

        assert jobs.poll(handle) is JobStatus.DONE

    def test_a_job_is_running_while_it_runs(self) -> None:
        jobs = self.make_jobs()
        seen: list[JobStatus] = []
        handles: list[JobHandle] = []

        with self.held(jobs, "copy"):
            handles.append(jobs.submit("copy", lambda: seen.append(jobs.poll(handles[0]))))
        self.finish(jobs)

        assert seen == [JobStatus.RUNNING]

    def test_a_wait_that_has_a_time_tells_whether_the_job_ended_in_it(self) -> None:
        jobs = self.make_jobs()

        with self.held(jobs, "copy"):
            _, second = (jobs.submit("copy", lambda: None) for _ in range(2))
            assert not jobs.wait(second, 0.01)
        waited = jobs.wait(second)

        assert waited
        assert jobs.wait(second, 0.01)
        assert jobs.poll(second) is JobStatus.DONE

    def test_what_a_job_raises_is_its_result_and_the_lane_goes_on(self) -> None:
        jobs = self.make_jobs()
        error = OSError("no space is left")

        failed = jobs.submit("write", raising(error))
        after = jobs.submit("write", lambda: None)
        self.finish(jobs)

        assert jobs.poll(failed) is JobStatus.FAILED
        assert jobs.result(failed) is error
        assert jobs.poll(after) is JobStatus.DONE

    def test_even_a_job_that_wants_the_process_to_end_only_fails(self) -> None:
        jobs = self.make_jobs()
        error = SystemExit(3)

        failed = jobs.submit("write", raising(error))
        after = jobs.submit("write", lambda: None)
        self.finish(jobs)

        assert jobs.result(failed) is error
        assert jobs.poll(after) is JobStatus.DONE

    def test_a_result_is_given_once(self) -> None:
        jobs = self.make_jobs()
        handle = jobs.submit("copy", lambda: None)
        self.finish(jobs)
        jobs.result(handle)

        with pytest.raises(ValueError, match=str(handle)):
            jobs.result(handle)

    def test_a_job_that_has_not_ended_has_no_result(self) -> None:
        jobs = self.make_jobs()

        with self.held(jobs, "copy"):
            handle = jobs.submit("copy", lambda: None)
            with pytest.raises(ValueError, match="waiting"):
                jobs.result(handle)
        self.finish(jobs)

        assert jobs.result(handle) is None

    def test_an_unknown_handle_has_no_result(self) -> None:
        with pytest.raises(ValueError, match="12345"):
            self.make_jobs().result(JobHandle(12345))

    def test_a_lane_runs_its_jobs_in_the_order_they_were_submitted(self) -> None:
        jobs = self.make_jobs()
        ran: list[tuple[str, int]] = []

        with self.held(jobs, "copy"), self.held(jobs, "write"):
            for number in range(QUEUE_MAX):
                for lane in LANES:
                    jobs.submit(lane, appending(ran, (lane, number)))
        self.finish(jobs)

        for lane in LANES:
            assert [number for at, number in ran if at == lane] == list(range(QUEUE_MAX))

    def test_a_full_queue_takes_nothing_and_loses_nothing(self) -> None:
        jobs = self.make_jobs()
        ran: list[int] = []

        with self.held(jobs, "copy"):
            for number in range(QUEUE_MAX):
                jobs.submit("copy", appending(ran, number))
            with pytest.raises(Unavailable) as caught:
                jobs.submit("copy", appending(ran, -1))
            assert caught.value.retry_after_s > 0
            # The other lane has a queue of its own.
            jobs.submit("write", appending(ran, 100))
        self.finish(jobs)

        assert sorted(ran) == [0, 1, 2, 100]

    def test_a_queue_that_was_full_takes_jobs_again(self) -> None:
        jobs = self.make_jobs()
        with self.held(jobs, "copy"):
            for _ in range(QUEUE_MAX):
                jobs.submit("copy", lambda: None)
        self.finish(jobs)

        handle = jobs.submit("copy", lambda: None)
        self.finish(jobs)

        assert jobs.poll(handle) is JobStatus.DONE

    def test_a_job_may_submit_jobs(self) -> None:
        jobs = self.make_jobs()
        ran: list[str] = []

        def first() -> None:
            jobs.submit("copy", appending(ran, "second"))
            ran.append("first")

        jobs.submit("copy", first)
        self.finish(jobs)
        self.finish(jobs)  # a thread may have taken the second after the first `finish` looked

        assert ran == ["first", "second"]


def raising(error: BaseException) -> Callable[[], None]:
    def job() -> None:
        raise error

    return job


def appending(to: list[T], value: T) -> Callable[[], None]:
    return lambda: to.append(value)
