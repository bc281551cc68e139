"""Stored state is read into memory for a request that waits for its slot."""

import itertools

import pytest

from anchorline.adapters.memory.checkable_copies import CheckableCopies
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.entry_write import Progress
from anchorline.application.read_queue import BLOCKS_AHEAD, STAGED_MODEST
from anchorline.application.restore import Restore
from anchorline.domain.entry import Source, Tier
from anchorline.domain.errors import EngineError
from anchorline.domain.taint_line import Gate
from anchorline.simulation.box import Box
from support.builders import a_prompt, a_request
from support.reading_ahead import (
    PLENTY,
    RUNS,
    assert_nothing_is_held,
    busy,
    counts_of,
    decision_of,
    ids,
    no_place,
    prefetch_of,
    pump,
    ram_of,
    stored,
)


@pytest.fixture(params=["placed", "imported"])
def ways_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once lanes bring rows into copies by themselves, once the engine thread imports them."""
    if request.param == "imported":
        monkeypatch.setattr(CheckableCopies, "place_rows", no_place)


@pytest.mark.usefixtures("ways_in")
@pytest.mark.parametrize("parts", list(Parts))
@pytest.mark.parametrize("invariant", [False, True])
def test_a_queued_request_finds_its_conversation_in_memory(parts: Parts, invariant: bool) -> None:
    box = Box(ram_bytes_max=PLENTY, parts=parts, row_invariant=invariant)
    [end] = stored(box, ids(0, 60))
    running = busy(box)
    request = box.server.submit([*end, 5, 6])
    pump(box, lambda: counts_of(box).arrived == 1)
    assert not box.server.ended(running), "it was read while the other request ran"
    read = box.disk.tier.counters.bytes_read

    decision = decision_of(box, request)

    assert (decision.tier, decision.source, decision.cached) == (Tier.RAM, Source.PARK, len(end))
    assert decision.gate is (Gate.BITWISE if invariant else Gate.PRESERVED)
    assert box.disk.tier.counters.bytes_read == read, "and nothing of it was read again"
    assert box.disk.tier.counters.restores == 0
    assert_nothing_is_held(box)


def test_a_prefix_that_others_share_is_read_ahead_as_well() -> None:
    box = Box(ram_bytes_max=PLENTY)
    head = ids(0, 40)
    stored(box, [*head, *ids(50, 9)])
    busy(box)
    request = box.server.submit([*head, *ids(70, 5)])
    pump(box, lambda: counts_of(box).arrived == 1)

    decision = decision_of(box, request)

    assert (decision.tier, decision.cached, decision.gate) == (Tier.RAM, 40, Gate.BITWISE)


def test_what_two_requests_wait_for_is_read_once() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    busy(box)
    requests = [box.server.submit([*end, more]) for more in (5, 6)]
    pump(box, lambda: counts_of(box).arrived == 1)
    decisions = [decision_of(box, request) for request in requests]

    assert (counts_of(box).begun, counts_of(box).joined) == (1, 1)
    assert [one.cached for one in decisions] == [len(end)] * 2
    assert decisions[0].tier is Tier.RAM


def test_what_two_requests_want_of_one_entry_is_read_once_for_both() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    busy(box)
    edited = box.server.submit([*end[:52], 96, 96])
    went_on = box.server.submit([*end, 5])
    pump(box, lambda: counts_of(box).arrived == 1)
    (entry,) = ram_of(box).entries
    lines = [anchor.line for anchor in entry.state.anchors]
    decisions = [decision_of(box, one) for one in (edited, went_on)]

    assert (counts_of(box).begun, lines) == (1, [48, len(end)])
    assert decisions[0].tier is Tier.RAM
    assert [one.cached for one in decisions] == [48, len(end)]


def test_the_next_one_in_the_queue_is_read_after_the_first() -> None:
    box = Box(ram_bytes_max=PLENTY)
    ends = stored(box, ids(0, 60), ids(40, 60))
    busy(box)
    requests = [box.server.submit([*end, 5]) for end in ends]
    pump(box, lambda: counts_of(box).arrived == 2)
    kept = [entry.line for entry in ram_of(box).entries]
    decisions = [decision_of(box, request) for request in requests]

    assert kept == [len(end) for end in ends]
    assert decisions[0].tier is Tier.RAM
    assert [one.cached for one in decisions] == [len(end) for end in ends]


def test_a_read_that_nobody_waits_for_any_more_is_given_up() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    busy(box)
    first = box.server.submit([*end, 5])
    pump(box, lambda: ram_of(box).reserved() > 0)
    second = box.server.submit([*end, 6])
    box.server.step()

    box.server.cancel(first)
    under_way = prefetch_of(box).fetch is not None
    box.server.cancel(second)

    assert under_way, "the other one waited for it still"
    assert counts_of(box).joined == 1
    assert (counts_of(box).abandoned, counts_of(box).arrived) == (1, 0)
    assert_nothing_is_held(box)
    assert ram_of(box).nbytes == 0


@pytest.mark.usefixtures("ways_in")
@pytest.mark.parametrize("steps", range(1, 24))
def test_at_whatever_moment_its_client_leaves_nothing_is_left_behind(steps: int) -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    busy(box)
    request = box.server.submit([*end, 5])
    for _ in range(steps):
        box.jobs.step()
        box.server.step()

    box.server.cancel(request)
    box.server.run()

    assert_nothing_is_held(box)
    assert box.server.ask([*end, 5]).decision.cached == len(end)


@pytest.mark.parametrize("steps", range(1, 24))
def test_at_whatever_moment_a_slot_is_free_the_read_goes_on_for_its_request(steps: int) -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    running = busy(box)
    request = box.server.submit([*end, 5])
    for _ in range(steps):
        box.jobs.step()
        box.server.step()
    begun = counts_of(box).begun
    box.server.cancel(running)

    decision = decision_of(box, request)

    assert (decision.cached, decision.tier) == (len(end), Tier.RAM if begun else Tier.DISK)
    assert counts_of(box).begun == counts_of(box).arrived == begun
    assert_nothing_is_held(box)


def test_a_client_that_leaves_while_its_slot_waits_for_the_read_gives_it_up() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    running = busy(box)
    request = box.server.submit([*end, 5])
    pump(box, lambda: ram_of(box).reserved() > 0)
    box.server.cancel(running)
    (slot,) = box.server.scheduler.slots
    while slot.preparing is None:
        box.server.step()
    assert slot.preparing.fetch is not None

    box.server.cancel(request)

    assert counts_of(box).abandoned == 1
    assert_nothing_is_held(box)


@pytest.mark.usefixtures("ways_in")
def test_what_is_damaged_is_found_out_ahead_and_is_never_used() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    (entry,) = box.disk.tier.entries()
    name = entry.blocks[4].name
    box.storage.overwrite(name, bytes(100) + box.storage.content(name)[100:])
    busy(box)
    request = box.server.submit([*end, 5])
    pump(box, lambda: counts_of(box).failed == 1)

    decision = decision_of(box, request)

    assert box.disk.tier.counters.quarantined == 1
    assert decision.cached <= 32
    assert_nothing_is_held(box)


def test_what_is_found_damaged_once_a_request_has_its_slot_is_told_to_it() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    (entry,) = box.disk.tier.entries()
    name = entry.blocks[6].name
    box.storage.overwrite(name, bytes(100) + box.storage.content(name)[100:])
    running = busy(box)
    request = box.server.submit([*end, 5])
    pump(box, lambda: ram_of(box).reserved() > 0)
    box.server.cancel(running)

    decision = decision_of(box, request)

    assert (decision.quarantined, decision.cached <= 48) == (1, True)
    assert (decision.refused[0].source, decision.refused[0].line) == (
        Source.CONVERSATION,
        len(end),
    )
    assert_nothing_is_held(box)


def test_it_takes_a_tenth_of_the_time_of_a_server_that_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    running = busy(box, tokens=200)
    request = box.server.submit([*end, 5])
    pieces: list[float] = []
    step = Restore.step

    def slow(restore: Restore, *, wait: bool, read_on: bool = True) -> Progress:
        pieces.append(box.clock.monotonic())
        box.clock.advance(0.002)
        return step(restore, wait=wait, read_on=read_on)

    monkeypatch.setattr(Restore, "step", slow)
    for _ in range(100):
        box.jobs.step()
        box.server.step()
    gaps = [later - earlier for earlier, later in itertools.pairwise(pieces)]

    assert len(pieces) > 3
    assert min(gaps) >= 0.02
    box.server.cancel(running)
    assert decision_of(box, request).cached == len(end), "and all of it where nothing else runs"


def test_a_fault_of_the_server_ends_it_too() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    running = busy(box)
    box.server.submit([*end, 5])
    pump(box, lambda: ram_of(box).reserved() > 0)
    box.server.cancel(running)
    (slot,) = box.server.scheduler.slots
    while slot.preparing is None:
        box.server.step()

    box.server.scheduler.abort(EngineError("a fault"))

    assert counts_of(box).abandoned == 1
    assert_nothing_is_held(box)


def test_a_gate_is_told_as_the_medium_would_have_told_it() -> None:
    box = Box(ram_bytes_max=PLENTY)
    request = box.server.submit(ids(0, 30), max_tokens=12)
    box.server.run()
    [end] = stored(box, [*box.server.sequences[request].tolist(), *ids(50, 60)])
    busy(box)
    edited = box.server.submit([*end[:90], 96, 96, 96, 96, 96, 96])
    pump(box, lambda: counts_of(box).arrived == 1)
    (entry,) = ram_of(box).entries
    clean = [block.span.end for block in entry.blocks if block.clean]

    decision = decision_of(box, edited)

    assert (decision.cached, decision.gate) == (88, Gate.PRESERVED), "an answer stands below"
    assert clean == [8, 16, 24]


def test_nothing_is_read_on_while_what_has_arrived_is_brought_into_a_slot() -> None:
    box = Box(ram_bytes_max=PLENTY, slots=2)
    first, second = stored(box, ids(0, 200), ids(40, 200))
    running = busy(box, tokens=200)
    box.server.submit([*first, 5])
    box.server.submit([*second, 5])
    pump(box, lambda: counts_of(box).arrived == 1, steps=100)
    pump(box, lambda: ram_of(box).reserved() > 0)
    fetch = prefetch_of(box).fetch
    assert fetch is not None
    assert fetch.restore is not None
    box.server.cancel(running)
    read: list[int] = []
    while not read or any(slot.preparing for slot in box.server.scheduler.slots):
        box.server.step()
        box.jobs.run_all()
        read.append(fetch.restore.objects_read)

    assert len(read) > 20
    assert read[-1] - read[0] <= BLOCKS_AHEAD
    box.server.run()
    assert_nothing_is_held(box)


def test_few_staging_buffers_are_taken_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckableCopies, "place_rows", no_place)
    box = Box(ram_bytes_max=PLENTY, staging_count=8)
    [end] = stored(box, ids(0, 120))
    busy(box)
    box.server.submit([*end, 5])
    taken: list[int] = []
    while not counts_of(box).arrived:
        box.server.step()
        taken.append(box.disk.pool.lent)
        box.jobs.step()

    assert max(taken) == STAGED_MODEST


def test_who_asks_for_what_another_ones_slot_waits_for_is_foreseen_to_find_it() -> None:
    box = Box(ram_bytes_max=PLENTY, slots=2)
    [end] = stored(box, ids(0, 60))
    busy(box)
    box.server.submit([*end, 5])
    pump(box, lambda: ram_of(box).reserved() > 0)
    for running in list(box.server.requests)[:2]:
        box.server.cancel(running)
    box.server.step()
    assert prefetch_of(box).fetch is not None, "one slot waits for it, and one is idle"
    prompt = [*end, 6]

    peeked = box.server.scheduler.peek(a_request(a_prompt(prompt)))
    decision = decision_of(box, box.server.submit(prompt))

    assert (peeked.tier, peeked.source, peeked.line) == (Tier.RAM, Source.PARK, len(end))
    assert (decision.tier, decision.source, decision.cached) == (
        Tier.RAM,
        Source.PARK,
        len(end),
    )
    assert counts_of(box).begun == 1


def test_other_peoples_state_is_never_read_ahead() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    busy(box)
    request = box.server.submit([*end, 5], salt="another")
    for _ in range(30):
        box.jobs.step()
        box.server.step()

    assert counts_of(box).begun == 0
    assert decision_of(box, request).gate is Gate.COLD


@pytest.mark.usefixtures("ways_in")
def test_a_request_whose_state_is_being_restored_goes_first() -> None:
    """With one staging buffer for all: none of the two waits for the other for ever."""
    for steps in range(1, 30, 3):
        box = Box(ram_bytes_max=PLENTY, slots=2, staging_count=1)
        first, second = stored(box, ids(0, 60), ids(40, 60))
        busy(box)
        ahead = box.server.submit([*first, 5])
        for _ in range(steps):
            box.jobs.step()
            box.server.step()
        next_one = box.server.submit([*second, 5])
        for request in list(box.server.requests)[:2]:
            box.server.cancel(request)

        assert decision_of(box, ahead).cached == len(first)
        assert decision_of(box, next_one).cached == len(second)
        assert_nothing_is_held(box)


def test_nothing_is_read_ahead_while_a_requests_own_state_is_brought_in() -> None:
    box = Box(ram_bytes_max=PLENTY, slots=2)
    first, second = stored(box, ids(0, 60), ids(40, 60))
    box.server.cancel(busy(box))
    restoring = box.server.submit([*first, 5], max_tokens=RUNS)
    waiting = box.server.submit([*second, 5])
    preparing = 0
    while restoring not in box.server.started:
        box.server.step()
        if any(slot.preparing is not None for slot in box.server.scheduler.slots):
            preparing += 1
            assert counts_of(box).begun == 0
        box.jobs.step()

    pump(box, lambda: counts_of(box).arrived == 1)

    assert preparing > 3
    assert decision_of(box, waiting).tier is Tier.RAM


def test_without_memory_or_a_medium_or_the_wish_there_is_none() -> None:
    assert Box().server.scheduler.prefetch is None
    assert Box(ram_bytes_max=PLENTY, disk_enabled=False).server.scheduler.prefetch is None
    assert Box(ram_bytes_max=PLENTY, cache_enabled=False).server.scheduler.prefetch is None
    assert Box(ram_bytes_max=PLENTY).server.scheduler.prefetch is not None
