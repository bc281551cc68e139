"""Rows that lanes bring straight into place: the right ones, or nothing that counts."""

from collections.abc import Sequence

import numpy as np
import pytest

from anchorline.adapters.codec.plane_codec import PlaneCodec
from anchorline.adapters.memory.checkable_state import CheckableState, PlacedRows
from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.application import object_store, placed_block
from anchorline.application.object_parts import name_of
from anchorline.application.object_store import ObjectStore
from anchorline.application.placed_block import runs_of
from anchorline.domain.entry import Tier
from anchorline.domain.errors import ObjectCorrupt
from anchorline.domain.object_header import LINE_BYTES, ObjectHeader, round_up
from anchorline.domain.stored_entry import ObjectName
from anchorline.domain.sums import Sums, sums_of
from anchorline.ports.block_storage import ByteArray, ByteRange
from anchorline.simulation.box import Box
from support.stored_objects import make_header

LENGTHS = (1, 4_095, 4_096, 4_104, 20_001, 0, 40_000)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small parts have several, and lanes have several runs of a block."""
    monkeypatch.setattr(object_store, "LOOK_BYTES", LINE_BYTES)
    monkeypatch.setattr(placed_block, "RUN_BYTES", 2 * LINE_BYTES)
    monkeypatch.setattr(placed_block, "RUN_BYTES_MIN", LINE_BYTES)
    monkeypatch.setattr(CheckableState, "lanes_place", True)


def words(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


class Target:
    """Parts in memory, as a `RowsPlace`."""

    def __init__(self) -> None:
        self.parts = {
            f"part.{number}": np.zeros(size, dtype=np.uint8) for number, size in enumerate(LENGTHS)
        }

    def memory(self, view: str) -> ByteArray:
        return self.parts[view]

    def sums(self, view: str, start: int, end: int) -> Sums:
        before = np.zeros(start, dtype=np.uint8)
        return sums_of(np.concatenate([before, self.parts[view][start:end]]))


def stored() -> tuple[CrashableStorage, ObjectStore, ObjectHeader, list[ByteArray]]:
    """A storage with one object of parts of all lengths."""
    random = np.random.default_rng(3)
    raws = [random.integers(0, 256, size, dtype=np.uint8) for size in LENGTHS]
    payload = np.concatenate([np.resize(raw, round_up(len(raw))) for raw in raws])
    storage = CrashableStorage()
    store = ObjectStore(storage, PlainCodec())
    draft = make_header(raws)
    store.write(draft, payload)
    return storage, store, store.read_header(name_of(draft)), raws


def placed(store: ObjectStore, header: ObjectHeader, target: Target) -> dict[str, Sums]:
    found: dict[str, Sums] = {}
    for run in runs_of(header):
        found.update(store.place(name_of(header), run, target))
    return found


class TestPlace:
    def test_parts_of_any_length_come_to_their_places_and_their_sums_add_up(self) -> None:
        _, store, header, raws = stored()
        target = Target()

        sums = placed(store, header, target)

        assert [part.tobytes() for part in target.parts.values()] == [raw.tobytes() for raw in raws]
        assert sums == {part.name: part.sums for part in header.parts}

    def test_what_fills_whole_lines_is_read_to_where_it_belongs(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage, store, header, _ = stored()
        target, read_into, direct = Target(), storage.read_into, 0

        def noted(
            name: ObjectName, ranges: Sequence[ByteRange], buffers: Sequence[ByteArray]
        ) -> None:
            nonlocal direct
            for buffer in buffers:
                if any(np.shares_memory(buffer, part) for part in target.parts.values()):
                    direct += len(buffer)
            read_into(name, ranges, buffers)

        monkeypatch.setattr(storage, "read_into", noted)
        placed(store, header, target)

        assert direct == sum(size // LINE_BYTES * LINE_BYTES for size in LENGTHS)

    def test_a_part_of_another_length_than_its_place_is_refused(self) -> None:
        _, store, header, _ = stored()
        target = Target()
        target.parts["part.2"] = np.zeros(4_095, dtype=np.uint8)

        with pytest.raises(ObjectCorrupt, match="4096 bytes long"):
            placed(store, header, target)

    def test_any_changed_line_of_a_part_is_refused(self) -> None:
        storage, store, header, _ = stored()
        name = name_of(header)
        whole = storage.content(name)
        for at in range(header.parts[0].offset, len(whole), LINE_BYTES):
            broken = bytearray(whole)
            broken[at] ^= 0x04
            storage.overwrite(name, bytes(broken))

            with pytest.raises(ObjectCorrupt):
                placed(store, header, Target())

    def test_what_stands_in_the_fill_behind_a_part_is_refused(self) -> None:
        storage, store, header, _ = stored()
        name = name_of(header)
        broken = bytearray(storage.content(name))
        broken[header.parts[0].offset + LINE_BYTES - 1] = 1
        storage.overwrite(name, bytes(broken))

        with pytest.raises(ObjectCorrupt, match="behind part"):
            placed(store, header, Target())

    def test_an_object_that_was_cut_is_refused(self) -> None:
        storage, store, header, _ = stored()
        name = name_of(header)
        storage.overwrite(name, storage.content(name)[:-LINE_BYTES])

        with pytest.raises(ObjectCorrupt):
            placed(store, header, Target())

    def test_a_header_of_a_known_length_takes_one_read(self) -> None:
        _, store, header, _ = stored()
        nbytes = header.parts[0].offset

        found = store.read_header(name_of(header), nbytes)

        assert found.parts == header.parts

    def test_runs_are_all_parts_in_order_and_none_is_longer_than_it_must_be(self) -> None:
        *_, header, _ = stored()

        runs = runs_of(header)

        assert [part for run in runs for part in run] == list(header.parts)
        for run in runs:
            nbytes = sum(part.padded_bytes for part in run)
            assert nbytes <= 2 * LINE_BYTES or len([p for p in run if p.padded_bytes]) == 1


def a_box_with_a_stored_conversation(**how: object) -> tuple[Box, list[int]]:
    box = Box(slots=1, **how)  # pyright: ignore[reportArgumentType]
    box.server.ask(words(0, 48))
    ids = box.server.scheduler.slots[0].resident.ids.tolist()
    assert box.flush().durable
    box.kill()
    return box, ids


def blocks(box: Box) -> list[ObjectName]:
    (entry,) = box.disk.tier.entries()
    return [block.name for block in entry.blocks]


class TestRestore:
    def test_rows_are_brought_in_by_lanes_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        box, ids = a_box_with_a_stored_conversation()
        monkeypatch.delattr(CheckableState, "import_rows")

        found = box.server.ask([*ids, 5])

        assert (found.decision.tier, found.decision.quarantined) == (Tier.DISK, 0)

    @pytest.mark.parametrize("buffers", [1, 3])
    def test_compressed_blocks_come_through_staging_buffers(self, buffers: int) -> None:
        box, ids = a_box_with_a_stored_conversation(codec=PlaneCodec(), staging_count=buffers)

        found = box.server.ask([*ids, 5])

        assert (found.decision.tier, found.decision.quarantined) == (Tier.DISK, 0)
        assert box.disk.pool.lent == 0

    @pytest.mark.parametrize("number", range(3))
    @pytest.mark.parametrize("at", [3, -3])
    def test_a_damaged_block_is_never_resumed_from(self, number: int, at: int) -> None:
        box, ids = a_box_with_a_stored_conversation()
        name = blocks(box)[number]
        content = bytearray(box.storage.content(name))
        content[at] ^= 0x10
        box.storage.overwrite(name, bytes(content))

        found = box.server.ask([*ids, 5])  # its state is held against the oracle's

        assert found.decision.quarantined == 1

    def test_bytes_that_do_not_stand_as_they_were_written_are_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        box, ids = a_box_with_a_stored_conversation()
        right = PlacedRows.sums

        def faulty(place: PlacedRows, view: str, start: int, end: int) -> Sums:
            place.memory(view)[end - 1] ^= 1  # once its checksum has been taken
            return right(place, view, start, end)

        monkeypatch.setattr(PlacedRows, "sums", faulty)

        found = box.server.ask([*ids, 5])

        assert found.decision.quarantined > 0
        assert found.decision.tier is not Tier.DISK

    def test_once_a_restore_is_given_up_no_lane_writes_to_the_slot(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writes: list[str] = []
        right = PlacedRows.memory

        def noted(place: PlacedRows, view: str) -> ByteArray:
            writes.append(view)
            return right(place, view)

        monkeypatch.setattr(PlacedRows, "memory", noted)
        steps, wrote = 0, False
        while True:
            steps += 1
            box, ids = a_box_with_a_stored_conversation()
            writes.clear()
            request = box.server.submit([*ids, 5])
            for _ in range(steps):
                box.server.step()
            if box.server.scheduler.slots[0].preparing is None:
                break
            box.server.scheduler.cancel(request)
            box.server.step()
            wrote = wrote or bool(writes)
            writes.clear()

            box.settle()
            assert not writes
            assert box.server.ask([*ids, 5]).decision.tier is Tier.DISK

        assert wrote
