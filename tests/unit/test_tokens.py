"""Token ids as arrays, and shared prefixes."""

import numpy as np
import pytest

from anchorline.domain.tokens import common_prefix, starts_with, token_ids
from support.builders import ids, random_ids


def test_ids_are_read_only_32_bit_words() -> None:
    made = token_ids([0, 7, 0xFFFF_FFFF])

    assert made.dtype == np.uint32
    assert made.tolist() == [0, 7, 0xFFFF_FFFF]
    with pytest.raises(ValueError, match="read-only"):
        made[0] = 1


def test_ids_are_a_copy_of_the_callers_array() -> None:
    mine = np.array([1, 2, 3], dtype=np.uint32)

    made = token_ids(mine)
    mine[0] = 99

    assert made.tolist() == [1, 2, 3]


def test_no_ids_are_an_empty_array() -> None:
    assert token_ids([]).shape == (0,)
    assert token_ids([]).dtype == np.uint32


@pytest.mark.parametrize("values", [[-1], [1, 1 << 32], [1 << 64], [1 << 80]])
def test_an_id_that_does_not_fit_32_bits_is_refused(values: list[int]) -> None:
    with pytest.raises(ValueError, match="ids"):
        token_ids(values)


@pytest.mark.parametrize(
    "values", [np.zeros((2, 2), np.int64), np.array([1.0]), np.array([True]), np.array(["1"])]
)
def test_what_is_no_flat_sequence_of_integers_is_refused(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="flat sequence of integers"):
        token_ids(values)


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        (ids(), ids(), 0),
        (ids(1), ids(), 0),
        (ids(1, 2, 3), ids(1, 2, 3), 3),
        (ids(1, 2, 3), ids(1, 2), 2),
        (ids(1, 2, 3), ids(1, 9, 3), 1),
        (ids(9, 2, 3), ids(1, 2, 3), 0),
    ],
)
def test_a_common_prefix_ends_at_the_first_difference(
    a: np.ndarray, b: np.ndarray, shared: int
) -> None:
    assert common_prefix(a, b) == shared
    assert common_prefix(b, a) == shared


@pytest.mark.parametrize("at", [0, 1, 4095, 4096, 4097, 8191, 8192, 9999])
def test_a_difference_is_found_on_either_side_of_a_block(at: int) -> None:
    one = random_ids(10_000)
    other = one.copy()
    other[at] += 1

    assert common_prefix(one, other) == at


def test_a_sequence_starts_with_each_of_its_prefixes_and_with_no_other() -> None:
    whole = ids(1, 2, 3)

    assert starts_with(whole, ids())
    assert starts_with(whole, ids(1, 2))
    assert starts_with(whole, whole)
    assert not starts_with(whole, ids(2))
    assert not starts_with(whole, ids(1, 2, 3, 4))
