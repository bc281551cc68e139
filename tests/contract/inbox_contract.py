"""What `ports/inbox.py` promises, as tests over any adapter."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import pytest

from anchorline.domain.errors import Draining
from anchorline.ports.inbox import Inbox

T = TypeVar("T")


class InboxContract(ABC):
    """Holds an adapter to its port."""

    @abstractmethod
    def make_inbox(self) -> Inbox:
        """A new inbox that takes calls."""

    @abstractmethod
    def finish(self, inbox: Inbox) -> None:
        """Come back when every call that was posted so far has run."""

    @abstractmethod
    def stop(self, inbox: Inbox) -> None:
        """Stop the thread behind it."""

    def test_calls_run_once_in_the_order_they_were_posted(self) -> None:
        inbox = self.make_inbox()
        ran: list[int] = []

        for number in range(100):
            inbox.post(appending(ran, number))
        self.finish(inbox)

        assert ran == list(range(100))

    def test_a_call_that_raises_changes_nothing_for_the_next(self) -> None:
        inbox = self.make_inbox()
        ran: list[int] = []

        inbox.post(appending(ran, 1))
        inbox.post(failing)
        inbox.post(appending(ran, 2))
        self.finish(inbox)

        assert ran == [1, 2]

    def test_a_call_that_raises_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        inbox = self.make_inbox()

        inbox.post(failing)
        self.finish(inbox)

        (record,) = caplog.records
        assert record.levelname == "ERROR"
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], RuntimeError)

    def test_a_call_posted_by_a_call_runs_after_it(self) -> None:
        inbox = self.make_inbox()
        ran: list[str] = []

        def first() -> None:
            inbox.post(appending(ran, "posted"))
            ran.append("first")

        inbox.post(first)
        self.finish(inbox)

        assert ran == ["first", "posted"]

    def test_a_stopped_inbox_takes_no_calls(self) -> None:
        inbox = self.make_inbox()
        self.stop(inbox)

        with pytest.raises(Draining):
            inbox.post(failing)


def failing() -> None:
    raise RuntimeError("a call failed")


def appending(to: list[T], value: T) -> Callable[[], None]:
    return lambda: to.append(value)
