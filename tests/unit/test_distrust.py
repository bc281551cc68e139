"""What goes with a state that was found wrong, in memory and in slots, and what stays."""

from dataclasses import replace

import pytest

from anchorline.application.live_verify_report import VerifyMode
from anchorline.application.ram_entry import RamEntry
from anchorline.domain.anchor import Anchor
from anchorline.domain.taint_line import Gate
from support.kept_in_memory import a_server, block_at, come_back, ids, only_mismatch, parked
from support.verified import VerifiedServer


def test_what_was_wrong_is_not_resumed_again() -> None:
    server = a_server()
    entry = parked(server)
    server.spoil_block(block_at(entry, 13), 13)
    server.verify()

    answer = server.ask([*entry.ids.tolist(), 5])

    assert answer.decision.gate is Gate.COLD
    assert server.verify().mismatches == ()


def test_an_entry_that_shares_nothing_with_a_wrong_one_stays_and_so_does_the_slot() -> None:
    server = a_server()
    wrong = parked(server)
    server.ask(ids(20, 60))
    assert len(server.memory.entries) == 2
    server.spoil_block(block_at(wrong, 13), 13)

    server.verify()

    assert [entry.ids.tolist()[:70] for entry in server.memory.entries] == [ids(50, 70)]
    assert server.slot.resident.highest > 0


def branches(server: VerifiedServer) -> tuple[RamEntry, RamEntry]:
    """Two conversations that parted at row 50, kept in memory."""
    server.ask(ids(0, 100), max_tokens=3)
    server.ask(ids(50, 120))
    server.ask([*ids(0, 50), *ids(9, 40)])
    server.ask(ids(50, 120))
    one, other = [entry for entry in server.memory.entries if entry.ids[0] == ids(0, 1)[0]]
    return one, other


def shared_anchor(one: RamEntry, other: RamEntry) -> Anchor:
    return next(anchor for anchor in other.state.anchors if anchor in one.state.anchors)


@pytest.mark.parametrize("spoil", ["rows", "anchor"])
def test_with_a_wrong_entry_goes_what_shares_rows_or_copies_with_it(spoil: str) -> None:
    server = a_server()
    one, other = branches(server)
    if spoil == "rows":
        server.spoil_block(block_at(one, 13), 13)
    else:
        server.spoil_copy(shared_anchor(one, other))

    report = server.verify()

    assert only_mismatch(report).entry in (one.id, other.id)
    assert not {one.id, other.id} & {entry.id for entry in server.memory.entries}
    assert server.slot.resident.highest > 0


@pytest.mark.parametrize(
    ("rows", "copies", "forgets"),
    [(True, False, True), (False, True, True), (False, False, False)],
    ids=["rows", "copies", "nothing"],
)
def test_a_slot_forgets_a_branch_that_shares_rows_or_copies_with_a_wrong_entry(
    rows: bool, copies: bool, forgets: bool
) -> None:
    server = a_server()
    server.ask(ids(0, 100), max_tokens=3)
    server.ask(ids(50, 120))
    server.ask([*ids(0, 50), *ids(9, 60)])
    wrong = next(one for one in server.memory.entries if one.ids[0] == ids(0, 1)[0])
    untie(server, rows=rows, copies=copies)
    server.spoil_copy(wrong.state.anchors[-1])

    found = only_mismatch(server.verify(entry=wrong.id))

    assert found.line == wrong.line == 102
    assert (server.slot.resident.length == 0) == forgets


def test_a_slot_forgets_what_goes_on_from_a_wrong_entry_though_nothing_ties_them() -> None:
    server = a_server()
    server.ask(ids(0, 100), max_tokens=3)
    server.ask(ids(50, 120))
    wrong = server.memory.entries[0]
    server.ask([*wrong.ids.tolist(), *ids(9, 60)])
    untie(server, rows=False, copies=False)
    server.spoil_copy(wrong.state.anchors[-1])

    assert only_mismatch(server.verify(entry=wrong.id)).line == wrong.line

    assert server.slot.resident.length == 0


