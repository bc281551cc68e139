"""Verifying entries of the disk tier: read as a start reads them, and held against a cold prefill.

Whatever is wrong with an object itself is found by reading it. What is wrong here is consistent: it
was written so, and nothing but a cold prefill can tell.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.domain.entry import EntryId
from anchorline.domain.stored_entry import StoredEntry
from anchorline.domain.taint_line import Gate
from anchorline.ports.block_storage import ObjectName
from support.verified import VerifiedServer


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def saved(
    server: VerifiedServer,
    *,
    count: int = 60,
    spoil: Callable[[VerifiedServer], object] = lambda _: None,
) -> StoredEntry:
    """A conversation on the medium and nowhere else, with what `spoil` did to it before."""
    server.ask(ids(0, count), max_tokens=5)
    spoil(server)
    assert server.flush().durable
    server.scheduler.clear(ram=True, disk=False)
    return entry_of(server)


def entry_of(server: VerifiedServer) -> StoredEntry:
    assert server.disk is not None
    (entry,) = server.disk.tier.index.entries()
    return entry


@pytest.mark.parametrize("parts", list(Parts))
@pytest.mark.parametrize("row_invariant", [False, True])
def test_an_honest_entry_is_found_whole(parts: Parts, row_invariant: bool) -> None:
    server = VerifiedServer(parts=parts, row_invariant=row_invariant)
    entry = saved(server)

    report = server.verify()

    assert (report.samples, report.mismatches, report.skipped) == (1, (), ())
    assert report.tokens == entry.taint
    assert server.ask([*ids(0, 60), 5]).decision.cached >= 56


def test_rows_that_were_written_wrong_are_found_at_the_first_wrong_row() -> None:
    server = VerifiedServer()
    entry = saved(server, spoil=lambda server: server.spoil_row(29))

    (found,) = server.verify().mismatches

    assert (found.entry, found.tier, found.kind) == (entry.id, "disk", "bitwise_rows")
    assert (found.line, found.part, found.row) == (32, "bits", 29)


def test_what_stands_on_wrong_rows_is_given_up_and_the_rest_stays() -> None:
    server = VerifiedServer()
    # Anchors stand at the newest lines: 32, 40, 48, 56.
    entry = saved(server, spoil=lambda server: server.spoil_row(45))
    wrong = next(block.name for block in entry.blocks if block.end == 48)
    server.verify()

    rest = entry_of(server)

    assert [anchor.line for anchor in rest.anchors] == [32, 40]
    assert rest.blocks == entry.blocks[:5]
    assert wrong not in {stored.name for stored in server.storage.names()}
    assert server.verify().mismatches == ()
    assert server.ask(ids(0, 60)).decision.cached == 40


def test_an_anchor_that_was_written_wrong_is_found() -> None:
    server = VerifiedServer()
    entry = saved(server, spoil=lambda server: server.spoil_copy(server.slot.resident.anchors[5]))

    (found,) = server.verify().mismatches

    assert (found.kind, found.line, found.part) == ("bitwise_sections", 48, "bits_after")
    assert entry_of(server).anchors == tuple(one for one in entry.anchors if one.line != 48)


def test_a_taint_line_that_was_stored_too_high_is_found() -> None:
    server = VerifiedServer()
    entry = saved(server)
    assert server.disk is not None
    server.disk.tier.index.add(replace(entry, taint=entry.anchors[-1].line))

    (found,) = server.verify().mismatches

    # The last chunk runs over rows that a decode wrote, and so has other bits from its start.
    assert (found.kind, found.row) == ("bitwise_rows", 56)


def test_consistent_objects_of_another_state_are_found() -> None:
    # Two lives of the same tokens, of which one is wrong. Its objects, each whole by itself and all
    # of one piece, come to stand under the entry of the right one.
    server, other = VerifiedServer(), VerifiedServer()
    entry = saved(server)
    wrong = saved(other, spoil=lambda server: server.spoil_row(20))
    for stored in other.storage.names():
        content = np.frombuffer(bytes(other.storage.content(stored.name)), dtype=np.uint8)
        server.storage.put(stored.name, [content])
    assert server.disk is not None
    server.disk.tier.index.add(replace(wrong, id=entry.id))

    (found,) = server.verify().mismatches

    assert (found.kind, found.part, found.row) == ("bitwise_rows", "bits", 20)
    assert server.ask(ids(0, 60)).decision.cached <= 16


def test_a_damaged_object_is_quarantined_and_judged_by_nobody() -> None:
    server = VerifiedServer()
    entry = saved(server)
    name = ObjectName(entry.blocks[3].name)
    content = bytearray(server.storage.content(name))
    content[-5000] ^= 1
    server.storage.overwrite(name, bytes(content))

    report = server.verify(samples=1)

    assert (report.samples, report.mismatches) == (0, ())
    assert [one.entry for one in report.skipped] == [entry.id]
    assert server.scheduler.stats().disk is not None
    assert name not in {stored.name for stored in server.storage.names()}


def test_a_mismatch_of_a_stored_entry_is_written_down_with_its_tokens() -> None:
    server = VerifiedServer(salt="a secret")
    saved(server, spoil=lambda server: server.spoil_row(29))
    server.verify()

    (told,) = server.told

    assert told.ids.tolist() == ids(0, 32)
    assert told.namespace.salt == "a secret"
    (row,) = [one for one in server.telemetry.records if one.get("event") == "verify_mismatch"]
    assert "a secret" not in repr(row)


def test_a_request_that_comes_while_an_entry_is_read_gets_all_buffers() -> None:
    server = VerifiedServer()
    saved(server, count=200)
    assert server.disk is not None
    server.scheduler.verify(1, None, lambda _: None)
    for _ in range(3):
        server.scheduler.step()
    assert server.disk.pool.lent > 0

    server.submit([*ids(0, 200), 5])
    server.scheduler.step()
    answer = server.ask(ids(50, 10))  # behind the first

    assert answer.usage.prompt == 10
    server.rest()
    assert server.disk.pool.lent == 0
    stats = server.scheduler.stats().verify
    assert stats is not None
    assert (stats.samples, stats.skipped) == (1, 0)


def test_an_entry_that_is_being_verified_can_be_cleared_once_it_is_read() -> None:
    server = VerifiedServer()
    saved(server, count=200)
    server.scheduler.verify(1, None, lambda _: None)
    while not any(forward.slot == server.spare for forward in server.engine.forwards):
        server.scheduler.step()

    cleared = server.scheduler.clear(ram=False, disk=True)
    server.rest()

    assert cleared.disk_bytes > 0
    stats = server.scheduler.stats().verify
    assert stats is not None
    assert (stats.samples, stats.skipped) == (0, 1)


def test_one_entry_can_be_asked_for_by_its_id() -> None:
    server = VerifiedServer()
    entry = saved(server)
    server.ask(ids(50, 20))

    report = server.verify(entry=entry.id)

    assert (report.samples, report.tokens) == (1, entry.taint)


def test_an_entry_longer_than_the_window_is_left_alone() -> None:
    server = VerifiedServer()
    entry = saved(server)
    assert server.disk is not None
    longer = replace(
        entry,
        id=EntryId("longer"),
        anchors=(*entry.anchors[:-1], replace(entry.anchors[-1], line=server.window + 1)),
    )
    server.disk.tier.index.add(longer)

    assert [one.entry for one in server.verify(entry="longer").skipped] == ["longer"]


def test_verifying_does_not_count_as_a_use_of_an_entry() -> None:
    server = VerifiedServer()
    entry = saved(server)
    server.clock.advance(100.0)

    server.verify()

    assert entry_of(server) == entry
    assert server.ask([*ids(0, 60), 5]).decision.gate is not Gate.COLD
