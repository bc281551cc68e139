"""What is read ahead takes memory that nobody else needs, and shares what is there."""

import numpy as np
import numpy.typing as npt

from anchorline.domain.entry import Tier
from anchorline.simulation.box import Box
from support.reading_ahead import (
    PLENTY,
    assert_nothing_is_held,
    busy,
    counts_of,
    decision_of,
    ids,
    pump,
    ram_of,
    stored,
)


def test_an_entry_for_which_there_is_no_room_is_left_to_the_slot() -> None:
    box = Box(ram_bytes_max=500)
    [end] = stored(box, ids(0, 60))
    busy(box)
    request = box.server.submit([*end, 5])
    pump(box, lambda: counts_of(box).refused == 1)

    decision = decision_of(box, request)

    assert (decision.tier, decision.cached) == (Tier.DISK, len(end))
    assert (counts_of(box).begun, counts_of(box).arrived) == (1, 0)
    assert_nothing_is_held(box)


def test_memory_that_is_needed_otherwise_is_given_back_at_once() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    busy(box)
    request = box.server.submit([*end, 5])
    pump(box, lambda: ram_of(box).reserved() > 0)
    ram = ram_of(box)

    assert ram.make_room(ram.bytes_max)

    assert (counts_of(box).abandoned, ram.nbytes) == (1, 0)
    assert decision_of(box, request).tier is Tier.DISK
    assert_nothing_is_held(box)


def test_a_server_that_runs_short_of_memory_gets_it_back() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    busy(box)
    request = box.server.submit([*end, 5])
    pump(box, lambda: ram_of(box).reserved() > 0)

    assert ram_of(box).give_back(0) == 0
    assert counts_of(box).abandoned == 0
    ram_of(box).give_back(1)

    assert (counts_of(box).abandoned, ram_of(box).reserved()) == (1, 0)
    assert decision_of(box, request).tier is Tier.DISK
    assert_nothing_is_held(box)


def test_what_the_medium_has_as_well_makes_room_for_it() -> None:
    box = Box(ram_bytes_max=PLENTY)
    first, second = stored(box, ids(0, 60), ids(40, 60))
    one = 80 * box.server.engine.profile.layout.row_bytes
    box.ram_bytes_max = one + one // 2
    box.kill()
    box.server.ask([*first, 5])
    box.flush()
    (slot,) = box.server.scheduler.slots
    displaced = slot.resident.length
    busy(box, tokens=120)
    pump(box, lambda: slot.resident.length > displaced, steps=100)
    before = ram_of(box).counts.evicted
    request = box.server.submit([*second, 5])
    pump(box, lambda: counts_of(box).arrived == 1)

    assert ram_of(box).counts.evicted > before
    assert [entry.line for entry in ram_of(box).entries] == [len(second)]
    assert decision_of(box, request).tier is Tier.RAM


def test_rows_that_memory_has_already_are_shared_and_not_read() -> None:
    box = Box(ram_bytes_max=PLENTY, slots=1)
    head = ids(0, 64)
    first, second = stored(box, [*head, *ids(50, 20)], [*head, *ids(80, 20)])
    box.server.ask([*first, 5])  # resumed above the head: its rows are clean up to there
    whole = box.disk.tier.counters.bytes_read
    busy(box)  # displaces it into memory
    request = box.server.submit([*second, 5])
    pump(box, lambda: counts_of(box).arrived == 1)
    entries = ram_of(box).entries
    shared = set(entries[0].blocks) & set(entries[1].blocks)

    assert counts_of(box).bytes_read < whole / 2
    assert [block.span.end for block in sorted(shared, key=lambda one: one.span.end)] == [
        *range(8, 65, 8)
    ]
    assert decision_of(box, request).cached == len(second)


def test_rows_in_memory_that_are_others_than_those_on_the_medium_are_not_shared() -> None:
    box = Box(ram_bytes_max=PLENTY)
    head = ids(0, 64)
    first, second = stored(box, [*head, *ids(50, 20)], [*head, *ids(80, 20)])
    box.server.ask([*first, 5])
    busy(box)
    (entry,) = ram_of(box).entries
    wrong = entry.blocks[3]
    pump(box, lambda: wrong.handle is not None)
    assert wrong.handle is not None
    box.server.engine.copies.import_rows(wrong.handle, other_rows(box, len(wrong.span)))
    request = box.server.submit([*second, 5])
    pump(box, lambda: counts_of(box).arrived == 1)
    shared = set(ram_of(box).entries[0].blocks) & set(ram_of(box).entries[1].blocks)

    assert sorted(block.span.end for block in shared) == [8, 16, 24]
    box.server.cancel(request)


