"""What a write does with rows that change while it is under way."""

from collections.abc import Sequence

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.adapters.memory.stepped_jobs import SteppedJobs
from anchorline.application.entry_write import EntryWrite, Medium, Progress, Snapshot
from anchorline.application.object_parts import HEADER_ROOM_BYTES
from anchorline.application.object_store import ObjectStore
from anchorline.application.staging import StagingPool
from anchorline.application.write_source import SlotSource
from anchorline.domain.anchor import Anchor, AnchorKind
from anchorline.domain.entry import Role
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.namespace import Namespace
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.tokens import token_ids

GRID, LENGTH = 8, 40


def prefill(engine: CheckableEngine, ids: Sequence[int], start: int = 0) -> None:
    for span in engine.profile.grid.chunks(start, len(ids)):
        engine.prefill(0, token_ids(ids[span.start : span.end]))


def a_write(engine: CheckableEngine, anchors: Sequence[Anchor] = ()) -> EntryWrite:
    """Of the first `LENGTH` tokens 0, 1, 2, ..., as a head is written."""
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
    storage = CrashableStorage()
    pool = StagingPool(storage.buffer, HEADER_ROOM_BYTES + 4 * 4096, 8)
    jobs = SteppedJobs({"lane": 64})
    medium = Medium(ObjectStore(storage, PlainCodec()), jobs, pool, ["lane"], lambda _: None)
    chain = PromptChain(ids, Namespace(), engine.profile.grid)
    source = SlotSource(engine.slots[0], engine.copies)
    return EntryWrite(snapshot, chain, engine.profile.layout, source, anchors, medium)


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
