"""The codec on any bytes: what it stores comes back, and what it did not store is refused."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from anchorline.adapters.codec.byte_planes import WIDTHS, cut_plane, join_planes
from anchorline.adapters.codec.plane_codec import PLANES, PlaneCodec
from anchorline.adapters.codec.plane_format import HEADER
from anchorline.domain.errors import ObjectCorrupt
from anchorline.ports.block_storage import ByteArray
from contract.codec_contract import some_part, there_and_back

CODEC = PlaneCodec()
ITEM_BYTES = st.sampled_from([*WIDTHS, 3, 5])


def parts() -> st.SearchStrategy[ByteArray]:
    """Bytes that shrink, that do not, and that are both by turns."""
    runs = st.lists(
        st.one_of(
            st.binary(max_size=64),
            st.tuples(st.binary(min_size=1, max_size=8), st.integers(1, 2_000)).map(
                lambda pair: pair[0] * pair[1]
            ),
            st.integers(0, 5_000).map(lambda items: some_part("floats", 2, items=items).tobytes()),
            st.integers(0, 1_000).map(lambda items: some_part("noise", 4, items=items).tobytes()),
        ),
        max_size=6,
    )
    return runs.map(lambda pieces: np.frombuffer(b"".join(pieces), dtype=np.uint8))


@given(parts(), ITEM_BYTES)
def test_whatever_is_encoded_comes_back(part: ByteArray, item_bytes: int) -> None:
    assert np.array_equal(there_and_back(CODEC, part, item_bytes), part)


@given(parts(), ITEM_BYTES)
def test_nothing_becomes_longer(part: ByteArray, item_bytes: int) -> None:
    assert len(CODEC.encode(part, item_bytes).data) <= len(part)


@given(parts(), st.sampled_from(WIDTHS))
def test_planes_that_were_cut_can_be_joined(part: ByteArray, width: int) -> None:
    items = len(part) // width
    whole = part[: items * width]
    planes = [np.empty(items, dtype=np.uint8) for _ in range(width)]
    for plane, out in enumerate(planes):
        cut_plane(whole, width, plane, out)
        assert np.array_equal(out, whole[plane::width])

    back = np.empty_like(whole)
    join_planes(planes, back)

    assert np.array_equal(back, whole)


@given(st.binary(max_size=200), st.integers(0, 5_000))
@example(HEADER.pack(2, 2, 0, 0, 0), 0)
def test_garbage_is_refused_as_corrupt_or_fills_the_part(garbage: bytes, nbytes: int) -> None:
    decode_or_refuse(np.frombuffer(garbage, dtype=np.uint8), nbytes)


@given(
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), min_size=1, max_size=8),
    st.booleans(),
)
def test_flipped_bits_are_refused_as_corrupt_or_fill_the_part(
    which: int, flips: list[tuple[int, int]], in_the_head: bool
) -> None:
    part, width = PARTS[which], WIDTHS_OF_PARTS[which]
    encoded = CODEC.encode(part, width)
    assert encoded.codec == PLANES
    spoilt = encoded.data.copy()
    for place, bits in flips:
        spoilt[place % (40 if in_the_head else len(spoilt))] ^= bits

    decode_or_refuse(spoilt, len(part))


@given(st.integers(0, 3), st.integers(0, 1 << 16))
def test_bytes_that_were_cut_anywhere_are_refused(which: int, end: int) -> None:
    part, width = PARTS[which], WIDTHS_OF_PARTS[which]
    encoded = CODEC.encode(part, width)

    assert not decode_or_refuse(encoded.data[: end % len(encoded.data)], len(part))


PARTS = (
    some_part("counts", 1, items=4_000),
    some_part("floats", 2, items=4_000),
    some_part("floats", 4, items=4_000),
    some_part("counts", 8, items=4_000),
)
WIDTHS_OF_PARTS = (1, 2, 4, 8)


def decode_or_refuse(stored: ByteArray, nbytes: int) -> bool:
    """Whether it was decoded; any error but `ObjectCorrupt` is the test's failure.

    Other bytes of the right length are not the codec's to find: checksums do that.
    """
    guarded = np.full(nbytes + 16, 0xA5, dtype=np.uint8)
    try:
        CODEC.decode(PLANES, stored, guarded[8 : nbytes + 8])
    except ObjectCorrupt:
        return False
    finally:
        assert (guarded[:8] == 0xA5).all()
        assert (guarded[nbytes + 8 :] == 0xA5).all()
    return True
