"""Stored objects and catalogs that somebody has made: each costs a miss, and no memory."""

import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard

from anchorline.adapters.codec.plane_codec import PLANES, PlaneCodec
from anchorline.adapters.codec.plane_format import FRAME_ITEMS, HEADER
from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.adapters.sqlite.entry_record import decode_entry, encode_entry
from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.application.object_store import ObjectStore
from anchorline.domain.anchor import AnchorKind
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.errors import ObjectCorrupt
from anchorline.domain.object_format import (
    HEADER_BYTES_MAX,
    MAGIC,
    encode_header,
    place_parts,
)
from anchorline.domain.object_header import LINE_BYTES, ObjectHeader, PartRecord, round_up
from anchorline.domain.object_name import identity_of
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from anchorline.domain.sums import Sums
from anchorline.ports.block_storage import ByteArray, object_name
from support.stored_objects import FINGERPRINT, make_header, make_object, random_parts

BUFFER_BYTES = 1 << 20
"""What the layout of a test's model needs."""

SMALL = 16 << 20
"""More than a refusal may take, and far less than what the objects claim."""

CODEC = PlaneCodec()


def filled(data: bytes) -> ByteArray:
    out = np.zeros(round_up(len(data)), dtype=np.uint8)
    out[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return out


def store_with(header: ObjectHeader, payload: bytes) -> tuple[ObjectStore, ObjectName, int]:
    """A store that holds the object, its name and its length."""
    placed = place_parts(header)
    lines = np.frombuffer(encode_header(placed, CODEC.checksum), dtype=np.uint8)
    storage = CrashableStorage(bytes_max=1 << 30)
    name = object_name(identity_of(placed).name)
    pieces = [lines, *([filled(payload)] if payload else [])]
    storage.put(name, pieces)
    return ObjectStore(storage, CODEC), name, sum(map(len, pieces))


def packed_part(name: str, raw_bytes: int, stored: bytes) -> PartRecord:
    return PartRecord(
        name=name,
        dtype="uint8",
        shape=(raw_bytes,),
        raw_bytes=raw_bytes,
        stored_bytes=len(stored),
        crc32c=CODEC.checksum(np.frombuffer(stored, dtype=np.uint8)),
        sums=Sums(0, 0),
        codec=PLANES,
    )


def bomb(raw_bytes: int) -> bytes:
    """A part of zeros in as few bytes as its format allows."""
    whole = zstandard.ZstdCompressor(level=19).compress(bytes(FRAME_ITEMS))
    count = raw_bytes // FRAME_ITEMS
    table = struct.pack("<I", len(whole)) * count
    return HEADER.pack(1, 1, 0, count, raw_bytes) + table + whole * count


def refused(call: Callable[[], object]) -> None:
    """It is found to be damaged, and next to nothing is allocated on the way."""
    tracemalloc.start()
    try:
        with pytest.raises(ObjectCorrupt):
            call()
        assert tracemalloc.get_traced_memory()[1] < SMALL
    finally:
        tracemalloc.stop()


# --- objects --------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 4])
def test_an_object_that_would_become_larger_than_the_layout_is_refused_unread(parts: int) -> None:
    raw_bytes = (64 << 20) // parts
    stored = bomb(raw_bytes)
    assert len(stored) < 64 << 10
    header = make_header(random_parts(1, [10]))
    header = replace(
        header, parts=tuple(packed_part(f"p{at}", raw_bytes, stored) for at in range(parts))
    )
    payload = b"".join(bytes(filled(stored)) for _ in range(parts))
    store, name, nbytes = store_with(header, payload)

    staging = store.storage.buffer(BUFFER_BYTES)
    refused(lambda: store.read(name, nbytes, staging, raw_bytes_max=BUFFER_BYTES))


def test_a_claim_of_terabytes_is_refused_where_no_layout_is_known() -> None:
    stored = bomb(1 << 20)
    header = make_header(random_parts(1, [10]))
    header = replace(header, parts=(packed_part("p", 1 << 40, stored),))
    store, name, nbytes = store_with(header, stored)

    staging = store.storage.buffer(BUFFER_BYTES)
    refused(lambda: store.read(name, nbytes, staging))


def frame_of(plain: bytes, *, told: bool = True, window_log: int = 0) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(  # pyright: ignore[reportCallIssue]
        **({"window_log": window_log} if window_log else {}), write_content_size=told
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(plain)


@pytest.mark.parametrize(
    "frame",
    [
        frame_of(bytes(64 << 20)),
        frame_of(bytes(64 << 20), told=False),
        frame_of(bytes(FRAME_ITEMS), told=False),
        frame_of(bytes(FRAME_ITEMS + 1)),
        frame_of(bytes(64 << 20), window_log=27)[:60],
        frame_of(bytes(FRAME_ITEMS)) * 2,
        b"\x28\xb5\x2f\xfd" + b"\xff" * 60,
        b"",
        bytes(60),
    ],
    ids=[
        *("tells more", "tells nothing", "tells nothing of enough", "one more", "a huge window"),
        *("two frames", "no frame", "nothing", "zeros"),
    ],
)
def test_a_frame_of_another_length_than_its_place_is_refused_unread(frame: bytes) -> None:
    head = HEADER.pack(1, 1, 0, 1, FRAME_ITEMS) + struct.pack("<I", len(frame))
    stored = np.frombuffer(head + frame, dtype=np.uint8)
    into = np.empty(FRAME_ITEMS, dtype=np.uint8)

    refused(lambda: CODEC.decode(PLANES, stored, into))


@pytest.mark.parametrize(
    ("width", "mask", "zero", "count", "told"),
    [
        (0, 1, 0, 1, FRAME_ITEMS),
        (255, 1, 0, 1, FRAME_ITEMS),
        (1, 0, 0, 1, FRAME_ITEMS),
        (1, 255, 0, 1, FRAME_ITEMS),
        (8, 255, 0, (1 << 32) - 1, FRAME_ITEMS),
        (1, 1, 0, (1 << 32) - 1, FRAME_ITEMS),
        (1, 1, 1, 1, FRAME_ITEMS),
        (1, 1, 0, 1, (1 << 64) - 1),
    ],
)
def test_a_table_that_cannot_be_is_refused_unread(
    width: int, mask: int, zero: int, count: int, told: int
) -> None:
    stored = np.frombuffer(HEADER.pack(width, mask, zero, count, told) + bytes(64), dtype=np.uint8)
    into = np.empty(FRAME_ITEMS, dtype=np.uint8)

    refused(lambda: CODEC.decode(PLANES, stored, into))


@pytest.mark.parametrize("nbytes", [0, 4096, HEADER_BYTES_MAX, HEADER_BYTES_MAX + 4096, 1 << 31])
def test_a_header_of_any_length_is_refused_unread(nbytes: int) -> None:
    name, parts = make_object(1)
    lines = parts[0].copy()
    lines[:24] = np.frombuffer(
        struct.pack("<8sIIII", MAGIC, 1, nbytes, max(nbytes - 24, 0), 0), dtype=np.uint8
    )
    storage = CrashableStorage(bytes_max=1 << 30)
    storage.put(name, [lines])

    refused(lambda: ObjectStore(storage, PlainCodec()).read_header(name))


@pytest.mark.parametrize("at", range(24, 600, 7))
@pytest.mark.parametrize("value", [0x00, 0x7F, 0xFF])
def test_a_header_with_any_count_or_length_in_it_is_refused(at: int, value: int) -> None:
    """Eight bytes anywhere, and a checksum that holds over them."""
    name, parts = make_object(1)
    lines = parts[0].copy()
    lines[at : at + 8] = value
    lines[20:24] = 0
    checksum = PlainCodec().checksum(lines)
    lines[20:24] = np.frombuffer(checksum.to_bytes(4, "little"), dtype=np.uint8)
    storage = CrashableStorage(bytes_max=1 << 30)
    storage.put(name, [lines, *parts[1:]])
    store = ObjectStore(storage, PlainCodec())

    tracemalloc.start()
    try:
        header = store.read_header(name)
    except ObjectCorrupt:
        header = None
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < SMALL
    if header is not None:  # it hit what names do not tell of
        assert identity_of(header).name == name


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("uint8", (1 << 63, 2)),
        ("uint8", (1 << 41,)),
        ("float64" * 500, (1,)),
        ("object", (1,)),
        ("", (1,)),
        ("../../etc", (1,)),
        ("uint8\x00", (1,)),
        ("uint8", (1,) * 9),
    ],
    ids=["overflow", "too long", "long", "object", "none", "path", "NUL", "dimensions"],
)
def test_a_part_of_no_known_kind_cannot_be_told_of(dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="part p"):
        PartRecord("p", dtype, shape, 1, 1, 0, Sums(0, 0), "raw")


