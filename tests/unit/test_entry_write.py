"""What a write does with rows: how often it looks at them, and what if they change meanwhile."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest

from anchorline.adapters.codec.plane_codec import PlaneCodec
from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.adapters.memory.stepped_jobs import SteppedJobs
from anchorline.application.entry_write import EntryWrite, Progress, Snapshot
from anchorline.application.object_parts import HEADER_ROOM_BYTES
from anchorline.application.object_store import ObjectStore
from anchorline.application.outgoing_objects import Medium
from anchorline.application.staging import StagingPool
from anchorline.application.write_source import SlotSource
from anchorline.application.writes import Write, Writes
from anchorline.domain.anchor import Anchor, AnchorKind
from anchorline.domain.entry import Role
from anchorline.domain.errors import RowsChanged, StorageUnavailable
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.grid import Span
from anchorline.domain.namespace import Namespace
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.stored_entry import ObjectName
from anchorline.domain.sums import Sums
from anchorline.domain.tokens import token_ids
from anchorline.ports.gpu_state import ByteBuffers, Look
from anchorline.ports.jobs import JobHandle
from anchorline.simulation.box import Box
from contract.readings import row_buffers

GRID, LENGTH = 8, 40


def prefill(engine: CheckableEngine, ids: Sequence[int], start: int = 0) -> None:
    for span in engine.profile.grid.chunks(start, len(ids)):
        engine.prefill(0, token_ids(ids[span.start : span.end]))


class Lanes(SteppedJobs):
    """Jobs of a medium that is slow: nobody lives to see one end."""

    slow = False

    def wait(self, handle: JobHandle, timeout_s: float | None = None) -> bool:
        return not (self.slow and timeout_s is not None) and super().wait(handle, timeout_s)


class Looks(SlotSource):
    """Notes how rows are looked at."""

    def __init__(self, engine: CheckableEngine) -> None:
        super().__init__(engine.slots[0], engine.copies)
        self.seen: list[tuple[str, int]] = []

    def row_sums(self, span: Span) -> Mapping[str, Sums]:
        self.seen.append(("summed", span.end))
        return super().row_sums(span)

    def export_summed_rows(
        self, span: Span, buffers: ByteBuffers, look: Look | None
    ) -> Mapping[str, Sums]:
        self.seen.append(("copied", span.end))
        return super().export_summed_rows(span, buffers, look)


def a_write(
    engine: CheckableEngine,
    anchors: Sequence[Anchor] = (),
    *,
    source: SlotSource | None = None,
    buffers: int = 8,
    lanes: SteppedJobs | None = None,
    stored_line: int = 0,
    stored: Mapping[ObjectName, int] = MappingProxyType({}),
    storage: CrashableStorage | None = None,
) -> EntryWrite:
    """Of the first `LENGTH` tokens 0, 1, 2, ..., as a head is written.

    Args:
        stored: objects that the medium has, and their bytes.
    """
    ids = token_ids(range(LENGTH))
    snapshot = Snapshot(
        fingerprint=fingerprint_of({}),
        namespace=Namespace(),
        role=Role.HEAD,
        session=None,
        ids=ids,
        key_ids=ids,
        taint=LENGTH,
        end=None,
    )
    storage = storage or CrashableStorage()
    pool = StagingPool(storage.buffer, HEADER_ROOM_BYTES + 4 * 4096, buffers)
    jobs = lanes or SteppedJobs({"lane": 64})
    medium = Medium(ObjectStore(storage, PlainCodec()), jobs, pool, ["lane"], stored.get)
    chain = PromptChain(ids, Namespace(), engine.profile.grid)
    rows = source or SlotSource(engine.slots[0], engine.copies)
    layout = engine.profile.layout
    return EntryWrite(snapshot, chain, layout, rows, anchors, medium, stored_line)


def an_anchor(engine: CheckableEngine, line: int) -> Anchor:
    return Anchor(line, AnchorKind.GRID, engine.slots[0].capture_sections())


def finish(write: EntryWrite) -> None:
    while write.step() is not Progress.DONE:
        write.wait()


def test_an_anchor_above_rows_that_were_overwritten_is_not_taken_over_the_old_ones() -> None:
    engine = CheckableEngine(window=64, grid=GRID)
    prefill(engine, range(16))
    low = an_anchor(engine, 16)
    prefill(engine, range(LENGTH), start=16)
    write = a_write(engine)
    assert write.add_anchor(an_anchor(engine, LENGTH))

    write.fence(16)
    engine.slots[0].restore_sections(low.handle)
    engine.slots[0].resume_at(16)
    prefill(engine, [*range(16), *range(50, 74)], start=16)

    assert not write.add_anchor(an_anchor(engine, LENGTH))
    finish(write)
    assert write.contents() == ((), ())


def test_an_anchor_that_ends_no_block_is_left_out() -> None:
    engine = CheckableEngine(window=64, grid=GRID)
    prefill(engine, range(21))
    below = an_anchor(engine, 21)
    prefill(engine, range(LENGTH), start=21)
    write = a_write(engine, [below, an_anchor(engine, LENGTH)])

    finish(write)

    blocks, anchors = write.contents()
    assert [block.end for block in blocks] == [8, 16, 24, 32, 40]
    assert [anchor.line for anchor in anchors] == [LENGTH]


class TestTheSync:
    """Objects are synced together, behind the last of them, and the write is done behind that."""

    def written(
        self, storage: CrashableStorage, stored: Mapping[ObjectName, int] = MappingProxyType({})
    ) -> EntryWrite:
        engine = CheckableEngine(window=64, grid=GRID)
        prefill(engine, range(LENGTH))
        write = a_write(engine, [an_anchor(engine, LENGTH)], storage=storage, stored=stored)
        finish(write)
        return write

    def test_one_sync_makes_all_objects_durable_before_the_write_is_done(self) -> None:
        steps: list[str] = []
        storage = CrashableStorage(on_step=steps.append)

        blocks, anchors = self.written(storage).contents()

        assert [step for step in steps if step in ("done", "synced")] == ["done"] * 6 + ["synced"]
        survivors = {found.name for found in storage.crash().names()}
        assert survivors == {one.name for one in (*blocks, *anchors)}

    def test_a_write_that_finds_all_of_it_stored_has_nothing_to_sync(self) -> None:
        steps: list[str] = []
        storage = CrashableStorage(on_step=steps.append)
        blocks, anchors = self.written(storage).contents()
        steps.clear()

        again = self.written(storage, {one.name: one.nbytes for one in (*blocks, *anchors)})

        assert again.contents() == (blocks, anchors)
        assert steps == []

    def test_a_sync_that_fails_fails_the_write(self) -> None:
        def fail(step: str) -> None:
            if step == "sync directories":
                raise StorageUnavailable("the drive failed")

        write = self.written(CrashableStorage(on_step=fail))

        assert isinstance(write.failure, StorageUnavailable)

    def test_what_no_medium_raises_is_raised_once_and_the_write_has_failed(self) -> None:
        def fail(step: str) -> None:
            if step == "sync directories":
                raise ZeroDivisionError

        engine = CheckableEngine(window=64, grid=GRID)
        prefill(engine, range(LENGTH))
        storage = CrashableStorage(on_step=fail)
        write = a_write(engine, [an_anchor(engine, LENGTH)], storage=storage)

        with pytest.raises(ZeroDivisionError):
            finish(write)

        assert write.step() is Progress.DONE
        assert isinstance(write.failure, StorageUnavailable)

    def test_an_anchor_that_comes_during_the_sync_is_synced_as_well(self) -> None:
        steps: list[str] = []
        storage = CrashableStorage(on_step=steps.append)
        engine = CheckableEngine(window=64, grid=GRID)
        prefill(engine, range(16))
        first = an_anchor(engine, 16)
        prefill(engine, range(LENGTH), start=16)
        lanes = SteppedJobs({"lane": 64})
        write = a_write(engine, [first], storage=storage, lanes=lanes)
        while not write.copied:
            write.step()
        lanes.run_all()
        write.step()  # hands the sync to the lane
        assert "sync directories" not in steps

        assert write.add_anchor(an_anchor(engine, LENGTH))
        lanes.run_all()
        assert steps.count("synced") == 1
        write.step()
        assert not write.done
        finish(write)

        assert steps[-2:] == ["sync directories", "synced"]
        assert steps.count("synced") == 2
        names = {one.name for part in write.contents() for one in part}
        assert {found.name for found in storage.crash().names()} == names


def test_who_waits_for_a_buffer_waits_for_a_write_that_has_one() -> None:
    engine = CheckableEngine(window=64, grid=GRID)
    prefill(engine, range(LENGTH))
    lanes = SteppedJobs({"lane": 64})
    storage = CrashableStorage()
    syncing = a_write(engine, [an_anchor(engine, LENGTH)], lanes=lanes, storage=storage)
    while not syncing.copied:
        syncing.step()
    lanes.run_all()
    syncing.step()
    assert not syncing.writing
    copying = a_write(engine, [an_anchor(engine, LENGTH)], lanes=lanes, storage=storage, buffers=1)
    copying.step()
    assert copying.writing
    writes = Writes(Box().disk.tier)
    for work in (syncing, copying):
        writes.add(Write(0, work, ready=True))

    assert writes.wait()

    assert not copying.writing


BLOCKS = [8, 16, 24, 32, 40]


def a_source() -> tuple[CheckableEngine, Looks]:
    engine = CheckableEngine(window=64, grid=GRID)
    prefill(engine, range(LENGTH))
    return engine, Looks(engine)


def test_rows_that_are_new_are_looked_at_once() -> None:
    engine, source = a_source()

    finish(a_write(engine, [an_anchor(engine, LENGTH)], source=source))

    assert source.seen == [("copied", end) for end in BLOCKS]


def test_rows_that_are_stored_are_not_copied() -> None:
    engine, source = a_source()
    first = a_write(engine, [an_anchor(engine, LENGTH)])
    finish(first)
    stored = {block.name: block.nbytes for block in first.contents()[0] if block.end <= 24}

    second = a_write(
        engine, [an_anchor(engine, LENGTH)], source=source, stored_line=24, stored=stored
    )
    finish(second)

    kinds = ["summed" if end <= 24 else "copied" for end in BLOCKS]
    assert source.seen == list(zip(kinds, BLOCKS, strict=True))
    assert second.contents() == first.contents()


def test_what_was_thought_to_be_stored_and_is_not_is_written() -> None:
    engine, source = a_source()

    write = a_write(engine, [an_anchor(engine, LENGTH)], source=source, stored_line=16)
    finish(write)

    assert source.seen[:4] == [("summed", 8), ("copied", 8), ("summed", 16), ("copied", 16)]
    assert [block.end for block in write.contents()[0]] == BLOCKS


def test_sums_run_ahead_of_a_slow_medium_so_that_anchors_are_copied_soon() -> None:
    engine, source = a_source()
    lanes = Lanes({"lane": 64})
    write = a_write(engine, [an_anchor(engine, LENGTH)], source=source, buffers=2, lanes=lanes)

    steps = [write.step(ahead=False) for _ in range(3)]
    waited = list(source.seen)
    lanes.slow = True
    write.wait(0.05)
    while write.step(ahead=False) is Progress.WORKED:
        pass

    assert steps == [Progress.WORKED, Progress.WORKED, Progress.WAITING]
    assert waited == [("copied", 8), ("copied", 16)]
    assert source.seen[2:] == [("summed", end) for end in (24, 32, 40)]
    lanes.slow = False
    finish(write)
    assert [block.end for block in write.contents()[0]] == BLOCKS


def test_rows_that_changed_between_their_sums_and_their_copy_are_not_stored() -> None:
    """Nothing may change them: who fences nothing, or memory that forgets, is found out here."""
    engine, source = a_source()
    write = a_write(engine, [an_anchor(engine, LENGTH)], source=source, buffers=1)
    while source.seen[-1:] != [("summed", LENGTH)]:
        write.step()

    other = CheckableEngine(window=64, grid=GRID)
    prefill(other, range(1, LENGTH + 1))
    rows = row_buffers(engine.profile.layout, Span(16, 24))
    other.slots[0].export_rows(Span(16, 24), rows)
    engine.slots[0].import_rows(Span(16, 24), rows)
    finish(write)

    assert isinstance(write.failure, RowsChanged)


@pytest.mark.parametrize("compresses", [False, True])
def test_checksums_are_taken_of_copies_only_where_copies_are_what_is_stored(
    compresses: bool,
) -> None:
    codec = PlaneCodec() if compresses else PlainCodec()

    assert (ObjectStore(CrashableStorage(), codec).checksum_ahead is None) == compresses
