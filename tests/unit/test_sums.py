"""The two sums of a part's bytes."""

import numpy as np
import pytest

from anchorline.domain.sums import Sums, sums_of, weights

WORD = 1 << 64


def words(*values: int) -> np.ndarray:
    """The bytes of 64-bit words."""
    return np.array(values, dtype="<u8").view(np.uint8)


def splitmix64(index: int) -> int:
    """The reference, in whole numbers: the `index`-th output of a generator seeded with 0."""
    z = (index * 0x9E3779B97F4A7C15) % WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % WORD
    return z ^ (z >> 31)


def test_weights_are_the_published_outputs_of_splitmix64_made_odd() -> None:
    # https://prng.di.unimi.it/splitmix64.c, seed 0.
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]

    assert [splitmix64(index) for index in (1, 2, 3, 4)] == published
    assert weights(4).tolist() == [value | 1 for value in published]


def test_weights_are_odd_and_do_not_repeat() -> None:
    made = weights(10_000)

    assert (made & np.uint64(1)).all()
    assert len(np.unique(made)) == len(made)


def test_the_sums_are_those_of_whole_number_arithmetic() -> None:
    values = [0, 1, WORD - 1, 0x0123456789ABCDEF, 1 << 63]

    assert sums_of(words(*values)) == Sums(
        plain=sum(values) % WORD,
        weighted=sum(v * (splitmix64(i + 1) | 1) for i, v in enumerate(values)) % WORD,
    )


def test_words_are_little_endian() -> None:
    data = np.array([1, 2, 3, 4, 5, 6, 7, 8], dtype=np.uint8)

    assert sums_of(data).plain == 0x0807060504030201


def test_no_bytes_have_zero_sums() -> None:
    assert sums_of(np.empty(0, dtype=np.uint8)) == Sums(0, 0)


@pytest.mark.parametrize("length", [1, 7, 9, 15])
def test_a_short_last_word_is_filled_with_zeros(length: int) -> None:
    data = np.arange(1, length + 1, dtype=np.uint8)
    filled = np.zeros(-(-length // 8) * 8, dtype=np.uint8)
    filled[:length] = data

    assert sums_of(data) == sums_of(filled)


def test_exchanged_words_change_the_weighted_sum_alone() -> None:
    one, other = sums_of(words(10, 20, 30)), sums_of(words(20, 10, 30))

    assert one.plain == other.plain
    assert one.weighted != other.weighted


def test_plus_one_minus_two_plus_one_on_neighbours_changes_the_weighted_sum() -> None:
    # Index weights 1, 2, 3, ... would miss it: 1*i - 2*(i+1) + 1*(i+2) is 0.
    one, other = sums_of(words(10, 20, 30)), sums_of(words(11, 18, 31))

    assert one.plain == other.plain
    assert one.weighted != other.weighted


def test_a_difference_of_half_the_modulus_changes_the_weighted_sum() -> None:
    # An even weight would lose the highest bit.
    for at in range(64):
        values = [0] * 64
        values[at] = 1 << 63
        assert sums_of(words(*values)).weighted != 0


def test_the_bytes_are_not_modified() -> None:
    data = words(1, 2, 3)
    kept = data.copy()

    sums_of(data)

    assert np.array_equal(data, kept)


def test_two_flips_of_the_highest_bit_are_beyond_both_sums() -> None:
    # Known, and why a checksum of the file stands beside them: the sums tell honest states of the
    # same tokens apart, and the sum of two odd weights is even.
    one, other = words(1, 2, 3), words(1 | 1 << 63, 2, 3 | 1 << 63)

    assert sums_of(one) == sums_of(other)
