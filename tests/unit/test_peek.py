"""What a request would resume from is told before it is asked."""

from collections.abc import Sequence

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.limits import Limits
from anchorline.application.peek import Nearest, Peeked
from anchorline.application.request import Event, Finished, GenerationRequest
from anchorline.application.response_cache import ResponseCache
from anchorline.application.scheduler import Scheduler
from anchorline.domain.anchor import AnchorKind
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.entry import Source, Tier
from anchorline.domain.namespace import Namespace
from anchorline.domain.sampling import SamplingParams
from anchorline.domain.taint_line import Gate
from anchorline.simulation.box import GRID, Box
from anchorline.simulation.history import History
from support.builders import a_prompt, a_request

PLENTY = 1 << 20


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at + at * at) % 97 for at in range(count)]


def peek(server: History, prompt: Sequence[int], *, salt: str = "") -> Peeked:
    request = a_request(a_prompt(list(prompt)), namespace=Namespace(salt=salt), session="mine")
    return server.scheduler.peek(request)


def resident(server: History) -> list[int]:
    return server.scheduler.slots[0].resident.ids.tolist()


def test_an_empty_server_has_nothing() -> None:
    box = Box(ram_bytes_max=PLENTY)

    peeked = peek(box.server, ids(0, 30))

    assert (peeked.tier, peeked.source, peeked.gate) == (Tier.NONE, Source.NONE, Gate.COLD)
    assert (peeked.line, peeked.reread, peeked.tokens) == (0, 30, 30)
    assert (peeked.restore_s, peeked.session) == (0.0, "mine")
    assert peeked.first_token_s == pytest.approx(30 / 1000)
    assert peeked.nearest == Nearest(shares=0, parts_at=0)


def test_of_what_stands_in_the_slot_it_is_known_where_the_prompt_parts() -> None:
    box = Box()
    box.server.ask(ids(0, 60))
    end = resident(box.server)

    next_turn = peek(box.server, [*end, 5, 6])
    edited = peek(box.server, [*end[:43], 96, 96, 96, 96, 96])
    again = peek(box.server, end)

    assert (next_turn.source, next_turn.line, next_turn.reread) == (Source.END, len(end), 2)
    assert next_turn.nearest == Nearest(len(end), len(end))
    assert (edited.source, edited.gate, edited.line) == (Source.RESIDENT, Gate.BITWISE, 40)
    assert edited.nearest == Nearest(43, 43)
    assert again.nearest == Nearest(len(end), None)


def test_of_what_stands_elsewhere_it_is_known_to_a_grid_line() -> None:
    box = Box(ram_bytes_max=PLENTY)
    box.server.ask(ids(0, 60))
    end = resident(box.server)
    box.flush()
    box.server.ask(ids(40, 100))
    in_memory = peek(box.server, [*end[:43], 96, 96, 96, 96, 96, 96])
    box.kill()
    on_disk = peek(box.server, [*end[:43], 96, 96, 96, 96, 96, 96])

    for peeked, tier in ((in_memory, Tier.RAM), (on_disk, Tier.DISK)):
        assert (peeked.tier, peeked.line, peeked.gate) == (tier, 40, Gate.BITWISE)
        assert peeked.nearest == Nearest(40, 40 + GRID)
        assert 0 < peeked.restore_s < peeked.first_token_s


def test_where_the_server_is_busy_it_is_told_what_stands_there_now() -> None:
    box = Box(ram_bytes_max=PLENTY)
    box.server.ask(ids(0, 60))
    end = resident(box.server)
    running = box.server.submit(ids(40, 30), max_tokens=50)
    waiting = box.server.submit(ids(80, 30))
    for _ in range(10):
        box.server.step()

    peeked = peek(box.server, [*end, 5])

    assert (peeked.tier, peeked.line) == (Tier.RAM, len(end))
    assert not box.server.ended(running)
    assert waiting not in box.server.started


