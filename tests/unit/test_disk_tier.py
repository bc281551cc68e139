"""What a conversation and its head cost after a restart, an eviction, damage."""

from functools import partial

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.entry_ids import entry_id
from anchorline.application.request import Decision
from anchorline.domain.disk_retention import Shares
from anchorline.domain.entry import Role, Source, Tier
from anchorline.domain.errors import StorageFull
from anchorline.domain.taint_line import Gate
from anchorline.domain.write_guard import WriteCause
from anchorline.ports.block_storage import ObjectName
from anchorline.simulation.box import GRID, Box


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def converse(box: Box, turns: int, start: int = 0) -> list[int]:
    """A conversation of some turns; its tokens so far, the end not forwarded."""
    sequence = ids(start, 20)
    for turn in range(turns):
        request = box.server.submit([*sequence, *ids(turn + start, 9)], max_tokens=5)
        box.server.run()
        sequence = box.server.sequences[request].tolist()
    return sequence


@pytest.mark.parametrize("parts", list(Parts))
@pytest.mark.parametrize("row_invariant", [False, True])
def test_after_a_planned_stop_only_the_new_turn_is_read(parts: Parts, row_invariant: bool) -> None:
    box = Box(parts=parts, row_invariant=row_invariant)
    sequence = converse(box, 5)
    report = box.stop()

    answer = box.server.ask([*sequence, 1, 2, 3])

    assert report.durable
    assert answer.decision.cached == len(sequence)
    assert answer.decision.reread == 3


def test_after_a_flush_and_a_kill_the_conversation_is_offered_from_disk() -> None:
    box = Box()
    sequence = converse(box, 5)
    assert box.flush().durable
    box.kill()

    answer = box.server.ask([*sequence, 1, 2, 3])

    assert answer.decision.tier is Tier.DISK
    assert answer.decision.source is Source.CONVERSATION
    assert answer.decision.gate is Gate.PRESERVED
    assert answer.decision.cached == len(sequence)


def test_after_a_power_cut_what_was_flushed_is_there() -> None:
    box = Box()
    sequence = converse(box, 3)
    box.flush()
    box.cut_power()

    assert box.server.ask([*sequence, 1]).decision.cached == len(sequence)


def test_an_edit_after_a_restart_resumes_one_grid_step_below_it() -> None:
    box = Box()
    prompt = ids(0, 150)
    box.server.ask(prompt)
    box.flush()
    box.kill()

    answer = box.server.ask([*prompt[:134], *ids(50, 16)])

    assert answer.decision.tier is Tier.DISK
    assert answer.decision.reread <= 16 + GRID
    assert answer.decision.gate is Gate.BITWISE


def test_the_third_session_with_a_head_resumes_from_it() -> None:
    box = Box()
    head = ids(0, 100)
    decisions: list[Decision] = []
    for session in range(4):
        request = box.server.submit([*head, *ids(40 + session, 30)], session=f"s{session}")
        box.server.run()
        box.settle()
        finished = box.server.finished(request)
        assert finished is not None
        decisions.append(finished.decision)
        box.server.scheduler.clear_ram()

    assert [decision.cached for decision in decisions[:2]] == [0, 0]
    assert decisions[2].cached >= 96
    assert decisions[2].source is Source.HEAD
    assert decisions[2].gate is Gate.BITWISE


def test_a_head_outlives_a_restart() -> None:
    box = Box()
    head = ids(0, 100)
    for start in (40, 60):
        box.server.ask([*head, *ids(start, 30)])
        box.settle()
        box.server.scheduler.clear_ram()
    box.kill()

    assert box.server.ask([*head, *ids(80, 30)]).decision.cached >= 96


def test_a_second_save_writes_only_what_is_new() -> None:
    box = Box()
    sequence = converse(box, 8)
    box.flush()
    first = box.disk.tier.counters.bytes_written
    box.server.ask([*sequence, *ids(3, 9)])
    box.flush()

    second = box.disk.tier.counters.bytes_written - first
    assert second < first / 2
    assert len([e for e in box.disk.tier.entries() if e.role is Role.CONVERSATION]) == 1


