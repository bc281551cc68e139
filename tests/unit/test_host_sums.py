"""Sums on a CPU: fast, in pieces, and the same numbers as the reference's."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from anchorline.adapters.gpu.kernels.sums import (
    HOST_BLOCK_WORDS,
    TABLE_WORDS,
    host_sums,
    parts_sums,
)
from anchorline.domain.sums import NO_SUMS, Sums, sums_of

BLOCK_BYTES = 8 * HOST_BLOCK_WORDS
TABLE_BYTES = 8 * TABLE_WORDS


def some_bytes(count: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


@pytest.mark.parametrize(
    "length", [0, 1, 8, BLOCK_BYTES - 8, BLOCK_BYTES + 13, TABLE_BYTES + BLOCK_BYTES + 3]
)
def test_the_sums_are_the_references(length: int) -> None:
    data = some_bytes(length)

    assert host_sums(data) == sums_of(data)


def test_the_sums_of_pieces_add_up_to_those_of_the_part() -> None:
    data = some_bytes(TABLE_BYTES + 3 * BLOCK_BYTES + 5)
    cuts = [0, 8, 4096, BLOCK_BYTES + 8, TABLE_BYTES - 16, TABLE_BYTES + 24, len(data)]

    found = NO_SUMS
    for start, end in pairwise(cuts):
        found += host_sums(data[start:end], start // 8)

    assert found == sums_of(data)


def test_pieces_that_were_exchanged_have_other_sums() -> None:
    data = some_bytes(2048)

    found = host_sums(data[1024:], 0) + host_sums(data[:1024], 128)

    assert found.plain == sums_of(data).plain
    assert found != sums_of(data)


def test_added_sums_wrap_as_words_do() -> None:
    most = (1 << 64) - 1

    assert Sums(most, most) + Sums(2, 3) == Sums(1, 2)


def test_parts_of_unequal_lengths_are_summed_each_by_itself() -> None:
    parts = [
        some_bytes(length, seed)
        for seed, length in enumerate([3 * BLOCK_BYTES + 9, 0, 5, BLOCK_BYTES, TABLE_BYTES + 8])
    ]

    assert parts_sums(parts) == [sums_of(part) for part in parts]
