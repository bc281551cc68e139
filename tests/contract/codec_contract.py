"""What `ports/codec.py` promises, as tests over any codec."""

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from anchorline.domain.errors import ObjectCorrupt
from anchorline.ports.block_storage import ByteArray
from anchorline.ports.codec import Codec

WIDTHS = (1, 2, 4, 8)


class CodecContract(ABC):
    @abstractmethod
    def make_codec(self) -> Codec: ...

    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("kind", ["floats", "zeros", "noise", "counts"])
    def test_a_part_comes_back_bit_for_bit(self, kind: str, width: int) -> None:
        part = some_part(kind, width, items=5_000)

        assert np.array_equal(there_and_back(self.make_codec(), part, width), part)

    @pytest.mark.parametrize("nbytes", [0, 1, 2, 3, 7, 8, 9, 4095, 4097])
    @pytest.mark.parametrize("width", WIDTHS)
    def test_a_part_of_any_length_comes_back(self, nbytes: int, width: int) -> None:
        part = some_part("floats", 2, items=4_100)[:nbytes]

        assert np.array_equal(there_and_back(self.make_codec(), part, width), part)

    def test_a_part_is_not_modified_and_may_be_read_only(self) -> None:
        part = some_part("floats", 2, items=5_000)
        before = part.copy()
        part.flags.writeable = False

        encoded = self.make_codec().encode(part, 2)

        assert np.array_equal(part, before)
        assert encoded.data.dtype == np.uint8
        assert encoded.data.ndim == 1
        assert encoded.data.flags.c_contiguous

    @pytest.mark.parametrize("kind", ["floats", "zeros", "noise", "counts"])
    def test_no_part_becomes_longer(self, kind: str) -> None:
        for width in WIDTHS:
            part = some_part(kind, width, items=5_000)

            assert len(self.make_codec().encode(part, width).data) <= len(part)

    def test_raw_is_the_bytes_themselves(self) -> None:
        codec = self.make_codec()
        part = some_part("noise", 1, items=5_000)

        encoded = codec.encode(part, 1)

        assert encoded.codec == "raw"
        assert np.array_equal(encoded.data, part)

    def test_raw_bytes_of_any_writer_can_be_decoded(self) -> None:
        part = some_part("floats", 2, items=100)
        into = np.empty_like(part)

        self.make_codec().decode("raw", part, into)

        assert np.array_equal(into, part)

    def test_decoding_needs_nothing_but_what_was_stored(self) -> None:
        part = some_part("floats", 2, items=5_000)
        encoded = self.make_codec().encode(part, 2)
        stored, into = encoded.data.copy(), np.empty_like(part)

        self.make_codec().decode(encoded.codec, stored, into)

        assert np.array_equal(into, part)

    @pytest.mark.parametrize("kind", ["floats", "noise"])
    @pytest.mark.parametrize("change", [-8, -1, 1, 8])
    def test_a_part_of_another_length_is_corrupt(self, kind: str, change: int) -> None:
        codec = self.make_codec()
        part = some_part(kind, 2, items=5_000)
        encoded = codec.encode(part, 2)

        with pytest.raises(ObjectCorrupt):
            codec.decode(encoded.codec, encoded.data, np.empty(len(part) + change, np.uint8))

    @pytest.mark.parametrize("kind", ["floats", "noise"])
    def test_stored_bytes_that_were_cut_or_have_grown_are_corrupt(self, kind: str) -> None:
        codec = self.make_codec()
        part = some_part(kind, 2, items=5_000)
        encoded = codec.encode(part, 2)
        longer = np.concatenate([encoded.data, np.zeros(1, np.uint8)])

        for stored in (encoded.data[:-1], encoded.data[:10], encoded.data[:0], longer):
            with pytest.raises(ObjectCorrupt):
                codec.decode(encoded.codec, stored, np.empty_like(part))

    def test_a_codec_that_nobody_knows_is_corrupt(self) -> None:
        with pytest.raises(ObjectCorrupt):
            self.make_codec().decode("rot13", np.zeros(8, np.uint8), np.empty(8, np.uint8))

    def test_it_can_be_called_from_several_threads(self) -> None:
        codec = self.make_codec()
        parts = [some_part("floats", 2, items=20_000, seed=seed) for seed in range(8)]

        def back_again(part: ByteArray) -> ByteArray:
            return there_and_back(codec, part, 2)

        with ThreadPoolExecutor(4) as threads:
            back = list(threads.map(back_again, parts))

        assert all(np.array_equal(one, part) for one, part in zip(back, parts, strict=True))

    @pytest.mark.parametrize(
        ("data", "crc"),
        [
            (b"", 0x00000000),
            (b"123456789", 0xE3069283),
            # RFC 3720, appendix B.4
            (bytes(32), 0x8A9136AA),
            (b"\xff" * 32, 0x62A8AB43),
            (bytes(range(32)), 0x46DD794E),
            (bytes(reversed(range(32))), 0x113FDB5C),
        ],
    )
    def test_the_checksum_is_crc32c(self, data: bytes, crc: int) -> None:
        assert self.make_codec().checksum(np.frombuffer(data, dtype=np.uint8)) == crc

    def test_a_checksum_can_be_continued(self) -> None:
        codec = self.make_codec()
        part = some_part("noise", 1, items=100_000)
        whole = codec.checksum(part)

        for cut in (0, 1, 7, 40_000, len(part)):
            assert codec.checksum(part[cut:], codec.checksum(part[:cut])) == whole


def some_part(kind: str, width: int, *, items: int, seed: int = 0) -> ByteArray:
    """A part of `items` items of `width` bytes.

    Args:
        kind: `floats` are normal, as rows are; `counts` small integers; `noise` and `zeros`.
        width: bytes of an item.
        items: how many.
        seed: decides floats and noise.
    """
    random = np.random.default_rng(seed)
    if kind == "noise":
        return random.integers(0, 256, items * width, dtype=np.uint8)
    if kind == "zeros":
        return np.zeros(items * width, dtype=np.uint8)
    if kind == "counts":
        return as_bytes(np.arange(items, dtype=np.uint64).astype(f"<u{width}"))
    numbers = random.standard_normal(items)
    if width == 2:  # bf16 is the upper half of a float32
        return as_bytes((numbers.astype("<f4").view("<u4") >> 16).astype("<u2"))
    if width == 1:
        return as_bytes((numbers * 16).astype("<i1"))
    return as_bytes(numbers.astype(f"<f{width}"))


def as_bytes(items: np.ndarray) -> ByteArray:  # type: ignore[type-arg] # items of any type
    return items.view(np.uint8)


def there_and_back(codec: Codec, part: ByteArray, width: int) -> ByteArray:
    encoded = codec.encode(part, width)
    into = np.full(len(part), 0xDB, dtype=np.uint8)
    codec.decode(encoded.codec, encoded.data, into)
    return into
