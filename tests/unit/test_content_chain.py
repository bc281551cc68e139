"""What the content chain tells apart, and that no state is put together of two histories."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.application.object_store import ObjectStore
from anchorline.application.rebuild import rebuild
from anchorline.application.verify import verify
from anchorline.domain.content_chain import NO_ROWS, ContentChain, ContentDigest, link
from anchorline.domain.grid import Span
from anchorline.domain.object_header import ObjectHeader, ObjectKind
from anchorline.domain.object_name import chain_of, identity_of
from anchorline.domain.prefix_key import extend
from anchorline.domain.stored_entry import StoredAnchor, StoredBlock, StoredEntry
from anchorline.domain.tokens import token_ids
from anchorline.simulation.box import Box
from support.stored_objects import make_header, padded, random_parts

ONE, OTHER = ContentDigest("0" * 31 + "1"), ContentDigest("0" * 31 + "2")
Spoil = Callable[[StoredEntry, StoredEntry], StoredEntry]


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


# --- the chain ------------------------------------------------------------------------------------


def test_a_chain_is_of_what_stands_below_of_the_content_and_of_its_line() -> None:
    chains = {
        link(NO_ROWS, ONE, 8),
        link(NO_ROWS, OTHER, 8),
        link(NO_ROWS, ONE, 7),
        link(link(NO_ROWS, ONE, 8), ONE, 8),
    }

    assert len(chains) == 4
    assert {len(chain) for chain in chains} == {len(NO_ROWS)}


def test_equal_content_in_another_order_has_another_chain() -> None:
    assert link(link(NO_ROWS, ONE, 8), OTHER, 16) != link(link(NO_ROWS, OTHER, 8), ONE, 16)


def test_a_chain_stays_what_it_was_from_version_to_version() -> None:
    """Stores outlive programs: whoever changes it changes `FORMAT_VERSION` too."""
    assert NO_ROWS.hex() == "83d11457bae4769f20799ca9c1c35d7c"
    assert link(NO_ROWS, ONE, 8).hex() == "d7bf8393d0fe46e5241d472e2763e9aa"


# --- rows that are equal by accident --------------------------------------------------------------


def history(
    contents: Sequence[int], *, kind: ObjectKind, sections: npt.NDArray[np.uint8]
) -> list[tuple[ObjectHeader, npt.NDArray[np.uint8]]]:
    """Blocks of 8 rows with the bytes of these seeds, and an anchor on top; always the same ids."""
    made: list[tuple[ObjectHeader, npt.NDArray[np.uint8]]] = []
    key, below = make_header([sections]).previous, NO_ROWS
    for number, seed in enumerate(contents):
        span = Span(8 * number, 8 * number + 8)
        tokens = token_ids(range(span.start, span.end))
        (rows,) = random_parts(seed, (500,))
        block = replace(
            make_header([rows]),
            key=extend(key, tokens),
            previous=key,
            below=below,
            span=span,
            token_ids=tokens,
            key_ids=tokens,
            taint=0,
        )
        made.append((block, rows))
        key, below = block.key, chain_of(block)
    last, _ = made[-1]
    anchor = replace(
        make_header([sections], kind=kind, start=last.span.start),
        key=last.key,
        previous=last.previous,
        below=below,
        token_ids=last.token_ids,
        key_ids=last.key_ids,
        taint=0,
    )
    return [*made, (anchor, sections)]


@pytest.mark.parametrize("sections", [b"", b"the same"], ids=["no sections", "equal sections"])
def test_what_is_equal_by_accident_belongs_to_each_history_of_its_own(sections: bytes) -> None:
    """Some rows have the same bits whoever wrote them, as the keys of a first layer may have."""
    raw = np.frombuffer(sections, dtype=np.uint8)
    store, catalog = ObjectStore(CrashableStorage(), PlainCodec()), MemoryCatalog()
    for contents, kind in (
        ([1, 5, 7], ObjectKind.END),
        ([2, 5], ObjectKind.GRID),
        ([1], ObjectKind.GRID),
    ):
        for header, payload in history(contents, kind=kind, sections=raw):
            store.write(header, padded(payload))
    report = rebuild(store, catalog, 0.0)

    found = {entry.anchors[-1].line: entry for entry in catalog.entries()}
    assert report.lost == 0
    for contents, kind in (([1, 5, 7], ObjectKind.END), ([2, 5], ObjectKind.GRID)):
        *blocks, (anchor, _) = history(contents, kind=kind, sections=raw)
        entry = found[anchor.line]
        assert [one.name for one in entry.blocks] == [identity_of(one).name for one, _ in blocks]
        assert entry.anchors[-1].name == identity_of(anchor).name


def test_a_first_block_that_says_that_there_are_rows_below_it_carries_nothing() -> None:
    raw = np.frombuffer(b"sections", dtype=np.uint8)
    store, catalog = ObjectStore(CrashableStorage(), PlainCodec()), MemoryCatalog()
    (block, rows), (anchor, _) = history([1], kind=ObjectKind.GRID, sections=raw)
    block = replace(block, below=link(NO_ROWS, ONE, 8))
    store.write(block, padded(rows))
    store.write(replace(anchor, below=chain_of(block)), padded(raw))

    assert rebuild(store, catalog, 0.0).lost == 1


def test_a_block_over_other_rows_is_another_object() -> None:
    rows = random_parts(3, (500,))
    header = make_header(rows)
    over = replace(header, below=ContentChain(b"\1" * 16))

    assert identity_of(over).name != identity_of(header).name


# --- entries that mix two histories ---------------------------------------------------------------


def written_twice(box: Box) -> tuple[list[int], StoredEntry, StoredEntry]:
    """The same tokens decoded from 20 on, and read as a prompt; and the entry of each."""
    request = box.server.submit(ids(0, 20), max_tokens=60)
    box.server.run()
    sequence = box.server.sequences[request].tolist()
    assert box.flush().durable
    box.server.scheduler.clear_ram()
    box.server.ask(sequence[:74], max_tokens=1)
    assert box.flush().durable
    box.server.scheduler.clear_ram()
    decoded, read = sorted(box.catalog.entries(), key=lambda entry: entry.taint)
    return sequence, decoded, read


def at(parts: Sequence[StoredBlock], end: int) -> int:
    return [part.end for part in parts].index(end)


def with_a_block_of(entry: StoredEntry, other: StoredEntry) -> StoredEntry:
    blocks = list(entry.blocks)
    blocks[at(blocks, 40)] = other.blocks[at(other.blocks, 40)]
    return replace(entry, blocks=tuple(blocks))


def with_the_rows_of(entry: StoredEntry, other: StoredEntry) -> StoredEntry:
    blocks = (*other.blocks[: at(other.blocks, 40) + 1], *entry.blocks[at(entry.blocks, 40) + 1 :])
    return replace(entry, blocks=blocks)


def with_an_anchor_of(entry: StoredEntry, other: StoredEntry) -> StoredEntry:
    theirs: list[StoredAnchor] = [one for one in other.anchors if one.line == 64]
    return replace(
        entry, anchors=tuple(sorted([*entry.anchors, *theirs], key=lambda one: one.line))
    )


@pytest.mark.parametrize(
    "spoil",
    [with_a_block_of, with_the_rows_of, with_an_anchor_of],
    ids=["a block", "all rows up to a line", "an anchor"],
)
def test_an_entry_of_two_histories_is_found_and_never_resumed(spoil: Spoil) -> None:
    """All its objects are whole, and have the right keys at the right lines."""
    box = Box()
    sequence, decoded, read = written_twice(box)
    box.catalog.remove([read.id])
    box.catalog.put(spoil(decoded, read))

    report = verify(ObjectStore(box.storage, PlainCodec()), box.catalog)
    box.kill()
    # What a forward starts from is held against every state that ever was.
    prompts = ([*sequence[:78], 1], [*sequence, 1], [*sequence[:70], 1])
    answers = [box.server.ask(prompt) for prompt in prompts]

    assert (report.damaged, report.broken) == (0, 1)
    assert sum(answer.decision.quarantined for answer in answers) == 1