def test_two_conversations_with_one_head_store_it_once() -> None:
    box = Box()
    head = ids(0, 80)
    box.server.ask([*head, *ids(40, 30)])
    box.flush()
    before = len(box.names)
    box.server.ask([*head, *ids(60, 30)])
    box.flush()

    blocks = [name for name in box.names if "/blocks/" in name]
    assert len(box.names) > before
    assert len(blocks) < 2 * (110 // GRID)


def test_a_long_conversation_is_saved_before_another_takes_its_rows() -> None:
    box = Box()
    sequence = converse(box, 4)
    converse(box, 2, start=33)
    box.settle()

    answer = box.server.ask([*sequence, 1, 2, 3])

    assert answer.decision.tier is Tier.DISK
    assert answer.decision.cached == len(sequence)


def test_a_damaged_block_costs_only_what_stands_on_it() -> None:
    box = Box()
    prompt = ids(0, 100)
    box.server.ask(prompt)
    box.flush()
    entry = box.disk.tier.entries()[0]
    bad = entry.blocks[10].name
    content = bytearray(box.storage.content(bad))
    content[-3] ^= 1
    box.storage.overwrite(bad, bytes(content))
    box.kill()

    answer = box.server.ask([*prompt, 1, 2])
    again = box.server.ask([*prompt[:79], 5, 6])

    assert answer.decision.cached == 0 or answer.decision.cached <= 80
    assert answer.decision.quarantined == 1
    assert again.decision.cached <= 80


def test_a_missing_object_is_a_miss() -> None:
    box = Box()
    sequence = converse(box, 4)
    box.flush()
    entry = box.disk.tier.entries()[0]
    box.storage.delete(entry.blocks[0].name)
    box.kill()

    answer = box.server.ask([*sequence, 1, 2])

    assert answer.decision.gate is Gate.COLD


def test_state_of_other_weights_is_never_offered_and_not_destroyed() -> None:
    box = Box()
    sequence = converse(box, 4)
    box.flush()
    box.weights = "two"
    box.kill()
    missed = box.server.ask([*sequence, 1, 2])
    box.weights = "one"
    box.kill()

    assert missed.decision.cached == 0
    assert box.server.ask([*sequence, 1, 2]).decision.cached == len(sequence)


def test_what_stands_beside_foreign_entries_that_share_a_head_counts_against_the_budget() -> None:
    box = Box()
    head = ids(0, 64)
    for start in (1, 2):
        box.server.ask([*head, *ids(start, 20)])
        box.flush()
    beside = ObjectName("ab" * 32 + "/beside.blk")
    box.storage.put(beside, [box.storage.buffer(1 << 16)])
    box.storage.quarantine(beside, "for this test")
    box.weights = "two"
    box.shares = Shares(box.storage.space().used - 4096, 0)

    box.kill()

    assert box.storage.space().used <= box.shares.pool


def test_another_salt_does_not_find_what_is_stored() -> None:
    box = Box()
    sequence = converse(box, 4)
    box.flush()
    box.kill()

    assert box.server.ask([*sequence, 1, 2], salt="bob").decision.cached == 0


def test_a_flush_without_anything_to_save_is_durable() -> None:
    assert Box().flush().durable


def test_clearing_the_tier_frees_its_bytes() -> None:
    box = Box()
    converse(box, 4)
    box.flush()

    assert box.disk.tier.clear() > 0
    assert box.names == []


def test_saving_the_same_twice_writes_nothing() -> None:
    box = Box()
    converse(box, 4)
    box.flush()
    names = box.names
    written = box.disk.tier.counters.bytes_written
    box.flush()

    assert box.names == names
    assert box.disk.tier.counters.bytes_written == written


def test_no_object_is_left_that_nobody_needs() -> None:
    box = Box()
    for start in range(5):
        converse(box, 3, start=start * 11)
        box.flush()

    needed = {
        part.name for entry in box.disk.tier.entries() for part in (*entry.blocks, *entry.anchors)
    }
    assert {ObjectName(name) for name in box.names} == needed


def test_a_full_medium_is_a_skip_and_works_again_when_there_is_room() -> None:
    box = Box()
    sequence = converse(box, 4)
    box.storage.on_step = _refuse
    failed = box.flush()
    box.storage.on_step = _pass
    worked = box.flush()

    assert not failed.durable
    assert failed.missing == 1
    assert worked.durable
    box.kill()
    assert box.server.ask([*sequence, 1]).decision.cached == len(sequence)


def test_after_a_failure_only_a_planned_stop_writes_for_a_while() -> None:
    box = Box()
    converse(box, 4)
    box.storage.on_step = _refuse
    box.flush()
    box.storage.on_step = _pass
    converse(box, 4, start=33)
    box.settle()
    written_soon = box.disk.writes.counts.committed
    box.clock.advance(3600.0)
    converse(box, 4, start=66)
    box.settle()

    assert written_soon == 0
    assert box.disk.writes.counts.committed > 0


def _refuse(_: str) -> None:
    raise StorageFull("no room on this medium")


def _pass(_: str) -> None:
    """The medium works again."""


def test_conversations_that_take_turns_keep_their_anchors_on_the_medium() -> None:
    box = Box()
    mine, other = ids(0, 120), ids(33, 110)
    for turn in range(4):
        box.server.ask([*mine, *ids(turn, 6)])
        box.settle()
        box.server.ask([*other, *ids(turn, 6)])
        box.settle()

    answer = box.server.ask([*mine, *ids(50, 6)])

    assert answer.decision.cached >= 120 - GRID


def test_rows_that_were_prefilled_off_the_grid_never_become_a_head() -> None:
    box = Box()
    prompt = ids(0, 26)
    box.server.ask(prompt, max_tokens=1)
    box.flush()
    for start in (9, 50):
        box.server.scheduler.clear_ram()
        box.server.ask([*prompt, *ids(9, 6), *ids(start, 9)])
        box.settle()

    heads = [entry for entry in box.disk.tier.entries() if entry.role is Role.HEAD]

    assert heads == []


def test_one_slow_moment_of_the_drive_does_not_turn_the_tier_off() -> None:
    box = Box()
    sequence = converse(box, 5)
    box.flush()
    box.kill()
    box.disk.tier.rate.observe(1 << 20, 0, 1e6)

    asked: list[int] = []
    for _ in range(3):
        box.server.scheduler.clear_ram()
        asked.append(box.server.ask([*sequence, 1, 2, 3]).decision.cached)

    assert asked[0] == 0, "the measurement is believed at first"
    assert asked[-1] == len(sequence)


def test_an_entry_that_damage_cut_back_is_saved_again_before_a_flush_says_durable() -> None:
    box = Box()
    request = box.server.submit(ids(0, 200))
    for _ in range(12):
        box.server.step()
    box.server.scheduler.cancel(request)  # so there are grid anchors, and no end
    box.flush()
    top = box.disk.tier.entries()[0].anchors[-1]
    box.disk.tier.distrust(top.name, "planted")

    report = box.flush()

    assert report.durable
    assert box.disk.tier.entries()[0].anchors[-1].line == top.line


def test_a_prefill_that_was_cancelled_above_the_last_end_is_saved_up_to_its_last_anchor() -> None:
    box = Box()
    sequence = converse(box, 1)
    longer = [*sequence, *ids(3, 100)]
    request = box.server.submit(longer, max_tokens=4)
    while box.server.scheduler.slots[0].resident.length < len(sequence) + 50:
        box.server.step()
    box.server.scheduler.cancel(request)
    box.server.run()
    reached = box.server.scheduler.slots[0].resident.anchors[-1].line

    assert box.flush().durable
    box.kill()
    assert box.server.ask(longer).decision.cached == reached > len(sequence)


def test_a_save_that_was_cut_short_is_an_entry_of_what_it_holds() -> None:
    box = Box(staging_count=64)
    box.server.ask(ids(0, 60), max_tokens=4)
    (slot,) = box.server.scheduler.slots
    write = box.disk.conversations.save(0, slot.resident, None, WriteCause.EVICTION)
    assert write is not None
    while len(write.work.names) < 7:
        box.disk.writes.step()
    box.disk.writes.fence(0, 4 * GRID)
    box.settle()

    (entry,) = box.disk.tier.entries()
    assert write.work.dropped
    assert entry.id == entry_id(entry.role, entry.fingerprint, entry.anchors[-1].key)
    assert box.disk.conversations.is_dirty(slot.resident)


def test_a_conversation_that_is_being_saved_is_not_saved_twice() -> None:
    box = Box()
    box.server.ask(ids(0, 60), max_tokens=4)
    (slot,) = box.server.scheduler.slots
    save = partial(box.disk.conversations.save, 0, slot.resident, None)
    first = save(WriteCause.EVICTION)
    again = save(WriteCause.STOP)
    pending = box.disk.writes.pending

    assert again is first is not None
    assert pending == 1
    assert box.flush().durable


def test_a_conversation_whose_save_was_cut_short_is_saved_again() -> None:
    box = Box()
    box.server.ask(ids(0, 60), max_tokens=4)
    (slot,) = box.server.scheduler.slots
    cut = box.disk.conversations.save(0, slot.resident, None, WriteCause.EVICTION)
    box.disk.writes.fence(0, 4 * GRID)

    assert box.disk.conversations.save(0, slot.resident, None, WriteCause.STOP) is not cut
    assert box.flush().durable
