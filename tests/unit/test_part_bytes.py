"""The bytes of a part, and of a copy of them."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch

from anchorline.adapters.gpu.libraries import tensor_over
from anchorline.adapters.gpu.part_bytes import SWAPPED_BYTES, Bytes, PartBytes
from anchorline.domain.errors import StateError

BELOW, ABOVE = 5, 11
"""Bytes of the part on both sides of those that are copied."""


def some_bytes(count: int, seed: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def a_part_and_a_copy(count: int) -> tuple[PartBytes, Bytes, PartBytes, Bytes]:
    part, copy = some_bytes(BELOW + count + ABOVE, seed=1), some_bytes(count, seed=2)
    return PartBytes("part", tensor_over(part)), part, PartBytes("copy", tensor_over(copy)), copy


@pytest.mark.parametrize("count", [0, 1, SWAPPED_BYTES, 2 * SWAPPED_BYTES + 13])
def test_a_swap_exchanges_every_byte_and_touches_none_beside_them(count: int) -> None:
    part, in_part, copy, in_copy = a_part_and_a_copy(count)
    part_before, copy_before = in_part.copy(), in_copy.copy()

    part.swap(BELOW, BELOW + count, copy)

    bounds = pairwise((0, BELOW, BELOW + count, BELOW + count + ABOVE))
    below, between, above = (slice(start, end) for start, end in bounds)
    assert np.array_equal(in_copy, part_before[between])
    assert np.array_equal(in_part[between], copy_before)
    assert np.array_equal(in_part[below], part_before[below])
    assert np.array_equal(in_part[above], part_before[above])


def test_bytes_are_copied_there_and_back() -> None:
    part, in_part, copy, in_copy = a_part_and_a_copy(100)
    before = in_part.copy()

    part.copy_to(BELOW, BELOW + 100, copy)
    assert np.array_equal(in_copy, before[BELOW : BELOW + 100])
    assert np.array_equal(in_part, before)

    in_part[:] = 0
    part.copy_from(BELOW, BELOW + 100, copy)
    assert np.array_equal(in_part[BELOW : BELOW + 100], before[BELOW : BELOW + 100])
    assert not in_part[:BELOW].any()
    assert not in_part[BELOW + 100 :].any()


@pytest.mark.parametrize("act", [PartBytes.copy_to, PartBytes.copy_from, PartBytes.swap])
@pytest.mark.parametrize(("start", "end"), [(0, 9), (0, 11), (107, 117)])
def test_a_copy_of_other_bytes_is_refused(
    act: Callable[[PartBytes, int, int, PartBytes], None], start: int, end: int
) -> None:
    part = PartBytes("part", torch.zeros(116, dtype=torch.uint8))
    copy = PartBytes("copy", torch.ones(10, dtype=torch.uint8))

    with pytest.raises(StateError, match="part"):
        act(part, start, end, copy)

    assert not part.in_place(0, 116).any()
    assert copy.in_place(0, 10).all()