def other_rows(box: Box, count: int) -> dict[str, npt.NDArray[np.uint8]]:
    views = box.server.engine.profile.layout.views
    return {view.name: np.full(count * view.row_bytes, 7, np.uint8) for view in views}


def test_what_a_queued_request_has_in_memory_does_not_leave_for_another_ones_read() -> None:
    box = Box()
    first, second = stored(box, ids(0, 60), ids(40, 60))
    one = 72 * box.server.engine.profile.layout.row_bytes
    box.ram_bytes_max = one + one // 2
    box.kill()
    box.server.ask([*first, 5])
    kept = box.server.scheduler.slots[0].resident.ids.tolist()
    box.flush()
    busy(box)
    box.server.step()
    assert len(ram_of(box).entries) == 1, "what stood in the slot is kept"
    requests = [box.server.submit([*kept, 5]), box.server.submit([*second, 5])]
    pump(box, lambda: counts_of(box).refused == 1)

    decisions = [decision_of(box, request) for request in requests]

    assert [decision.tier for decision in decisions] == [Tier.RAM, Tier.DISK]


def test_what_was_read_leaves_memory_without_being_written_again() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    busy(box)
    request = box.server.submit([*end[:52], 96])  # resumes below the entry's end
    pump(box, lambda: counts_of(box).arrived == 1)
    box.server.cancel(request)
    ram = ram_of(box)
    (entry,) = ram.entries

    assert entry.line == 48
    assert ram.is_safe(entry)
    assert ram.unsafe_victims(ram.bytes_max) == []


def test_room_that_a_running_request_will_need_for_what_it_displaces_is_left_to_it() -> None:
    box = Box(evicted_tokens_min=1000)
    [end] = stored(box, ids(0, 60))
    one = 80 * box.server.engine.profile.layout.row_bytes
    box.ram_bytes_max = one + one // 4
    box.kill()
    box.server.ask(ids(50, 60))  # nobody has written it anywhere
    displaced = box.server.scheduler.slots[0].resident.ids.tolist()
    busy(box)
    ram = ram_of(box)
    assert ram.free() > len(end) * ram.blocks.row_bytes, "hardly anything was copied yet"
    request = box.server.submit([*end, 5])
    pump(box, lambda: counts_of(box).refused == 1)

    assert decision_of(box, request).tier is Tier.DISK
    assert box.server.ask([*displaced, 5]).decision.cached == len(displaced)


def test_what_memory_alone_has_does_not_leave_for_it() -> None:
    box = Box(evicted_tokens_min=1000)
    [end] = stored(box, ids(0, 60))
    one = 80 * box.server.engine.profile.layout.row_bytes
    box.ram_bytes_max = one + one // 4
    box.kill()
    box.server.ask(ids(50, 40))  # nobody has written it anywhere
    (slot,) = box.server.scheduler.slots
    displaced = slot.resident.ids.tolist()
    busy(box)
    pump(box, lambda: slot.resident.length > len(displaced))
    request = box.server.submit([*end, 5])
    pump(box, lambda: counts_of(box).refused == 1)

    assert decision_of(box, request).tier is Tier.DISK
    assert box.server.ask([*displaced, 5]).decision.cached == len(displaced)


def test_rows_that_were_shared_and_are_gone_are_read_from_the_medium_after_all() -> None:
    box = Box(ram_bytes_max=PLENTY)
    head = ids(0, 64)
    first, second = stored(box, [*head, *ids(50, 20)], [*head, *ids(80, 20)])
    box.server.ask([*first, 5])
    busy(box)  # displaces it into memory, but most of its rows stand in the slot still
    request = box.server.submit([*second, 5])
    pump(box, lambda: ram_of(box).reserved() > 0)
    box.server.engine.fail_next_forward(after=0)  # what stands in the slot is of nothing now

    decision = decision_of(box, request)

    assert (decision.tier, decision.cached) == (Tier.DISK, len(second))
    assert (counts_of(box).begun, counts_of(box).arrived) == (1, 0)
    assert_nothing_is_held(box)
