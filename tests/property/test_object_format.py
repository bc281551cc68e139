"""Any object comes back as it was; no damage to any object goes unseen."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorline.domain.content_chain import ContentChain
from anchorline.domain.end import End
from anchorline.domain.entry import Role
from anchorline.domain.errors import ObjectCorrupt
from anchorline.domain.fingerprint import Fingerprint
from anchorline.domain.grid import Span
from anchorline.domain.layout import ITEM_BYTES
from anchorline.domain.namespace import Namespace
from anchorline.domain.object_format import (
    check_stored,
    decode_header,
    encode_header,
    header_bytes,
    place_parts,
)
from anchorline.domain.object_header import LINE_BYTES, ObjectHeader, ObjectKind, PartRecord
from anchorline.domain.object_name import identity_of, parse_name
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.sums import Sums
from anchorline.domain.tokens import token_ids
from support.stored_objects import crc32, make_header, padded, random_parts

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
KEYS = st.binary(min_size=1, max_size=16).map(PrefixKey)
CHAINS = st.binary(min_size=16, max_size=16).map(ContentChain)


@st.composite
def parts(draw: st.DrawFn) -> PartRecord:
    dtype = draw(st.sampled_from(sorted(ITEM_BYTES)))
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=8)))
    raw_bytes = ITEM_BYTES[dtype] * int(np.prod(shape, dtype=np.int64))
    codec = draw(st.sampled_from(["raw", "zstd-planes"]))
    stored = raw_bytes if codec == "raw" else draw(st.integers(0, 20_000))
    sums = Sums(draw(U64), draw(U64))
    return PartRecord(draw(TEXTS), dtype, shape, raw_bytes, stored, draw(U32), sums, codec)


@st.composite
def headers(draw: st.DrawFn) -> ObjectHeader:
    kind = draw(st.sampled_from(ObjectKind))
    ids = draw(st.lists(U32, min_size=1 if kind is ObjectKind.BLOCK else 0, max_size=1500))
    start = draw(st.integers(0, 10**9))
    span = Span(start, start + len(ids))
    bounds = st.integers(0, span.end)
    spans = st.lists(
        st.tuples(bounds, bounds).map(lambda pair: Span(min(pair), max(pair))), max_size=20
    ).map(tuple)
    token = token_ids(ids)
    return place_parts(
        ObjectHeader(
            fingerprint=Fingerprint(draw(st.binary(min_size=32, max_size=32)).hex()),
            namespace=Namespace(draw(TEXTS), draw(TEXTS), draw(TEXTS)),
            kind=kind,
            key=draw(KEYS),
            previous=draw(KEYS),
            below=draw(CHAINS),
            span=span,
            token_ids=token,
            key_ids=draw(st.sampled_from([token, token_ids(ids[::-1])])),
            taint=draw(bounds),
            role=draw(st.sampled_from(Role)),
            session=draw(st.none() | TEXTS),
            end=End(span.end, draw(spans), draw(spans)) if kind is ObjectKind.END else None,
            parts=tuple(
                draw(st.lists(parts(), min_size=1, max_size=6, unique_by=lambda part: part.name))
            ),
        )
    )


@given(headers())
def test_any_header_is_read_as_it_was_written(header: ObjectHeader) -> None:
    lines = encode_header(header, crc32)

    read = decode_header(lines, crc32)

    assert len(lines) % LINE_BYTES == 0
    assert header_bytes(lines[:LINE_BYTES]) == len(lines) == header.parts[0].offset
    assert read.token_ids.tolist() == header.token_ids.tolist()
    assert read.key_ids.tolist() == header.key_ids.tolist()
    for field in dataclasses.fields(ObjectHeader):
        if field.name not in ("token_ids", "key_ids"):
            assert getattr(read, field.name) == getattr(header, field.name)
    assert parse_name(identity_of(header).name) == identity_of(header)


@given(header=headers(), data=st.data())
def test_any_flipped_bit_of_a_header_is_seen(header: ObjectHeader, data: st.DataObject) -> None:
    lines = bytearray(encode_header(header, crc32))
    bit = data.draw(st.integers(0, 8 * len(lines) - 1))
    lines[bit // 8] ^= 1 << bit % 8

    with pytest.raises(ObjectCorrupt):
        decode_header(bytes(lines), crc32)


@given(header=headers(), data=st.data())
def test_any_truncation_of_a_header_is_seen(header: ObjectHeader, data: st.DataObject) -> None:
    lines = encode_header(header, crc32)

    with pytest.raises(ObjectCorrupt):
        decode_header(lines[: data.draw(st.integers(0, len(lines) - 1))], crc32)


@given(st.binary(max_size=600), st.booleans())
def test_garbage_is_refused_and_nothing_else_happens(garbage: bytes, sealed: bool) -> None:
    lines = bytearray(encode_header(make_header(random_parts(0, (10,))), crc32))
    lines[24 : 24 + len(garbage)] = garbage
    if sealed:
        lines[20:24] = bytes(4)
        lines[20:24] = crc32(np.frombuffer(bytes(lines), dtype=np.uint8)).to_bytes(4, "little")

    try:
        header = decode_header(bytes(lines), crc32)
    except ObjectCorrupt:
        return
    assert header.object_bytes >= header_bytes(bytes(lines))


@given(
    length=st.integers(1, 9000), seed=st.integers(0, 99), where=st.floats(0, 1, exclude_max=True)
)
def test_any_flipped_bit_of_a_part_is_seen(length: int, seed: int, where: float) -> None:
    (raw,) = random_parts(seed, (length,))
    (record,) = make_header([raw]).parts
    stored = padded(raw)
    bit = int(where * 8 * len(stored))
    stored[bit // 8] ^= 1 << bit % 8

    with pytest.raises(ObjectCorrupt):
        check_stored(record, stored, crc32)


@given(st.text(max_size=200))
def test_no_text_is_taken_for_a_name_that_it_is_not(text: str) -> None:
    identity = parse_name(text)

    assert identity is None or identity.name == text
