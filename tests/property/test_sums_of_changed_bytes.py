"""The sums see what a state can suffer."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from anchorline.domain.sums import sums_of, weights

BYTES = st.binary(min_size=1, max_size=200)
WORDS = st.lists(st.integers(0, (1 << 64) - 1), min_size=2, max_size=30)


@given(BYTES, st.data())
def test_any_flipped_bit_changes_both_sums(content: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    changed = np.frombuffer(content, np.uint8).copy()
    changed[bit // 8] ^= 1 << bit % 8

    one, other = sums_of(np.frombuffer(content, np.uint8)), sums_of(changed)

    assert one.plain != other.plain
    assert one.weighted != other.weighted


@given(WORDS, st.data())
def test_any_changed_word_changes_both_sums(values: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    value = data.draw(st.integers(0, (1 << 64) - 1))
    assume(value != values[at])
    changed = [*values[:at], value, *values[at + 1 :]]

    one, other = sums_of(as_bytes(values)), sums_of(as_bytes(changed))

    assert one.plain != other.plain
    assert one.weighted != other.weighted


@given(st.lists(st.integers(0, (1 << 62) - 1), min_size=2, max_size=30, unique=True), st.data())
def test_exchanged_words_change_the_weighted_sum(values: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values) - 2))
    second = data.draw(st.integers(first + 1, len(values) - 1))
    # Two odd weights differ by an even number, which can swallow a difference in the highest bits.
    spread = int(weights(len(values))[first]) - int(weights(len(values))[second])
    assume((values[first] - values[second]) * spread % (1 << 64) != 0)
    changed = list(values)
    changed[first], changed[second] = changed[second], changed[first]

    one, other = sums_of(as_bytes(values)), sums_of(as_bytes(changed))

    assert one.plain == other.plain
    assert one.weighted != other.weighted


@given(BYTES)
def test_the_sums_are_those_of_whole_number_arithmetic(content: bytes) -> None:
    filled = content + bytes(-len(content) % 8)
    values = [int.from_bytes(filled[at : at + 8], "little") for at in range(0, len(filled), 8)]
    each = weights(len(values)).tolist()

    sums = sums_of(np.frombuffer(content, np.uint8))

    assert sums.plain == sum(values) % (1 << 64)
    assert sums.weighted == sum(a * b for a, b in zip(values, each, strict=True)) % (1 << 64)


def as_bytes(values: list[int]) -> np.ndarray:
    return np.array(values, dtype="<u8").view(np.uint8)
