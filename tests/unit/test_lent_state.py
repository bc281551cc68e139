"""State that is about to be read, is being read, or is being written, beside state that leaves."""

from dataclasses import replace

from anchorline.application.disk_counters import Skip
from anchorline.domain.disk_retention import Shares
from anchorline.domain.entry import EntryId
from anchorline.domain.stored_entry import StoredEntry
from anchorline.ports import telemetry as names
from anchorline.simulation.box import Box


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def kept(box: Box, prompt: list[int]) -> StoredEntry:
    """The one entry of a store that holds a prompt alone."""
    box.server.ask(prompt)
    box.flush()
    (entry,) = box.disk.tier.entries()
    return entry


def displacing(box: Box, prompt: list[int]) -> str:
    """A request that waits for its stored state behind the conversation it displaces."""
    box.server.ask(ids(31, 60))
    (slot,) = box.server.scheduler.slots
    request = box.server.submit([*prompt, 1, 2])
    while slot.preparing is None:
        box.server.step()
    assert slot.preparing.save is not None
    assert slot.preparing.placement.continuation is not None
    return request


def test_state_that_was_chosen_stays_while_the_conversation_it_displaces_is_saved() -> None:
    box = Box()
    prompt = ids(0, 60)
    kept(box, prompt)
    request = displacing(box, prompt)

    box.disk.tier.clear()
    box.settle()

    finished = box.server.finished(request)
    assert finished is not None
    assert finished.decision.cached >= 56
    assert box.disk.tier.lent == 0


def test_a_client_that_leaves_meanwhile_lets_go_of_the_state_that_was_chosen() -> None:
    box = Box()
    prompt = ids(0, 60)
    kept(box, prompt)
    request = displacing(box, prompt)

    box.server.scheduler.cancel(request)
    box.settle()

    assert box.disk.tier.lent == 0


def test_state_that_is_cut_back_before_its_use_is_a_miss_and_no_damage_of_the_requests() -> None:
    box = Box()
    prompt = ids(0, 60)
    entry = kept(box, prompt)
    request = displacing(box, prompt)

    box.disk.tier.distrust(entry.blocks[0].name, "somebody else met it")
    box.settle()

    finished = box.server.finished(request)
    assert finished is not None
    assert (finished.decision.cached, finished.decision.quarantined) == (0, 0)


def test_an_entry_that_two_requests_read_stays_until_both_have_read_it() -> None:
    box = Box()
    entry = kept(box, ids(0, 60))
    tier = box.disk.tier
    tier.lend(entry.id)
    tier.lend(entry.id)

    tier.unlend(entry.id)
    tier.clear()
    while_one_reads = tier.entries(), len(box.names)
    tier.unlend(entry.id)
    tier.clear()

    assert while_one_reads == ((entry,), len(entry.blocks) + len(entry.anchors))
    assert (tier.entries(), box.names) == ((), [])


def test_what_an_entry_loses_while_it_is_being_read_is_deleted_once_it_has_been_read() -> None:
    box = Box()
    prompt = ids(0, 60)
    entry = kept(box, prompt)
    box.kill()
    (slot,) = box.server.scheduler.slots
    request = box.server.submit([*prompt, 1, 2])
    while slot.preparing is None or slot.preparing.restore is None:
        box.server.step()
    before, bad = set(box.names), entry.blocks[-2].name

    box.disk.tier.distrust(bad, "it is damaged")
    while_it_is_read = set(box.names)
    box.settle()

    assert while_it_is_read == before - {bad}
    assert box.server.finished(request) is not None
    needed = [part for rest in box.disk.tier.entries() for part in (*rest.blocks, *rest.anchors)]
    assert set(box.names) == {part.name for part in needed}


def test_no_write_that_was_begun_fails_for_want_of_room_that_another_one_took() -> None:
    box = Box(slots=8, shares=Shares(0, 2_400_000))
    for start in range(12):
        box.server.ask(ids(start, 120), max_tokens=1)
        box.flush()
    requests = [box.server.submit(ids(start, 150), max_tokens=1) for start in range(40, 80, 5)]
    box.server.run()

    report = box.flush()

    assert all(box.server.finished(request) for request in requests)
    assert (report.failed, report.saved > 0) == (0, True)
    full = {"reason": Skip.FULL.value, "role": "conversation"}
    assert box.server.telemetry.counted(names.WRITES_SKIPPED, full) == 0


def test_an_entry_is_there_with_all_that_it_needed_or_it_is_not() -> None:
    box = Box()
    entry = kept(box, ids(0, 60))
    index = box.disk.tier.index
    twin = replace(entry, id=EntryId("another of the same objects"))
    cut = replace(entry, blocks=entry.blocks[:-1], anchors=entry.anchors[:-1], end=None)

    index.add(twin)
    with_both = index.has(entry), index.has(twin)
    index.remove(entry.id)
    with_one = index.has(entry), index.has(twin)
    index.remove(twin.id)
    index.add(cut)

    assert (with_both, with_one) == ((True, True), (False, True))
    assert (index.has(entry), index.has(cut)) == (False, True)
