"""Both inboxes against the inbox contract."""

import threading
from collections.abc import Iterator

import pytest

from anchorline.adapters.memory.direct_inbox import DirectInbox
from anchorline.adapters.system.engine_thread import EngineThread
from anchorline.ports.inbox import Inbox
from contract.inbox_contract import InboxContract

WAIT_S = 30.0
"""How long a thread may take before a test gives up; a limit, not a sleep."""


class TestDirectInbox(InboxContract):
    def make_inbox(self) -> Inbox:
        return DirectInbox()

    def finish(self, inbox: Inbox) -> None:
        pass  # calls have run when `post` returns

    def stop(self, inbox: Inbox) -> None:
        assert isinstance(inbox, DirectInbox)
        inbox.stop()

    def test_a_call_has_run_when_post_returns(self) -> None:
        ran: list[int] = []

        DirectInbox().post(lambda: ran.append(1))

        assert ran == [1]


class TestEngineThreadAsInbox(InboxContract):
    @pytest.fixture(autouse=True)
    def _stop_all(self) -> Iterator[None]:
        self.made: list[EngineThread] = []
        yield
        assert all(thread.stop(WAIT_S) for thread in self.made)

    def make_inbox(self) -> Inbox:
        thread = EngineThread(step=lambda: False, on_fault=lambda _: None)
        self.made.append(thread)
        thread.start()
        return thread

    def finish(self, inbox: Inbox) -> None:
        for _ in range(2):  # a call may have posted one behind the first of these
            done = threading.Event()
            inbox.post(done.set)
            assert done.wait(WAIT_S)

    def stop(self, inbox: Inbox) -> None:
        assert isinstance(inbox, EngineThread)
        assert inbox.stop(WAIT_S)

    def test_calls_run_on_one_thread_that_is_not_the_callers(self) -> None:
        inbox = self.make_inbox()
        threads: list[int] = []

        for _ in range(3):
            inbox.post(lambda: threads.append(threading.get_ident()))
        self.finish(inbox)

        assert len(set(threads)) == 1
        assert threads[0] != threading.get_ident()
