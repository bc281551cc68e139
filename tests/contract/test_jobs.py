"""Both kinds of jobs against the jobs contract, and what each adds."""

import threading
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from anchorline.adapters.memory.stepped_jobs import SteppedJobs
from anchorline.adapters.system.jobs import ThreadJobs
from anchorline.domain.errors import Draining
from anchorline.ports.jobs import Jobs, JobStatus
from contract.jobs_contract import LANES, QUEUE_MAX, JobsContract

WAIT_S = 30.0
"""How long a thread may take before a test gives up; a limit, not a sleep."""


class TestSteppedJobs(JobsContract):
    def make_jobs(self) -> SteppedJobs:
        return SteppedJobs(dict.fromkeys(LANES, QUEUE_MAX), seed=7)

    def finish(self, jobs: Jobs) -> None:
        assert isinstance(jobs, SteppedJobs)
        jobs.run_all()

    def held(self, jobs: Jobs, lane: str) -> AbstractContextManager[None]:
        return nullcontext()  # nothing runs before `finish`

    def test_nothing_runs_before_it_is_stepped(self) -> None:
        jobs = self.make_jobs()
        ran: list[int] = []
        jobs.submit("copy", lambda: ran.append(1))
        jobs.submit("copy", lambda: ran.append(2))
        assert (jobs.waiting, ran) == (2, [])

        assert jobs.step()

        assert (jobs.waiting, ran) == (1, [1])
        assert jobs.step()
        assert not jobs.step()

    def test_the_seed_decides_the_order_of_lanes(self) -> None:
        def order(seed: int) -> str:
            jobs = SteppedJobs({"a": 20, "b": 20}, seed=seed)
            ran: list[str] = []
            for lane in ("a", "b"):
                for _ in range(20):
                    jobs.submit(lane, lambda lane=lane: ran.append(lane))
            jobs.run_all()
            return "".join(ran)

        assert order(1) == order(1)
        assert len({order(seed) for seed in range(8)}) == 8

    def test_jobs_that_never_stop_submitting_are_found(self) -> None:
        jobs = self.make_jobs()

        def again() -> None:
            jobs.submit("copy", again)

        again()
        with pytest.raises(AssertionError, match="jobs submit jobs"):
            jobs.run_all(steps_max=10)


class TestThreadJobs(JobsContract):
    @pytest.fixture(autouse=True)
    def _close(self) -> Iterator[None]:
        self.made: list[ThreadJobs] = []
        yield
        assert all(jobs.close(WAIT_S) for jobs in self.made)

    def make_jobs(self) -> ThreadJobs:
        self.made.append(ThreadJobs(dict.fromkeys(LANES, QUEUE_MAX)))
        return self.made[-1]

    def finish(self, jobs: Jobs) -> None:
        assert isinstance(jobs, ThreadJobs)
        assert jobs.wait_idle(WAIT_S)

    @contextmanager
    def held(self, jobs: Jobs, lane: str) -> Generator[None]:
        begun, let_go = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            let_go.wait(WAIT_S)

        jobs.submit(lane, hold)
        assert begun.wait(WAIT_S)
        try:
            yield
        finally:
            let_go.set()

    def test_lanes_run_beside_each_other(self) -> None:
        jobs = self.make_jobs()
        met = threading.Barrier(2)

        handles = [jobs.submit(lane, lambda: ignore(met.wait(WAIT_S))) for lane in LANES]
        self.finish(jobs)

        assert [jobs.result(handle) for handle in handles] == [None, None]

    def test_closing_runs_what_waits_and_takes_nothing_more(self) -> None:
        jobs = self.make_jobs()
        ran: list[int] = []
        with self.held(jobs, "copy"):
            handle = jobs.submit("copy", lambda: ran.append(1))

        assert jobs.close(WAIT_S)

        assert ran == [1]
        assert jobs.result(handle) is None
        with pytest.raises(Draining):
            jobs.submit("copy", lambda: None)

    def test_closing_gives_up_on_a_job_that_hangs(self) -> None:
        jobs = self.make_jobs()

        with self.held(jobs, "copy"):
            assert not jobs.close(0.0)

        assert jobs.close(WAIT_S)

    def test_its_threads_end_with_it(self) -> None:
        jobs = self.make_jobs()
        assert {f"jobs-{lane}" for lane in LANES} <= {
            thread.name for thread in threading.enumerate()
        }

        jobs.close(WAIT_S)

        alive = [thread for thread in threading.enumerate() if thread.name.startswith("jobs-")]
        assert alive == []

    def test_an_ended_job_is_let_go_of(self) -> None:
        jobs = self.make_jobs()
        gone = threading.Event()

        class Large:
            def __del__(self) -> None:
                gone.set()

        def submit() -> None:
            large = Large()
            jobs.submit("copy", lambda: ignore(large))

        submit()
        self.finish(jobs)

        assert gone.wait(WAIT_S)

    def test_many_threads_may_submit(self) -> None:
        jobs = ThreadJobs({"copy": 10_000})
        self.made.append(jobs)
        ran: list[int] = []

        def submit_many() -> None:
            for number in range(200):
                jobs.submit("copy", lambda number=number: ran.append(number))

        threads = [threading.Thread(target=submit_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        self.finish(jobs)

        assert sorted(ran) == sorted(list(range(200)) * 4)

    def test_a_status_is_never_seen_to_go_back(self) -> None:
        jobs = self.make_jobs()
        order = [JobStatus.WAITING, JobStatus.RUNNING, JobStatus.DONE]
        handle = jobs.submit("copy", lambda: None)
        seen = [jobs.poll(handle)]

        while seen[-1] is not JobStatus.DONE:
            seen.append(jobs.poll(handle))

        assert [order.index(status) for status in seen] == sorted(map(order.index, seen))


def ignore(_: object) -> None:
    """Makes a job of an expression."""