def test_what_is_on_its_way_to_the_medium_is_foreseen_there() -> None:
    box = Box()
    box.server.ask(ids(0, 60))
    end = resident(box.server)
    box.server.submit(ids(40, 100))
    while not box.server.scheduler.slots[0].resident.length > 60:
        box.server.step()
    box.server.run()
    assert box.disk.writes.pending == 1

    peeked = peek(box.server, [*end, 5])
    finished = box.server.ask([*end, 5])

    assert (peeked.tier, peeked.source, peeked.line) == (Tier.DISK, Source.CONVERSATION, len(end))
    assert (finished.decision.tier, finished.decision.cached) == (Tier.DISK, len(end))


def test_anchors_that_a_conversation_will_not_keep_on_the_medium_are_not_waited_for() -> None:
    """It keeps the newest few of those that it and the one that it replaces have together."""
    box = Box()
    box.server.ask(ids(0, 100))
    end = resident(box.server)
    assert box.flush().durable
    box.server.scheduler.clear(ram=True, disk=False)
    box.server.ask(ids(0, 20))
    box.server.ask([*end, 5, 6])
    box.server.submit(ids(40, 100))
    while box.server.scheduler.slots[0].running is None:
        box.server.step()
    box.server.run()
    (write,) = box.disk.writes.of_slot(0)
    assert (16, AnchorKind.GRID) in write.work.anchors
    parting = [*ids(0, 20), 96, 96]

    peeked = peek(box.server, parting)
    request = box.server.submit(parting, max_tokens=0)
    box.server.step()
    preparing = box.server.scheduler.slots[0].preparing
    awaited = None if preparing is None else preparing.awaited
    box.server.run()

    finished = box.server.finished(request)
    assert finished is not None
    assert peeked.line == finished.decision.cached == 0
    assert awaited is None


def test_another_salt_has_nothing_of_it() -> None:
    box = Box(ram_bytes_max=PLENTY)
    box.server.ask(ids(0, 60), salt="a")
    end = resident(box.server)

    peeked = peek(box.server, [*end, 5], salt="b")

    assert (peeked.line, peeked.nearest.shares) == (0, 0)


def test_nothing_is_foreseen_where_nothing_is_kept() -> None:
    box = Box(cache_enabled=False)
    box.server.ask(ids(0, 60))

    assert peek(box.server, ids(0, 60)).tier is Tier.NONE


def test_an_answer_that_is_given_again_needs_nothing() -> None:
    clock, telemetry = ManualClock(), RecordingTelemetry()
    responses = ResponseCache(clock, telemetry, bytes_max=1 << 20, ttl_s=60.0)
    scheduler = Scheduler(
        CheckableEngine(slots=1, grid=8, window=256),
        ToyTokenizer(),
        clock,
        telemetry,
        Limits(queue_max=4, anchors=AnchorBudget(1 << 20), cache_enabled=True),
        responses=responses,
    )
    sampling = SamplingParams(temperature=0.0)
    asked = a_request(a_prompt(ids(0, 30)), id="r1", sampling=sampling)
    other = a_request(a_prompt(ids(0, 30)), id="r2", sampling=sampling, max_tokens=9)

    def answered(request: GenerationRequest) -> Finished:
        events: list[Event] = []
        scheduler.submit(request, events.append)
        while not scheduler.idle:
            scheduler.step()
        last = events[-1]
        assert isinstance(last, Finished)
        return last

    answered(asked)
    before = responses.stats()
    again, not_that = scheduler.peek(asked), scheduler.peek(other)

    assert (again.tier, again.source, again.line) == (Tier.RAM, Source.RESPONSE, 30)
    assert (again.reread, again.first_token_s) == (0, 0.0)
    assert not_that.source is not Source.RESPONSE
    assert responses.stats() == before
    told = answered(asked).decision
    assert (told.source, told.gate) == (again.source, again.gate)
    clock.advance(61.0)
    assert scheduler.peek(asked).source is not Source.RESPONSE
