"""Edges that no other test stood on: each was found by a mutant that survived, see docs/mutants.md.

A bound is written out here where its value is part of what is promised.
"""

import dataclasses
import struct

import numpy as np
import pytest

from anchorline.domain.anchor_budget import line_to_drop
from anchorline.domain.codec_choice import CodecPolicy, CodecRates, choose_codec
from anchorline.domain.entry_value import DAY_S
from anchorline.domain.errors import ObjectCorrupt
from anchorline.domain.grid import Grid, Span
from anchorline.domain.layout import ITEM_BYTES
from anchorline.domain.object_format import (
    HEADER_BYTES_MAX,
    MAGIC,
    SPANS_MAX,
    TEXT_BYTES_MAX,
    decode_header,
    encode_header,
    header_bytes,
    place_parts,
)
from anchorline.domain.object_header import (
    LINE_BYTES,
    PART_BYTES_MAX,
    PARTS_MAX,
    TOKENS_MAX,
    ObjectKind,
    PartRecord,
)
from anchorline.domain.prompt import Prompt
from anchorline.domain.sampling import Sampler, SamplingParams
from anchorline.domain.sums import NO_SUMS, Sums, sums_of
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import token_ids
from anchorline.domain.write_guard import WriteCause, WriteGuard
from support.stored_objects import crc32, make_header, random_parts

RAWS = random_parts(1, (5000, 1))

# --- the format of objects ------------------------------------------------------------------------


def test_a_header_may_take_4_mib_and_a_part_a_tebibyte() -> None:
    assert HEADER_BYTES_MAX == 4 * 1024 * 1024
    assert PART_BYTES_MAX == 1024**4
    assert LINE_BYTES == 4096


@pytest.mark.parametrize("magic", [b"\0" * 8, b"\xff" * 8, MAGIC[:-1] + b"M", MAGIC[:-1] + b"O"])
def test_an_object_that_starts_otherwise_is_refused(magic: bytes) -> None:
    lines = encode_header(make_header(RAWS), crc32)

    with pytest.raises(ObjectCorrupt, match="the object starts with"):
        header_bytes(magic + lines[8:])


@pytest.mark.parametrize("lines", [0, 2, 1024, 1025])
def test_a_header_that_claims_another_length_than_its_metadata_has_is_refused(lines: int) -> None:
    honest = encode_header(make_header(RAWS), crc32)
    assert len(honest) == LINE_BYTES
    claimed = struct.pack("<I", lines * LINE_BYTES)

    with pytest.raises(ObjectCorrupt, match="bytes of metadata in a header of"):
        header_bytes(honest[:12] + claimed + honest[16:])


def test_a_header_of_the_largest_length_is_read() -> None:
    honest = encode_header(make_header(RAWS), crc32)
    metadata_bytes = HEADER_BYTES_MAX - 24
    start = honest[:12] + struct.pack("<II", HEADER_BYTES_MAX, metadata_bytes) + honest[20:]

    assert header_bytes(start) == HEADER_BYTES_MAX


@pytest.mark.parametrize("stored_bytes", [-1, PART_BYTES_MAX + 1])
def test_a_part_of_less_than_nothing_or_more_than_the_bound_is_refused(stored_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"{stored_bytes}"):
        PartRecord("rows", "uint8", (8,), 8, stored_bytes, 0, NO_SUMS, "zstd")


def test_a_part_may_be_as_large_as_the_bound() -> None:
    part = PartRecord(
        "rows", "uint8", (PART_BYTES_MAX,), PART_BYTES_MAX, PART_BYTES_MAX, 0, NO_SUMS, "raw"
    )

    assert part.padded_bytes == PART_BYTES_MAX


def test_an_end_may_have_as_many_spans_as_the_bound_and_no_more() -> None:
    header = make_header(RAWS, kind=ObjectKind.END)
    assert header.end is not None
    honest = header.end

    def encoded(count: int) -> bytes:
        end = dataclasses.replace(honest, hidden=tuple(Span(0, 0) for _ in range(count)))
        return encode_header(place_parts(dataclasses.replace(header, end=end)), crc32)

    read = decode_header(encoded(SPANS_MAX), crc32)

    assert read.end is not None
    assert len(read.end.hidden) == SPANS_MAX
    for count in (SPANS_MAX + 1, SPANS_MAX + 2):
        with pytest.raises(ValueError, match="spans"):
            encoded(count)


# --- rules ----------------------------------------------------------------------------------------


def test_a_day_over_its_budget_takes_conversations_from_the_long_ones_on() -> None:
    guard = WriteGuard(day_bytes_max=100, long_tokens=64)

    allowed = [guard.allows(WriteCause.EVICTION, tokens, 120) for tokens in (63, 64, 65, 1000)]

    assert allowed == [False, True, True, True]


def test_there_are_no_chunks_where_nothing_is_left() -> None:
    assert list(Grid(8).chunks(5, 5)) == []
    assert list(Grid(8).chunks(5, 3)) == []


