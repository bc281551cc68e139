"""What a stored object says about itself, and what is refused."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from anchorline.domain.anchor import AnchorKind
from anchorline.domain.content_chain import NO_ROWS, ContentChain, link
from anchorline.domain.end import End
from anchorline.domain.errors import ObjectCorrupt
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.grid import Span
from anchorline.domain.object_format import (
    FORMAT_VERSION,
    HEADER_BYTES_MAX,
    check_stored,
    decode_header,
    encode_header,
    header_bytes,
    place_parts,
)
from anchorline.domain.object_header import LINE_BYTES, ObjectHeader, ObjectKind, PartRecord
from anchorline.domain.object_name import (
    check_name,
    content_digest,
    identity_of,
    key_prefix,
    parse_name,
)
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.sums import Sums
from anchorline.domain.tokens import token_ids
from support.stored_objects import crc32, make_header, padded, random_parts

RAWS = random_parts(1, (5000, 4096, 1))
CONTRADICTIONS: list[Callable[[ObjectHeader], ObjectHeader]] = [
    lambda header: dataclasses.replace(header, fingerprint="../../etc"),
    lambda header: dataclasses.replace(header, key=PrefixKey(b"")),
    lambda header: dataclasses.replace(header, key=PrefixKey(bytes(17))),
    lambda header: dataclasses.replace(header, below=ContentChain(bytes(15))),
    lambda header: dataclasses.replace(header, span=Span(0, 9)),
    lambda header: dataclasses.replace(header, key_ids=token_ids([1])),
    lambda header: dataclasses.replace(header, taint=9),
    lambda header: dataclasses.replace(header, end=End(line=8)),
    lambda header: dataclasses.replace(header, kind=ObjectKind.END),
    lambda header: dataclasses.replace(header, kind=ObjectKind.END, end=End(line=7)),
    lambda header: dataclasses.replace(header, parts=()),
    lambda header: dataclasses.replace(header, parts=header.parts[:1] * 2),
    lambda header: dataclasses.replace(
        header, span=Span(8, 8), token_ids=token_ids([]), key_ids=token_ids([])
    ),
]
OTHER_NAMES: list[Callable[[str], str]] = [
    lambda name: "../" + name,
    lambda name: "/" + name,
    lambda name: name + "\n",
    lambda name: name + ".tmp-1",
    lambda name: name.upper(),
    lambda name: name.replace(".blk", ".anc"),
    lambda name: name.replace("blocks/", "blocks/../blocks/"),
    lambda name: name[:70] + "zz" + name[72:],
    lambda name: name[:64],
    lambda _: "",
]


def sealed(lines: bytearray) -> bytes:
    """The lines with a checksum that holds: what a hostile writer would hand in."""
    lines[20:24] = bytes(4)
    lines[20:24] = crc32(np.frombuffer(bytes(lines), dtype=np.uint8)).to_bytes(4, "little")
    return bytes(lines)


class TestHeader:
    @pytest.mark.parametrize("kind", ObjectKind)
    def test_a_header_is_read_as_it_was_written(self, kind: ObjectKind) -> None:
        header = make_header(RAWS, kind=kind)

        read = decode_header(encode_header(header, crc32), crc32)

        assert np.array_equal(read.token_ids, header.token_ids)
        assert np.array_equal(read.key_ids, header.key_ids)
        for field in dataclasses.fields(ObjectHeader):
            if field.name not in ("token_ids", "key_ids"):
                assert getattr(read, field.name) == getattr(header, field.name), field.name

    def test_key_ids_that_differ_from_token_ids_are_kept_apart(self) -> None:
        header = dataclasses.replace(make_header(RAWS), key_ids=token_ids(range(8)))

        read = decode_header(encode_header(header, crc32), crc32)

        assert read.key_ids.tolist() == list(range(8))
        assert np.array_equal(read.token_ids, header.token_ids)

    def test_a_missing_session_is_not_an_empty_one(self) -> None:
        sessions = [
            decode_header(encode_header(make_header(RAWS, session=name), crc32), crc32).session
            for name in (None, "", "s")
        ]

        assert sessions == [None, "", "s"]

    def test_parts_follow_each_other_in_whole_lines(self) -> None:
        header = make_header(RAWS)

        assert [part.offset for part in header.parts] == [4096, 12288, 16384]
        assert header.object_bytes == 20480

    def test_a_header_takes_as_many_lines_as_it_needs_and_says_so_in_its_first(self) -> None:
        lines = encode_header(make_header(RAWS, tokens=5000), crc32)

        assert len(lines) == 5 * LINE_BYTES
        assert header_bytes(lines[:LINE_BYTES]) == len(lines)
        with pytest.raises(ObjectCorrupt, match=r"20480 bytes long, and 4096 are there"):
            decode_header(lines[:LINE_BYTES], crc32)

    def test_what_follows_the_header_is_not_looked_at(self) -> None:
        lines = encode_header(make_header(RAWS), crc32)

        assert decode_header(lines + b"\xff" * 5, crc32).line == 8

    def test_an_unknown_version_is_named(self) -> None:
        lines = bytearray(encode_header(make_header(RAWS), crc32))
        lines[8] = FORMAT_VERSION + 1

        with pytest.raises(ObjectCorrupt, match=r"format version 3, and this program reads 2"):
            decode_header(sealed(lines), crc32)

    @pytest.mark.parametrize(
        "data", [b"", b"ANCHORLN", bytes(LINE_BYTES), b"\x89PNG" + bytes(LINE_BYTES)]
    )
    def test_what_is_no_object_is_refused(self, data: bytes) -> None:
        with pytest.raises(ObjectCorrupt):
            decode_header(data, crc32)

    def test_a_header_that_claims_to_be_enormous_is_refused_before_it_is_read(self) -> None:
        lines = bytearray(encode_header(make_header(RAWS), crc32))
        claimed = HEADER_BYTES_MAX + LINE_BYTES
        lines[12:16] = claimed.to_bytes(4, "little")
        lines[16:20] = (claimed - 24).to_bytes(4, "little")

        with pytest.raises(ObjectCorrupt, match=str(claimed)):
            header_bytes(sealed(lines))

    def test_no_field_of_a_well_sealed_header_makes_more_than_a_refusal(self) -> None:
        lines = encode_header(make_header(RAWS, kind=ObjectKind.END), crc32)

        for at in range(24, 600):
            hostile = bytearray(lines)
            hostile[at] ^= 0xFF
            try:
                decode_header(sealed(hostile), crc32)
            except ObjectCorrupt:
                continue

    def test_parts_that_overlap_or_leave_a_gap_are_refused(self) -> None:
        header = make_header(RAWS)
        for offset in (4096, 8192, 16384):
            moved = dataclasses.replace(header.parts[1], offset=offset)
            parts = (header.parts[0], moved, header.parts[2])
            with pytest.raises(ValueError, match=f"placed at {offset} and not at 12288"):
                encode_header(dataclasses.replace(header, parts=parts), crc32)

    def test_a_header_over_the_bound_is_not_written(self) -> None:
        raws = [np.zeros(1, dtype=np.uint8)] * 4000
        header = make_header(raws, tokens=1 << 18)
        header = place_parts(dataclasses.replace(header, key_ids=token_ids(range(1, 2**18 + 1))))
        assert len(encode_header(header, crc32)) <= HEADER_BYTES_MAX

        spans = tuple(Span(at, at + 1) for at in range(20_000))
        end = dataclasses.replace(
            header, kind=ObjectKind.END, end=End(line=header.line, hidden=spans)
        )
        with pytest.raises(ValueError, match="20000 spans exceed the bound of 16384"):
            place_parts(end)


class TestWhatAHeaderMayNotSay:
    @pytest.mark.parametrize(
        "change",
        CONTRADICTIONS,
    )
    def test_a_header_that_contradicts_itself_cannot_be_made(
        self, change: Callable[[ObjectHeader], ObjectHeader]
    ) -> None:
        header = make_header(RAWS)

        with pytest.raises(ValueError, match=r".+"):
            change(header)

    @pytest.mark.parametrize(
        ("dtype", "shape", "raw_bytes", "stored_bytes", "codec"),
        [
            ("complex64", (1,), 8, 8, "raw"),
            ("uint8", (3,), 4, 4, "raw"),
            ("uint8", (4,), 4, 3, "raw"),
            ("uint8", (-4,), -4, -4, "raw"),
            ("uint8", (1,) * 9, 1, 1, "raw"),
            ("uint8", (1 << 50,), 1 << 50, 1, "planes"),
        ],
    )
    def test_a_part_that_contradicts_itself_cannot_be_made(
        self, dtype: str, shape: tuple[int, ...], raw_bytes: int, stored_bytes: int, codec: str
    ) -> None:
        with pytest.raises(ValueError, match="part p"):
            PartRecord("p", dtype, shape, raw_bytes, stored_bytes, 0, Sums(0, 0), codec)

    def test_an_anchor_may_tell_its_line_alone(self) -> None:
        header = dataclasses.replace(
            make_header(RAWS, kind=ObjectKind.GRID),
            span=Span(8, 8),
            token_ids=token_ids([]),
            key_ids=token_ids([]),
        )

        assert decode_header(encode_header(place_parts(header), crc32), crc32).span == Span(8, 8)


class TestParts:
    def test_a_part_as_written_passes(self) -> None:
        header = make_header(RAWS)

        for part, raw in zip(header.parts, RAWS, strict=True):
            check_stored(part, padded(raw), crc32)

    def test_swapped_payloads_are_refused(self) -> None:
        raws = random_parts(3, (5000, 5000))
        header = make_header(raws)

        with pytest.raises(ObjectCorrupt, match=r"part part\.0 has the checksum"):
            check_stored(header.parts[0], padded(raws[1]), crc32)

    def test_a_truncated_part_is_refused(self) -> None:
        header = make_header(RAWS)

        for shorter in (1, 4096, 8191):
            with pytest.raises(ObjectCorrupt, match="bytes of 8192"):
                check_stored(header.parts[0], padded(RAWS[0])[:-shorter], crc32)

    def test_something_behind_a_part_is_refused(self) -> None:
        header = make_header(RAWS)
        stored = padded(RAWS[0])
        stored[-1] = 1

        with pytest.raises(ObjectCorrupt, match=r"behind part part\.0"):
            check_stored(header.parts[0], stored, crc32)


class TestNames:
    def test_a_block_is_named_by_its_key_and_its_content_over_what_is_below(self) -> None:
        header = make_header(RAWS)
        key, chain = header.key.hex(), link(NO_ROWS, content_digest(header.parts), 8).hex()

        assert identity_of(header).name == (
            f"{header.fingerprint}/blocks/{key[:2]}/{key}-{chain}.blk"
        )

    @pytest.mark.parametrize("kind", AnchorKind)
    def test_an_anchor_is_named_by_its_kind_too(self, kind: AnchorKind) -> None:
        header = make_header(RAWS, kind=ObjectKind.of_anchor(kind))
        key, chain = header.key.hex(), link(NO_ROWS, content_digest(header.parts), 8).hex()

        assert identity_of(header).name == (
            f"{header.fingerprint}/anchors/{key[:2]}/{key}-{kind.value}-{chain}.anc"
        )

    @pytest.mark.parametrize("kind", ObjectKind)
    def test_the_same_bytes_over_other_rows_have_another_name(self, kind: ObjectKind) -> None:
        header = make_header(RAWS, kind=kind)
        below = link(NO_ROWS, content_digest(header.parts), 8)

        assert identity_of(dataclasses.replace(header, below=below)) != identity_of(header)

    @pytest.mark.parametrize("kind", ObjectKind)
    def test_a_name_tells_what_it_was_made_of(self, kind: ObjectKind) -> None:
        identity = identity_of(make_header(RAWS, kind=kind))

        assert parse_name(identity.name) == identity
        assert identity.name.startswith(key_prefix(identity.fingerprint, kind, identity.key))

    def test_a_key_cut_to_one_byte_makes_a_name_as_well(self) -> None:
        header = dataclasses.replace(make_header(RAWS), key=PrefixKey(b"\x07"))
        name = identity_of(header).name

        assert "/blocks/07/07-" in name
        assert parse_name(name) == identity_of(header)

    @pytest.mark.parametrize(
        "change",
        OTHER_NAMES,
    )
    def test_any_other_name_is_none_of_ours(self, change: Callable[[str], str]) -> None:
        name = identity_of(make_header(RAWS)).name

        assert parse_name(change(name)) is None

    def test_a_key_in_another_keys_folder_is_none_of_ours(self) -> None:
        identity = identity_of(dataclasses.replace(make_header(RAWS), key=PrefixKey(b"\x07" * 16)))

        assert parse_name(identity.name.replace("/07/", "/08/")) is None

    def test_an_object_under_anothers_name_is_refused(self) -> None:
        header, other = make_header(RAWS), make_header(random_parts(2, (5000, 4096, 1)))

        check_name(header, identity_of(header).name)
        with pytest.raises(ObjectCorrupt, match="says that it is"):
            check_name(header, identity_of(other).name)

    def test_the_digest_is_of_the_bytes_and_not_of_how_they_are_stored(self) -> None:
        header = make_header(RAWS)
        packed = [
            dataclasses.replace(part, codec="planes", stored_bytes=1, crc32c=0, offset=0)
            for part in header.parts
        ]

        assert content_digest(packed) == content_digest(header.parts)

    @pytest.mark.parametrize(
        "change",
        [
            {"name": "other"},
            {"dtype": "int8"},
            {"shape": (50, 100)},
            {"sums": Sums(1, 2)},
        ],
    )
    def test_the_digest_tells_parts_apart(self, change: dict[str, object]) -> None:
        first, *others = make_header(RAWS).parts
        changed = dataclasses.replace(first, **change)

        assert content_digest([changed, *others]) != content_digest([first, *others])
        assert content_digest([*others, first]) != content_digest([first, *others])

    @pytest.mark.parametrize("sums", [Sums(1, 3), Sums(2, 2)])
    def test_the_digest_tells_parts_apart_by_either_sum(self, sums: Sums) -> None:
        part = dataclasses.replace(make_header(RAWS).parts[0], sums=Sums(1, 2))

        assert content_digest([part]) != content_digest([dataclasses.replace(part, sums=sums)])

    def test_two_fingerprints_never_share_a_name(self) -> None:
        header = make_header(RAWS)
        other = dataclasses.replace(header, fingerprint=fingerprint_of({"weights": "other"}))

        assert identity_of(other).name != identity_of(header).name