def untie(server: VerifiedServer, *, rows: bool, copies: bool) -> None:
    """Leave the slot and memory nothing in common but what is told; they do drift apart so."""
    if not rows:
        server.memory.blocks.vacate(0, 0, server.slot.resident.length)
    if not copies:
        assert server.slot.resident.thin(100)


@pytest.mark.parametrize(
    ("row", "rows", "copies", "goes"),
    [
        (18, False, False, True),  # it is of the same tokens up to there
        (30, True, False, True),
        (30, False, True, True),
        (30, False, False, False),
        (22, False, False, False),  # the first that is not its own any more
    ],
    ids=["tokens", "rows", "copies", "nothing", "above"],
)
def test_with_a_wrong_slot_goes_the_entry_that_it_came_of(
    row: int, rows: bool, copies: bool, goes: bool
) -> None:
    server = a_server()
    server.ask(ids(0, 20), max_tokens=3)
    server.ask(ids(50, 60))
    origin, *_ = server.memory.entries
    server.ask([*origin.ids.tolist(), *ids(9, 60)])
    untie(server, rows=rows, copies=copies)
    server.spoil_row(row)

    found = only_mismatch(server.verify(entry="slot-0"))

    assert found.row is not None
    assert found.row <= row < found.line
    assert (origin not in server.memory.entries) == goes
    assert server.slot.resident.length == 0
    assert len(server.memory.entries) == 2 - goes  # the other one's stays


@pytest.mark.parametrize("share", ["rows", "copies"])
def test_with_a_wrong_slot_goes_every_branch_of_its_rows(share: str) -> None:
    server = a_server()
    server.ask(ids(20, 60))
    server.ask(ids(0, 100), max_tokens=3)
    server.ask(ids(50, 120))
    server.ask([*ids(0, 50), *ids(9, 60)])
    branch = next(one for one in server.memory.entries if one.ids[0] == ids(0, 1)[0])
    untie(server, rows=share == "rows", copies=share == "copies")
    server.spoil_row(70)

    assert only_mismatch(server.verify(entry="slot-0")).row == 70

    assert branch not in server.memory.entries
    assert len(server.memory.entries) == 2


@pytest.mark.parametrize("share", ["rows", "copies"])
def test_with_a_wrong_entry_goes_every_branch_of_it(share: str) -> None:
    server = a_server()
    one, other = branches(server)
    assert set(one.blocks) & set(other.blocks)
    if share == "copies":
        other.blocks = tuple(replace(block) for block in other.blocks)
    else:
        anchors = [anchor for anchor in other.state.anchors if anchor not in one.state.anchors]
        other.state = replace(other.state, anchors=tuple(anchors))
    server.spoil_copy(one.state.anchors[-1])

    assert only_mismatch(server.verify(entry=one.id)).line == one.line

    assert other not in server.memory.entries


def test_a_short_request_beside_a_wrong_entry_keeps_its_slot() -> None:
    server = a_server()
    wrong = come_back(server)
    assert block_at(wrong, 60).places == {0}
    server.spoil_row(60)

    only_mismatch(server.verify())

    assert wrong not in server.memory.entries
    assert server.slot.resident.length == 10


def test_an_entry_can_be_given_up_while_it_is_being_written() -> None:
    server = a_server(disk_enabled=True)
    server.ask(ids(0, 200), max_tokens=5)
    server.submit(ids(50, 120))
    while not server.scheduler.idle:
        server.scheduler.step()
    (entry,) = server.memory.entries
    assert entry.lent

    server.memory.distrust(entry)
    assert server.flush().pending == 0

    assert (server.memory.entries, entry.lent) == ((), 0)
    assert server.disk is not None
    assert server.disk.writes.counts.failed == 0


def test_strict_gives_all_of_memory_up() -> None:
    server = a_server(mode=VerifyMode.STRICT)
    entry = parked(server)
    server.ask(ids(20, 60))
    server.spoil_block(block_at(entry, 13), 13)

    server.verify()

    assert server.memory.entries == ()
    assert server.ask(ids(20, 60)).decision.gate is Gate.COLD
