"""Going over a store: what is found, and what a repair leaves."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.adapters.simulation.faulty_storage import Fault, FaultyStorage
from anchorline.application.object_store import ObjectStore
from anchorline.application.verify import NAMES_MAX, VerifyReport, verify
from anchorline.domain.object_header import LINE_BYTES
from anchorline.domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from anchorline.ports.catalog import AgeMark
from anchorline.simulation.box import Box


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def converse(box: Box, turns: int = 4, start: int = 0) -> list[int]:
    """A conversation of some turns, stored; its tokens."""
    sequence = ids(start, 20)
    for turn in range(turns):
        request = box.server.submit([*sequence, *ids(turn + start, 9)], max_tokens=5)
        box.server.run()
        sequence = box.server.sequences[request].tolist()
    assert box.flush().durable
    return sequence


def settled(**how: object) -> Box:
    """A box whose catalog is complete from the start."""
    return Box(catalog=MemoryCatalog(needs_rebuild=False), **how)  # type: ignore[arg-type]


def look(box: Box, *, repair: bool = False) -> VerifyReport:
    return verify(ObjectStore(box.storage, PlainCodec()), box.catalog, repair=repair)


def flip(box: Box, name: ObjectName, at: int) -> None:
    content = bytearray(box.storage.content(name))
    content[at] ^= 1
    box.storage.overwrite(name, bytes(content))


def parts_of(entry: StoredEntry) -> list[StoredBlock | StoredAnchor]:
    return [*entry.blocks, *entry.anchors]


@pytest.mark.parametrize("parts", list(Parts))
def test_a_store_that_was_only_written_is_whole(parts: Parts) -> None:
    box = settled(parts=parts)
    for start in range(3):
        converse(box, start=start * 11)
    report = look(box)

    assert report.ok
    assert report.objects == len(box.names)
    assert report.nbytes == sum(stored.nbytes for stored in box.storage.names())
    assert report.entries == len(box.catalog.entries())
    assert (report.orphans, report.strange, report.missing, report.broken) == (0, 0, 0, 0)


def test_an_empty_store_is_whole_even_with_a_new_catalog() -> None:
    assert look(Box()).ok


@pytest.mark.parametrize("at", [9, 100, LINE_BYTES + 3, -1])
def test_a_bit_anywhere_in_an_object_is_found(at: int) -> None:
    box = settled()
    converse(box)
    name = ObjectName(box.names[-1])
    flip(box, name, at)
    report = look(box)

    assert not report.ok
    assert [damage.name for damage in report.damage] == [name]
    assert report.damage[0].reason
    assert report.broken == 1


def test_every_object_that_is_damaged_is_found() -> None:
    box = settled()
    converse(box)
    for name in box.names:
        flip(box, ObjectName(name), LINE_BYTES + 1)

    assert look(box).damaged == len(box.names)


def test_a_checksum_that_was_made_for_other_bytes_does_not_hide_them() -> None:
    """The content sums are recomputed: a part whose checksum is right may still be another's."""
    box = settled()
    converse(box)
    (entry,) = box.catalog.entries()
    store = ObjectStore(box.storage, PlainCodec())
    name = entry.anchors[0].name
    header = store.read_header(name)
    box.storage.delete(name)
    payload = box.storage.buffer(1 << 16)
    payload[:] = np.arange(len(payload)) % 251
    store.write(header, payload)
    report = look(box)

    assert [damage.name for damage in report.damage] == [name]
    assert "sums" in report.damage[0].reason


def test_names_of_damaged_objects_are_bounded_and_their_number_is_not() -> None:
    box = settled(window=1024)
    box.server.ask(ids(0, 900), max_tokens=1)
    box.flush()
    for name in box.names:
        flip(box, ObjectName(name), LINE_BYTES + 1)
    report = look(box)

    assert report.damaged == len(box.names) > NAMES_MAX
    assert len(report.damage) == NAMES_MAX


def test_an_object_that_is_not_there_is_missing() -> None:
    box = settled()
    converse(box)
    (entry,) = box.catalog.entries()
    box.storage.delete(entry.blocks[1].name)
    report = look(box)

    assert (report.missing, report.damaged, report.broken) == (1, 0, 1)
    assert not report.ok


def test_an_object_that_cannot_be_read_is_damaged() -> None:
    box = settled()
    converse(box)
    storage = FaultyStorage(box.storage, seed=3, rates={Fault.FAILED_READ: 0.2})
    report = verify(ObjectStore(storage, PlainCodec()), box.catalog)

    assert report.damaged == storage.happened[Fault.FAILED_READ]


def test_whole_objects_that_nobody_needs_are_orphans_and_no_damage() -> None:
    box = settled()
    converse(box)
    nbytes = sum(stored.nbytes for stored in box.storage.names())
    box.catalog.remove([entry.id for entry in box.catalog.entries()])
    report = look(box)

    assert report.ok
    assert (report.orphans, report.orphan_bytes) == (len(box.names), nbytes)


def test_without_its_catalog_nothing_is_an_orphan_and_the_store_is_not_whole() -> None:
    box = settled()
    converse(box)
    box.catalog = MemoryCatalog()
    report = look(box)

    assert report.orphans == 0
    assert report.needs_rebuild
    assert not report.ok