# --- catalogs -------------------------------------------------------------------------------------


def entry(name: str, nbytes: int = LINE_BYTES) -> StoredEntry:
    key = PrefixKey(b"12345678")
    return StoredEntry(
        id=EntryId("e"),
        role=Role.CONVERSATION,
        fingerprint=FINGERPRINT,
        blocks=(StoredBlock(ObjectName(name), key, 64, nbytes),),
        anchors=(StoredAnchor(ObjectName(name), key, 64, AnchorKind.GRID, nbytes),),
        taint=64,
        end=None,
        session="s",
        hits=0,
        created_s=0.0,
        last_used_s=0.0,
    )


HONEST = f"{FINGERPRINT}/blocks/31/3132333435363738-{'0' * 32}.blk"
FORGED = {
    "a way up": entry("../../dear"),
    "a way up behind a fingerprint": entry(f"{FINGERPRINT}/../../dear"),
    "from the root": entry("/etc/passwd"),
    "a line end": entry(f"{HONEST}\n"),
    "NUL": entry(f"{HONEST}\x00"),
    "the catalog itself": entry("catalog.db"),
    "nothing": entry(""),
    "less than nothing": entry(HONEST, -LINE_BYTES),
}


def test_an_honest_entry_is_read_back() -> None:
    assert decode_entry(encode_entry(entry(HONEST))) == entry(HONEST)


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_sealed_entry_that_names_what_is_no_object_costs_the_catalog(
    tmp_path: Path, forged: StoredEntry
) -> None:
    with pytest.raises(ValueError, match=r"cannot be an object's name|takes -"):
        decode_entry(encode_entry(forged))
    catalog = SqliteCatalog(tmp_path / "catalog.db")
    catalog.put(forged)
    catalog.close()

    again = SqliteCatalog(tmp_path / "catalog.db")

    assert again.damage is not None
    assert again.needs_rebuild
    assert list(again.entries()) == []
    again.close()