@pytest.mark.parametrize("line", [0, 3])
def test_an_answer_may_start_anywhere_in_a_prompt(line: int) -> None:
    ids = token_ids([1, 2, 3])

    assert Prompt(ids, ids, first_answer=line).first_answer == line


@pytest.mark.parametrize("line", [-1, 4])
def test_an_answer_starts_nowhere_else(line: int) -> None:
    ids = token_ids([1, 2, 3])

    with pytest.raises(ValueError, match=f"an answer at {line} of 3 tokens"):
        Prompt(ids, ids, first_answer=line)


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
def test_an_item_of_a_dtype_takes_what_it_is_called_after(dtype: str) -> None:
    bits = "".join(filter(str.isdigit, dtype)) or "8"  # a bool takes a byte

    assert ITEM_BYTES[dtype] * 8 == int(bits)


def test_the_sums_of_nothing_are_those_that_stand_for_nothing() -> None:
    assert sums_of(np.empty(0, dtype=np.uint8)) == NO_SUMS == Sums(0, 0)


def test_the_only_anchor_that_is_not_kept_is_the_one_to_drop() -> None:
    assert line_to_drop([8, 16, 24, 32, 40], newest_kept=4) == 8


@pytest.mark.parametrize("nbytes", [TEXT_BYTES_MAX + 1, TEXT_BYTES_MAX + 2])
def test_a_text_longer_than_the_bound_is_not_written(nbytes: int) -> None:
    header = dataclasses.replace(make_header(RAWS), session="s" * nbytes)

    with pytest.raises(ValueError, match=f"a text of {nbytes} bytes"):
        encode_header(header, crc32)


def test_a_text_as_long_as_the_bound_is_written_and_read() -> None:
    header = dataclasses.replace(make_header(RAWS), session="s" * TEXT_BYTES_MAX)

    read = decode_header(encode_header(place_parts(header), crc32), crc32)

    assert read.session == "s" * TEXT_BYTES_MAX


def test_value_halves_with_each_day_of_86400_seconds() -> None:
    assert DAY_S == 24 * 60 * 60


def test_the_sums_of_two_pieces_are_added_modulo_the_words_there_are() -> None:
    top = (1 << 64) - 1

    assert Sums(1, 2) + Sums(3, 4) == Sums(4, 6)
    assert Sums(top, top) + Sums(2, 3) == Sums(1, 2)


def test_gates_are_ordered_from_cold_over_bitwise_to_preserved() -> None:
    assert Gate.COLD.strictness > Gate.BITWISE.strictness > Gate.PRESERVED.strictness


def test_ids_and_key_ids_are_of_one_length_whichever_is_longer() -> None:
    for ids, keys in (([1, 2], [1]), ([1], [1, 2])):
        with pytest.raises(ValueError, match="key ids"):
            Prompt(token_ids(ids), token_ids(keys))


def test_there_is_no_chunk_from_behind_the_end() -> None:
    for end in (5, 3):
        with pytest.raises(ValueError, match="nothing is left to prefill"):
            Grid(8).chunk(5, end)


@pytest.mark.parametrize("taint", [-1, 9])
def test_a_header_whose_taint_lies_outside_of_its_rows_is_refused(taint: int) -> None:
    with pytest.raises(ValueError, match="taint"):
        dataclasses.replace(make_header(RAWS, tokens=8), taint=taint)


def test_an_object_has_at_most_4096_parts_and_a_quarter_million_tokens() -> None:
    header = make_header(RAWS)
    part = header.parts[0]

    def with_parts(count: int) -> None:
        parts = tuple(dataclasses.replace(part, name=str(number)) for number in range(count))
        dataclasses.replace(header, parts=parts)

    assert (PARTS_MAX, TOKENS_MAX, TEXT_BYTES_MAX) == (4096, 262_144, 4096)
    with_parts(PARTS_MAX)
    for count in (PARTS_MAX + 1, PARTS_MAX + 2):
        with pytest.raises(ValueError, match="parts"):
            with_parts(count)


def test_a_repetition_penalty_below_one_prefers_what_was_there() -> None:
    params = SamplingParams(temperature=0.0, repetition_penalty=0.5)
    logits = np.array([1.0, 1.2, 0.5], dtype=np.float32)

    assert Sampler(params, token_ids([0]), 3).draw(logits, 0).token == 0


def test_the_words_of_a_choice_of_codec_have_its_rates() -> None:
    rates = CodecRates(ratio=2.0, decode_bytes_per_s=8e9, checksum_bytes_per_s=4e9)

    choice = choose_codec(CodecPolicy.AUTO, drive_bytes_per_s=1.5e9, free_cores=2, rates=rates)

    assert "1.50 GB/s raw and 3.00 GB/s compressed" in choice.reason
    assert "a drive of 1.50 GB/s and 2 free cores" in choice.reason