def test_a_name_that_is_none_of_ours_is_strange_and_left_alone() -> None:
    box = settled()
    box.storage.put(ObjectName("ab" * 32 + "/notes.txt"), [box.storage.buffer(4096)])
    report = look(box, repair=True)

    assert report.ok
    assert report.strange == 1
    assert len(box.names) == 1


def wrong_key(entry: StoredEntry) -> StoredEntry:
    first, second, *rest = entry.blocks
    return replace(entry, blocks=(first, replace(second, key=first.key), *rest))


def without_a_block(entry: StoredEntry) -> StoredEntry:
    return replace(entry, blocks=(entry.blocks[0], *entry.blocks[2:]))


def wrong_line(entry: StoredEntry) -> StoredEntry:
    last = entry.anchors[-1]
    return replace(entry, anchors=(*entry.anchors[:-1], replace(last, line=last.line - 8)))


def wrong_length(entry: StoredEntry) -> StoredEntry:
    last = entry.anchors[-1]
    return replace(entry, anchors=(*entry.anchors[:-1], replace(last, nbytes=last.nbytes + 4096)))


def exchanged(entry: StoredEntry) -> StoredEntry:
    first, second, *rest = entry.blocks
    return replace(
        entry,
        blocks=(
            replace(first, name=second.name),
            replace(second, name=first.name),
            *rest,
        ),
    )


@pytest.mark.parametrize(
    "spoil",
    [wrong_key, without_a_block, wrong_line, wrong_length, exchanged],
    ids=lambda f: f.__name__,
)
def test_an_entry_that_says_other_than_its_objects_is_broken(
    spoil: Callable[[StoredEntry], StoredEntry],
) -> None:
    box = settled()
    converse(box)
    (entry,) = box.catalog.entries()
    box.catalog.put(spoil(entry))

    report = look(box)
    assert (report.broken, report.damaged) == (1, 0)
    look(box, repair=True)
    assert look(box).ok


# --- repair ---------------------------------------------------------------------------------------


def test_looking_changes_nothing() -> None:
    box = settled()
    converse(box)
    flip(box, ObjectName(box.names[0]), 100)
    names, entries = box.names, list(box.catalog.entries())
    look(box)

    assert box.names == names
    assert list(box.catalog.entries()) == entries
    assert not box.storage.quarantined


@pytest.mark.parametrize("which", range(14))
def test_a_repair_leaves_of_an_entry_what_a_failed_restore_would(which: int) -> None:
    """As `DiskTier.distrust` does it, whichever object is damaged."""
    box, other = settled(), settled()
    converse(box)
    converse(other)
    (entry,) = box.catalog.entries()
    parts = parts_of(entry)
    name = parts[which % len(parts)].name
    flip(box, name, 100)
    report = look(box, repair=True)
    other.disk.tier.distrust(name, "damaged")

    assert list(box.catalog.entries()) == list(other.catalog.entries())
    assert set(box.names) == set(other.names)
    assert (report.shortened, report.dropped) == ((1, 0) if box.catalog.entries() else (0, 1))


def test_after_a_repair_the_store_is_whole_and_what_is_left_resumes() -> None:
    box = settled(row_invariant=True)
    sequence = converse(box)
    (entry,) = box.catalog.entries()
    flip(box, entry.blocks[-1].name, 100)
    report = look(box, repair=True)
    box.kill()

    assert not report.ok, "it says what was found"
    assert report.repaired
    assert look(box).ok
    lines = [one.line for one in entry.anchors if one.line <= entry.blocks[-2].end]
    assert box.server.ask([*sequence, 1]).decision.cached == max(lines)


def test_a_damaged_object_that_nobody_needs_is_moved_aside_too() -> None:
    box = settled()
    converse(box)
    box.catalog.remove([entry.id for entry in box.catalog.entries()])
    name = ObjectName(box.names[0])
    flip(box, name, 100)
    report = look(box, repair=True)

    assert [kept for kept, _ in box.storage.quarantined] == [name]
    assert report.deleted == report.orphans
    assert box.names == []


def test_entries_that_share_a_damaged_object_are_all_cut_back() -> None:
    box = settled()
    prompt = ids(0, 60)
    for start in (3, 5):
        box.server.ask([*prompt, *ids(start, 20)])
        box.flush()
        box.server.scheduler.clear_ram()
    shared = box.catalog.entries()[0].blocks[0].name
    assert all(entry.blocks[0].name == shared for entry in box.catalog.entries())
    flip(box, shared, 100)
    report = look(box, repair=True)

    assert report.dropped == report.entries == 2
    assert box.names == []


def test_a_repair_makes_a_lost_catalog_again_before_it_deletes_anything() -> None:
    box = settled()
    sequence = converse(box, turns=5)
    box.catalog = MemoryCatalog()
    box.catalog.set_age_mark(AgeMark(50.0, 0.0))
    report = look(box, repair=True)
    ages = [entry.created_s for entry in box.catalog.entries()]
    box.kill()

    assert report.rebuilt is not None
    assert report.rebuilt.entries == 1
    assert ages == [50.0]
    assert box.server.ask([*sequence, 1]).decision.cached == len(sequence)


def test_progress_ends_at_the_number_of_objects() -> None:
    box = settled()
    converse(box)
    told: list[tuple[int, int]] = []
    store = ObjectStore(box.storage, PlainCodec())
    verify(store, box.catalog, progress=lambda done, total: told.append((done, total)))

    count = len(box.names)
    assert told == [(done, count) for done in range(count + 1)]
