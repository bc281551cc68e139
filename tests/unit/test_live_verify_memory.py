"""Verifying what memory keeps, wherever its rows stand: in copies, in slots, or in both."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from anchorline.adapters.memory.checkable_engine import Forward
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.live_verify_report import LiveReport
from anchorline.application.ram_entry import RamEntry
from anchorline.domain.anchor import AnchorKind
from anchorline.ports import telemetry as names
from support.kept_in_memory import a_server, block_at, come_back, ids, only_mismatch, parked
from support.verified import VerifiedServer


def verified_forwards(server: VerifiedServer) -> list[Forward]:
    return [forward for forward in server.engine.forwards if forward.slot == server.spare]


def begun(server: VerifiedServer, entry: RamEntry, forwards: int) -> list[LiveReport]:
    """A sample of an entry, after so many chunks of it; its answer, once there is one."""
    answers: list[LiveReport] = []
    server.scheduler.verify(1, entry.id, answers.append)
    before = len(verified_forwards(server))
    while len(verified_forwards(server)) < before + forwards:
        server.scheduler.step()
    return answers


# --- what is right --------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", list(Parts))
@pytest.mark.parametrize("row_invariant", [False, True])
def test_an_honest_entry_is_found_whole(parts: Parts, row_invariant: bool) -> None:
    server = a_server(parts=parts, row_invariant=row_invariant)
    entry = parked(server)

    report = server.verify(entry=entry.id)

    assert (report.samples, report.mismatches, report.skipped) == (1, (), ())
    assert report.tokens == entry.state.taint


def test_each_entry_of_every_tier_has_its_turn() -> None:
    server = a_server(disk_enabled=True)
    parked(server)
    assert server.flush().durable
    assert server.disk is not None
    stored = [entry.id for entry in server.disk.tier.index.entries()]

    report = server.verify()

    assert report.samples == 1 + 1 + len(stored)
    assert (report.mismatches, report.skipped) == ((), ())
    assert server.telemetry.counted(names.VERIFY_SAMPLES, {"tier": "ram"}) == 1


def test_verifying_an_entry_moves_nothing_and_is_no_use_of_it() -> None:
    server = a_server()
    entry = come_back(server)
    places = [(block.handle, set(block.places)) for block in entry.blocks]
    used = (entry.hits, entry.last_used_s, entry.lent)
    server.clock.advance(100.0)

    server.verify()

    assert [(block.handle, block.places) for block in entry.blocks] == places
    assert (entry.hits, entry.last_used_s, entry.lent) == used
    assert server.ask([*entry.ids.tolist(), 5]).decision.cached == entry.line


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [0, 13, 71])
@pytest.mark.parametrize("view", ["prefix", "bits", "writer"])
def test_a_row_that_was_changed_in_a_copy_is_found_where_it_is(row: int, view: str) -> None:
    server = a_server()
    entry = parked(server)
    server.spoil_block(block_at(entry, row), row, view=view)

    found = only_mismatch(server.verify())

    assert (found.entry, found.tier, found.kind) == (entry.id, "ram", "bitwise_rows")
    assert (found.part, found.row, found.gate) == (view, row, "bitwise")
    assert server.told[0].ids.tolist() == ids(0, found.line)


def test_a_row_that_was_changed_in_the_slot_another_one_uses_is_found() -> None:
    server = a_server()
    entry = parked(server)
    assert block_at(entry, 90).handle is None
    server.spoil_row(90)

    found = only_mismatch(server.verify())

    assert (found.entry, found.kind, found.row) == (entry.id, "bitwise_rows", 90)


@pytest.mark.parametrize("in_copy", [False, True])
def test_of_rows_that_stand_in_two_places_both_are_looked_at(in_copy: bool) -> None:
    server = a_server()
    entry = come_back(server)
    block = block_at(entry, 60)
    assert (block.handle is not None, block.places) == (True, {0})
    if in_copy:
        server.spoil_block(block, 60)
    else:
        server.spoil_row(60)

    found = only_mismatch(server.verify())

    assert (found.entry, found.kind, found.row) == (entry.id, "bitwise_rows", 60)


@pytest.mark.parametrize("parts", [Parts.HYBRID, Parts.ATTENTION])
def test_a_row_that_a_decode_wrote_and_that_was_changed_in_a_copy_is_found(parts: Parts) -> None:
    server = a_server(parts=parts)
    server.ask(ids(0, 60), max_tokens=9)
    server.ask(ids(50, 90))
    (entry,) = server.memory.entries
    server.spoil_block(block_at(entry, 66), 66, view="prefix")

    found = only_mismatch(server.verify())

    assert (found.entry, found.kind, found.part) == (entry.id, "preserved_rows", "prefix")
    assert found.row is not None
    assert found.row <= 66 < found.line


@pytest.mark.parametrize("row", [57, 61, 62, 64])
def test_in_the_block_that_the_taint_line_crosses_every_row_is_held_against_something(
    row: int,
) -> None:
    server = a_server()
    server.ask(ids(0, 60), max_tokens=2)
    server.ask([*server.slot.resident.ids.tolist(), *ids(3, 3)], max_tokens=3)
    server.ask(ids(50, 90))
    (entry,) = server.memory.entries
    assert entry.state.taint == 60
    server.spoil_block(block_at(entry, row), row)

    found = only_mismatch(server.verify())

    assert found.kind == ("bitwise_rows" if row < 60 else "preserved_rows")
    assert found.row is not None
    assert found.row <= row < found.line


def test_rows_that_had_changed_before_they_were_kept_are_not_sealed_as_they_were_then() -> None:
    server = a_server()
    server.ask(ids(0, 60), max_tokens=9)
    server.spoil_row(66)
    server.ask(ids(50, 90))

    found = only_mismatch(server.verify())

    assert (found.entry, found.kind) == (server.told[0].entry, "preserved_rows")
    assert found.tier == "ram"


def test_rows_that_changed_in_memory_are_found_in_the_slot_that_they_came_back_into() -> None:
    server = a_server()
    server.ask(ids(0, 60), max_tokens=9)
    server.ask(ids(50, 90))
    entry = server.memory.entries[0]
    server.spoil_block(block_at(entry, 66), 66)
    answer = server.ask([*entry.ids.tolist(), 5])
    assert answer.decision.cached == entry.line

    found = only_mismatch(server.verify(entry="slot-0"))

    assert found.kind == "preserved_rows"
    assert found.row is not None
    assert found.row <= 66 < found.line


# --- sections -------------------------------------------------------------------------------------


def test_an_anchor_that_was_changed_is_found() -> None:
    server = a_server()
    entry = parked(server)
    anchor = next(one for one in entry.state.anchors if one.kind is AnchorKind.GRID)
    server.spoil_copy(anchor)

    found = only_mismatch(server.verify())

    assert (found.entry, found.kind, found.line) == (entry.id, "bitwise_sections", anchor.line)


def test_an_end_that_was_changed_is_found() -> None:
    server = a_server()
    entry = parked(server)
    server.spoil_copy(entry.state.anchors[-1])

    found = only_mismatch(server.verify())

    assert (found.entry, found.kind, found.line) == (entry.id, "preserved_sections", entry.line)


def test_an_end_that_changed_before_it_was_kept_is_found() -> None:
    server = a_server()
    server.ask(ids(0, 60), max_tokens=9)
    end = server.slot.resident.end_anchor
    assert end is not None
    server.spoil_copy(end)
    server.ask(ids(50, 90))

    assert only_mismatch(server.verify()).kind == "preserved_sections"


def test_an_end_that_changed_in_memory_is_found_in_the_slot_that_it_came_back_into() -> None:
    server = a_server()
    entry = parked(server)
    grid = [one for one in entry.state.anchors if one.kind is AnchorKind.GRID]
    server.spoil_copy(entry.state.anchors[-1])
    # It is brought in, and neither resumed from nor dropped: the answer's end stays beside the new.
    server.ask([*entry.ids.tolist(), 5], max_tokens=2)
    assert grid[-1] in server.slot.resident.anchors

    found = only_mismatch(server.verify(entry="slot-0"))

    assert (found.kind, found.line) == ("preserved_sections", entry.line)


def test_copies_of_two_anchors_that_were_exchanged_are_found() -> None:
    server = a_server()
    entry = parked(server)
    one, other = [one for one in entry.state.anchors if one.kind is AnchorKind.GRID][-2:]
    server.exchange_copies(one, other)

    found = only_mismatch(server.verify())

    assert (found.entry, found.kind, found.line) == (entry.id, "bitwise_sections", one.line)


def test_two_ends_that_took_each_others_copy_are_found() -> None:
    server = a_server()
    server.ask(ids(0, 60), max_tokens=5)
    server.ask([*server.slot.resident.ids.tolist(), 5], max_tokens=5)
    server.ask(ids(50, 90))
    (entry,) = server.memory.entries
    first, second = [one for one in entry.state.anchors if one.kind is AnchorKind.END]
    exchanged = (replace(first, handle=second.handle), replace(second, handle=first.handle))
    grid = [one for one in entry.state.anchors if one.kind is AnchorKind.GRID]
    anchors = sorted([*grid, *exchanged], key=lambda one: one.line)
    entry.state = replace(entry.state, anchors=tuple(anchors))

    found = only_mismatch(server.verify())

    assert (found.entry, found.kind, found.line) == (entry.id, "preserved_sections", first.line)


# --- what is said of them -------------------------------------------------------------------------


def test_a_taint_line_that_is_told_too_high_is_found() -> None:
    server = a_server()
    entry = parked(server)
    entry.state = replace(entry.state, taint=entry.line)

    found = only_mismatch(server.verify())

    # The chunk that the answer began in has other bits from its start.
    assert (found.entry, found.kind, found.row) == (entry.id, "bitwise_rows", 96)


def test_a_block_that_is_told_clean_and_is_not_is_found() -> None:
    server = a_server()
    entry = parked(server)
    tainted = block_at(entry, 100)
    assert not tainted.clean
    tainted.clean = True

    found = only_mismatch(server.verify())

    assert (found.entry, found.kind, found.row) == (entry.id, "bitwise_rows", 96)


# --- sealing --------------------------------------------------------------------------------------


def test_what_entries_share_is_sealed_once() -> None:
    server = a_server()
    server.ask(ids(0, 60), max_tokens=20)
    server.ask(ids(50, 90))
    first = server.memory.entries[0]
    sealed = {block: block.seals for block in first.blocks if block.seals}
    server.ask([*first.ids.tolist(), *ids(3, 20)])
    server.ask(ids(50, 90))

    second = max(server.memory.entries, key=lambda one: one.line)

    shared = [block for block in second.blocks if block in sealed]
    assert shared
    assert all(block.seals is sealed[block] for block in shared)


def test_what_is_not_verified_is_not_sealed() -> None:
    server = a_server()
    entry = parked(server)

    clean = [block for block in entry.blocks if block.clean]
    tainted = [block for block in entry.blocks if not block.clean]

    assert not any(block.seals for block in clean)
    spans = [span for block in tainted for span, _ in block.seals]
    assert spans[0].start == entry.state.taint
    assert spans[-1].end == entry.line
    assert all(one.end == other.start for one, other in itertools.pairwise(spans))


def test_the_seals_below_an_anchor_are_those_of_its_tainted_rows() -> None:
    server = a_server()
    server.ask(ids(0, 60), max_tokens=2)
    server.ask([*server.slot.resident.ids.tolist(), *ids(3, 3)], max_tokens=9)
    server.ask(ids(50, 90))
    (entry,) = server.memory.entries

    first, second = [one.line for one in entry.state.anchors if one.kind is AnchorKind.END]

    assert [span.end for span, _ in entry.seals_below(first)] == [first]
    assert [span.end for span, _ in entry.seals_below(second)][-1] == second


def prefetched(server: VerifiedServer) -> RamEntry:
    """A stored conversation that was read into memory while another one ran."""
    server.ask(ids(0, 60), max_tokens=9)
    held = server.slot.resident.ids.tolist()
    assert server.flush().durable
    server.scheduler.clear(ram=True, disk=False)
    server.submit(ids(50, 90), max_tokens=40)
    server.scheduler.step()
    server.submit([*held, 5])
    for _ in range(10_000):
        server.jobs.step()
        if not server.scheduler.step() and server.scheduler.idle:
            break
    (entry,) = [one for one in server.memory.entries if one.stored is not None]
    return entry


def test_what_was_read_from_the_medium_is_sealed_and_found_whole() -> None:
    server = a_server(disk_enabled=True)
    entry = prefetched(server)

    report = server.verify(entry=entry.id)

    assert (report.samples, report.mismatches) == (1, ())


@pytest.mark.parametrize("row", [3, 61, 66])
def test_what_was_read_from_the_medium_and_changed_since_is_found(row: int) -> None:
    server = a_server(disk_enabled=True)
    entry = prefetched(server)
    server.spoil_block(block_at(entry, row), row)

    found = only_mismatch(server.verify(entry=entry.id))

    assert found.kind == ("bitwise_rows" if row < 60 else "preserved_rows")
    assert found.row is not None
    assert found.row <= row < found.line


# --- in the middle of it --------------------------------------------------------------------------


def test_each_step_looks_at_no_more_than_one_block_or_forwards_one_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = a_server()
    entry = parked(server)
    copies, looked = server.engine.copies, [0]
    row_sums = copies.row_sums

    def counted(handle: object) -> object:
        looked[0] += 1
        return row_sums(handle)  # type: ignore[arg-type]

    monkeypatch.setattr(copies, "row_sums", counted)
    answers: list[LiveReport] = []
    server.scheduler.verify(1, entry.id, answers.append)
    while not answers:
        before = looked[0] + len(verified_forwards(server))
        server.scheduler.step()
        assert looked[0] + len(verified_forwards(server)) - before <= 1

    assert looked[0] >= 9


def test_a_sample_goes_on_after_a_request_that_moved_the_rows_of_its_entry() -> None:
    server = a_server()
    entry = parked(server)
    answers = begun(server, entry, forwards=3)
    before = [block.handle for block in entry.blocks]
    server.ask(ids(30, 110))
    assert [block.handle for block in entry.blocks] != before
    assert server.verify(samples=1).finished

    assert [(answer.samples, answer.mismatches) for answer in answers] == [(1, ())]


def drop(server: VerifiedServer, entry: RamEntry) -> None:
    server.memory.drop(entry)


def clear(server: VerifiedServer, entry: RamEntry) -> None:
    assert server.scheduler.clear(ram=True, disk=False).ram_tokens >= entry.line


def cut(server: VerifiedServer, entry: RamEntry) -> None:
    line = entry.line
    server.memory.blocks.forget(0)
    assert 0 < entry.line < line


@pytest.mark.parametrize("forwards", [0, 5])
@pytest.mark.parametrize("leaves", [drop, clear, cut])
def test_an_entry_that_leaves_or_is_cut_is_not_judged(
    forwards: int, leaves: Callable[[VerifiedServer, RamEntry], None]
) -> None:
    server = a_server()
    entry = parked(server)
    server.spoil_block(block_at(entry, 71), 71)
    answers = begun(server, entry, forwards)
    server.scheduler.step()

    leaves(server, entry)
    server.rest()

    (answer,) = answers
    assert (answer.samples, answer.mismatches) == (0, ())
    assert [one.why for one in answer.skipped] == ["it was replaced meanwhile"]


def test_what_is_left_of_an_entry_that_was_cut_is_verified_anew() -> None:
    server = a_server()
    entry = parked(server)
    begun(server, entry, forwards=2)
    server.memory.blocks.forget(0)  # the rows above the other one's
    assert 0 < entry.line < 100
    server.rest()

    report = server.verify(entry=entry.id)

    assert (report.samples, report.mismatches) == (1, ())


def test_a_request_takes_the_room_of_an_entry_that_is_being_verified() -> None:
    server = a_server(ram_bytes_max=2600)
    entry = parked(server)
    begun(server, entry, forwards=1)

    server.ask(ids(20, 200))

    assert entry not in server.memory.entries


def test_an_entry_that_is_not_there_is_told() -> None:
    report = a_server().verify(entry="ram-3")

    assert [one.entry for one in report.skipped] == ["ram-3"]
