"""The engine thread: steps while there is work, and calls between them."""

import threading
from collections.abc import Callable, Iterator

import pytest

from anchorline.adapters.system.engine_thread import EngineThread
from anchorline.domain.errors import AnchorlineError, Draining

WAIT_S = 20.0


class Steps:
    """Steps that a test lets happen, one by one."""

    def __init__(self) -> None:
        self.allowed = 0
        self.done = 0
        self.fails = False
        self.threads: set[str] = set()

    def __call__(self) -> bool:
        self.threads.add(threading.current_thread().name)
        if self.fails:
            self.fails = False
            raise ZeroDivisionError
        if self.allowed == 0:
            return False
        self.allowed -= 1
        self.done += 1
        return True


class Running:
    """An engine thread with its steps and the faults it was told of."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.faults: list[AnchorlineError] = []
        self.thread = EngineThread(self.steps, self.faults.append)
        self.thread.start()

    def after(self, call: Callable[[], None]) -> None:
        """Run a call on the thread, and wait until the steps it allowed have been taken."""
        reached = threading.Event()
        self.thread.post(call)
        self.thread.post(reached.set)
        assert reached.wait(WAIT_S)


@pytest.fixture
def running() -> Iterator[Running]:
    one = Running()
    yield one
    one.thread.stop(WAIT_S)


def test_calls_run_on_the_engine_thread_in_order(running: Running) -> None:
    seen: list[int] = []
    for number in range(20):
        running.thread.post(lambda number=number: seen.append(number))

    running.after(lambda: None)

    assert seen == list(range(20))
    assert running.steps.threads == {"anchorline-engine"}


def test_it_steps_for_as_long_as_there_is_work(running: Running) -> None:
    finished = threading.Event()

    def allow() -> None:
        running.steps.allowed = 50

    running.after(allow)
    while not finished.is_set():
        running.after(lambda: finished.set() if running.steps.allowed == 0 else None)

    assert running.steps.done == 50


def test_a_call_that_raises_changes_nothing_for_the_next(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    running.thread.post(fail)
    running.after(lambda: None)

    assert "a call to the engine thread failed" in caplog.text
    assert running.faults == []


def test_a_step_that_raises_is_reported_and_the_thread_goes_on(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        running.steps.fails = True

    running.after(fail)
    running.after(lambda: None)
    running.after(lambda: None)

    assert "a step failed" in caplog.text
    assert [str(fault) for fault in running.faults] == ["internal error: ZeroDivisionError"]


def test_a_stopped_thread_takes_nothing_more(running: Running) -> None:
    assert running.thread.stop(WAIT_S)

    with pytest.raises(Draining):
        running.thread.post(lambda: None)
