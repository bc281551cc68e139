"""The service: calls come from any thread, and what they do happens on the engine's."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.admission import Admission, Sources
from anchorline.application.calls import ChatCall, CompletionCall, GenerationWish
from anchorline.application.limits import Limits
from anchorline.application.request import Event, Failed, Finished, Queued
from anchorline.application.scheduler import Scheduler
from anchorline.application.service import Service
from anchorline.application.stats import Cleared
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.conversation import Conversation, Message
from anchorline.domain.errors import Cancelled, Draining, QueueFull, RequestError
from anchorline.domain.sampling import SamplingParams

WISH = GenerationWish(max_tokens=3)


@dataclass
class LateInbox:
    """Keeps what is posted until the engine thread comes by."""

    posted: deque[Callable[[], None]] = field(default_factory=deque[Callable[[], None]])

    def post(self, call: Callable[[], None]) -> None:
        self.posted.append(call)

    def come_by(self) -> None:
        while self.posted:
            self.posted.popleft()()


class Served:
    """A service, and the engine thread it talks to, which runs when it is told to."""

    def __init__(self, queue_max: int = 4) -> None:
        engine, tokenizer, clock = CheckableEngine(vocabulary=256), ToyTokenizer(), ManualClock()
        numbers = iter(range(1000))
        self.inbox = LateInbox()
        self.scheduler = Scheduler(
            engine,
            tokenizer,
            clock,
            RecordingTelemetry(),
            Limits(queue_max=queue_max, anchors=AnchorBudget(1 << 20), cache_enabled=True),
        )
        admission = Admission(
            engine.profile,
            tokenizer,
            clock,
            Sources(request_id=lambda: f"r{next(numbers)}", seed=lambda: 1),
            SamplingParams(),
            None,
        )
        self.service = Service(engine.profile, tokenizer, admission, self.scheduler, self.inbox)

    def submit(self, text: str) -> tuple[str, list[Event]]:
        request = self.service.prepare_completion(CompletionCall(text, WISH))
        events: list[Event] = []
        self.service.submit(request, events.append)
        return request.id, events

    def run(self) -> None:
        self.inbox.come_by()
        while self.scheduler.step():
            pass


def test_nothing_happens_to_a_request_before_the_engine_thread_comes_by() -> None:
    served = Served()
    _, events = served.submit("hello")
    before = list(events)

    served.run()

    assert before == []
    assert events[0] == Queued(ahead=0)
    assert isinstance(events[-1], Finished)


def test_a_chat_is_rendered_and_checked_on_the_callers_thread() -> None:
    served = Served()
    call = ChatCall(Conversation((Message("user", "hello"),)), WISH)

    request = served.service.prepare_chat(call)

    assert request.chat
    assert len(request.prompt) > len("hello")
    assert not served.inbox.posted


def test_what_the_engine_thread_refuses_is_told_to_the_sink_and_not_to_the_caller() -> None:
    served = Served(queue_max=1)
    served.submit("one")
    served.inbox.come_by()
    served.scheduler.step()  # it has the slot
    told = [served.submit(text)[1] for text in ("two", "three")]

    served.inbox.come_by()

    (failed,) = told[1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, QueueFull)


def test_a_request_that_is_cancelled_is_told_so_and_leaves_the_others_alone() -> None:
    served = Served()
    request, events = served.submit("one")
    _, others = served.submit("two")

    served.service.cancel(request)
    served.run()

    failed = events[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Cancelled)
    assert isinstance(others[-1], Finished)


def test_a_server_that_drains_finishes_what_it_took_and_takes_nothing_new() -> None:
    served = Served()
    _, accepted = served.submit("one")
    served.service.drain()
    _, late = served.submit("two")

    served.run()

    assert isinstance(accepted[-1], Finished)
    (failed,) = late
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Draining)


def test_questions_are_answered_on_the_engine_thread_between_two_steps() -> None:
    served = Served()
    served.submit("hello there, how are you")
    answers: list[object] = []

    served.service.stats(lambda stats: answers.append(stats.requests))
    served.run()
    before = list(answers)
    served.service.stats(lambda stats: answers.append(stats.requests))
    served.service.entries(lambda entries: answers.append([entry.id for entry in entries]))
    served.service.clear(ram=True, disk=True, answer=answers.append)
    served.service.entries(answers.append)
    served.service.flush(lambda report: answers.append((report.durable, report.tier)))
    asked = list(answers)
    served.run()

    assert before == asked == [0]
    held = len("hello there, how are you") + 3 - 1
    assert answers[1:] == [1, ["slot-0"], Cleared(held, 0), (), (False, False)]


def test_texts_and_ids_are_exchanged_without_the_engine() -> None:
    service = Served().service

    ids = service.encode("hé")

    assert service.decode(ids.tolist()) == "hé"
    assert b"".join(service.token_bytes(token) for token in ids.tolist()) == "hé".encode()
    with pytest.raises(RequestError, match="token id") as refused:
        service.decode([service.profile.vocabulary])
    assert refused.value.field == "tokens.0"


def test_a_server_that_verifies_nothing_refuses_at_once() -> None:
    served = Served()

    with pytest.raises(RequestError, match="--verify on") as refused:
        served.service.verify(1, None, lambda _: None)

    assert refused.value.code == "unsupported"
    assert not served.inbox.posted
