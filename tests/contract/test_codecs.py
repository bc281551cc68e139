"""Both codecs against the codec contract, and what the one that compresses adds."""

import sys
import threading
import tracemalloc
from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
import zstandard

from anchorline.adapters.codec.plane_codec import PLANES, PlaneCodec
from anchorline.adapters.codec.plane_format import FRAME_ITEMS, HEADER, plan_layout, write_head
from anchorline.adapters.codec.rates import measure_rates
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.domain.codec_choice import CodecRates
from anchorline.domain.errors import ObjectCorrupt
from anchorline.ports.block_storage import ByteArray
from contract.codec_contract import CodecContract, some_part, there_and_back

FRAMES_AND_A_BIT = 2 * FRAME_ITEMS + 12_345


class TestPlainCodec(CodecContract):
    def make_codec(self) -> PlainCodec:
        return PlainCodec()


@pytest.fixture(params=[1, 2], ids=["inline", "threads"])
def codec(request: pytest.FixtureRequest) -> Iterator[PlaneCodec]:
    made = PlaneCodec(threads=cast("int", request.param))
    yield made
    made.close()


class TestPlaneCodec(CodecContract):
    def make_codec(self) -> PlaneCodec:
        return PlaneCodec()

    @pytest.mark.parametrize("width", [1, 2, 4, 8])
    def test_a_part_of_several_frames_comes_back(self, codec: PlaneCodec, width: int) -> None:
        part = some_part("floats", width, items=FRAMES_AND_A_BIT)

        assert np.array_equal(there_and_back(codec, part, width), part)

    def test_frames_that_shrink_and_frames_that_do_not_stand_in_one_part(
        self, codec: PlaneCodec
    ) -> None:
        part = np.concatenate(
            [
                some_part("floats", 2, items=FRAME_ITEMS),
                some_part("noise", 2, items=FRAME_ITEMS),
                some_part("zeros", 2, items=FRAME_ITEMS),
            ]
        )

        encoded = codec.encode(part, 2)

        assert encoded.codec == PLANES
        assert len(encoded.data) < len(part)
        assert np.array_equal(there_and_back(codec, part, 2), part)

    def test_threads_change_nothing_about_what_is_stored(self) -> None:
        part = some_part("floats", 2, items=FRAMES_AND_A_BIT)
        threaded = PlaneCodec(threads=2)

        one, other = PlaneCodec().encode(part, 2), threaded.encode(part, 2)
        threaded.close()

        assert one.codec == other.codec
        assert np.array_equal(one.data, other.data)

    def test_what_does_not_shrink_is_the_part_itself_without_a_copy(self) -> None:
        part = some_part("noise", 2, items=5_000)

        encoded = PlaneCodec().encode(part, 2)

        assert encoded.codec == "raw"
        assert np.shares_memory(encoded.data, part)

    @pytest.mark.parametrize(("width", "least"), [(2, 1.40), (4, 1.15)])
    def test_rows_in_floats_shrink_by_what_their_entropy_allows(
        self, width: int, least: float
    ) -> None:
        part = some_part("floats", width, items=1 << 18)

        assert len(part) / len(PlaneCodec().encode(part, width).data) > least

    def test_states_whose_signs_repeat_are_compressed_with_matches(self) -> None:
        random = np.random.default_rng(0)
        keys, values = random.standard_normal((2, 512), dtype=np.float32)
        state = np.outer(keys, values).view(np.uint8).reshape(-1)

        # Without matches the top plane alone gives less than 1.2.
        assert len(state) / len(PlaneCodec().encode(state, 4).data) > 1.25

    @pytest.mark.parametrize("width", [3, 16, 1000])
    def test_items_of_odd_widths_are_taken_as_bytes(self, width: int) -> None:
        part = some_part("counts", 4, items=width * 100)

        assert np.array_equal(there_and_back(PlaneCodec(), part, width), part)

    def test_parts_at_odd_addresses_come_back(self) -> None:
        part = some_part("floats", 2, items=5_000)
        odd = np.empty(len(part) + 1, dtype=np.uint8)[1:]
        odd[:] = part
        codec, into = PlaneCodec(), np.empty(len(part) + 1, dtype=np.uint8)[1:]

        encoded = codec.encode(odd, 2)
        codec.decode(encoded.codec, encoded.data, into)

        assert encoded.codec == PLANES
        assert np.array_equal(into, part)

    def test_the_interpreter_lock_is_free_while_it_works(self) -> None:
        codec = PlaneCodec()
        part = some_part("floats", 2, items=4 * FRAME_ITEMS)
        encoded = codec.encode(part, 2)
        into = np.empty_like(part)

        assert lets_others_run(lambda: codec.checksum(part))
        assert lets_others_run(lambda: codec.encode(part, 2))
        assert lets_others_run(lambda: codec.decode(encoded.codec, encoded.data, into))


class TestRates:
    def test_the_sample_shrinks_as_rows_of_a_real_model_do(self) -> None:
        rates = measure_rates(PlaneCodec(), sample_bytes=1 << 20)

        # 1.475 was measured on rows of SmolLM2-135M, see docs/adr/0005-codec.md.
        assert rates.ratio == pytest.approx(1.475, abs=0.03)
        assert rates.decode_bytes_per_s > 0
        assert rates.checksum_bytes_per_s > rates.decode_bytes_per_s

    def test_rates_are_bytes_over_seconds_of_the_fastest_try(self) -> None:
        times = iter([0.0, 4.0, 10.0, 12.0, 20.0, 23.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0])

        rates = measure_rates(PlainCodec(), sample_bytes=1 << 10, clock=lambda: next(times))

        assert rates == CodecRates(ratio=1.0, decode_bytes_per_s=512.0, checksum_bytes_per_s=1024.0)

    def test_a_clock_that_stands_still_gives_rates_that_can_be_used(self) -> None:
        rates = measure_rates(PlainCodec(), sample_bytes=1 << 10, clock=lambda: 7.0)

        assert np.isfinite(rates.decode_bytes_per_s)


class TestMalformed:
    def test_a_frame_that_tells_of_another_length_is_corrupt(self) -> None:
        for told in (99, 101, 1 << 40):
            assert_corrupt(planes_of(100, zstd_frame(content=100, told=told)), nbytes=200)

    def test_a_frame_that_tells_of_no_length_is_corrupt(self) -> None:
        frame = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(100))

        assert_corrupt(planes_of(100, frame), nbytes=200)

    def test_bytes_after_a_frame_are_corrupt(self) -> None:
        frame = zstandard.ZstdCompressor().compress(bytes(100))

        assert_corrupt(planes_of(100, frame + frame), nbytes=200)
        assert_corrupt(planes_of(100, frame + b"\0"), nbytes=200)

    def test_a_skippable_frame_is_corrupt(self) -> None:
        skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + bytes(4)

        assert_corrupt(planes_of(100, skippable), nbytes=200)

    def test_headers_that_tell_of_too_much_allocate_nothing(self) -> None:
        huge = 1 << 50
        for head in (
            HEADER.pack(2, 2, 0, huge // FRAME_ITEMS // 2 & 0xFFFFFFFF, huge),
            HEADER.pack(2, 2, 0, 0xFFFFFFFF, 200),
            HEADER.pack(8, 255, 0, 1, 1 << 63),
        ):
            stored = np.frombuffer(head + bytes(200), dtype=np.uint8)
            assert peak_bytes(lambda stored=stored: assert_corrupt(stored, nbytes=200)) < 1 << 18
        bomb = planes_of(100, zstd_frame(content=100, told=1 << 40))
        assert peak_bytes(lambda: assert_corrupt(bomb, nbytes=200)) < 1 << 18

    def test_a_failed_frame_leaves_no_thread_writing(self) -> None:
        codec = PlaneCodec(threads=2)
        part = some_part("floats", 2, items=8 * FRAME_ITEMS)
        encoded = codec.encode(part, 2)
        spoilt, into = encoded.data.copy(), np.zeros_like(part)
        spoilt[HEADER.size + 8 * 4 + 8 * FRAME_ITEMS] ^= 0xFF  # the first frame's magic

        with pytest.raises(ObjectCorrupt):
            codec.decode(encoded.codec, spoilt, into)
        left = into.copy()

        codec.close()
        assert np.array_equal(into, left)


def planes_of(items: int, frame: bytes) -> ByteArray:
    """A part of two planes, the lower one zero, whose upper one is stored as `frame`."""
    layout = plan_layout(2 * items, 2, {1: [len(frame)]})
    stored = np.zeros(layout.stored, dtype=np.uint8)
    write_head(layout, stored)
    place = layout.frames[1][0]
    stored[place.start : place.end] = np.frombuffer(frame, dtype=np.uint8)
    return stored


def zstd_frame(*, content: int, told: int) -> bytes:
    """A frame of `content` zeros whose header tells of `told`, in eight bytes."""
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(content))
    size = zstandard.frame_header_size(packed)
    # Magic; descriptor: eight bytes of content size, a window of its own; the window of 128 KiB.
    return packed[:4] + bytes([0xC0, 0x38]) + told.to_bytes(8, "little") + packed[size:]


def assert_corrupt(stored: ByteArray, *, nbytes: int) -> None:
    into = np.empty(nbytes, dtype=np.uint8)
    with pytest.raises(ObjectCorrupt):
        PlaneCodec().decode(PLANES, stored, into)


def peak_bytes(work: object) -> int:
    """What Python, numpy and zstandard's results had allocated at most during `work`."""
    assert callable(work)
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def lets_others_run(work: object) -> bool:
    """Whether another thread gets to run while `work` does.

    The interpreter takes the lock from nobody within the switch interval, so a thread that runs
    while `work` is called runs because `work` has let go of the lock.
    """
    assert callable(work)
    interval_s = sys.getswitchinterval()
    for _ in range(200):  # it may also be the machine that does not let it run
        ran: list[bool] = []
        gate = threading.Lock()
        gate.acquire()

        def other(gate: threading.Lock = gate, ran: list[bool] = ran) -> None:
            with gate:
                ran.append(True)

        thread = threading.Thread(target=other)
        thread.start()
        sys.setswitchinterval(1000)
        try:
            gate.release()
            work()
            met = bool(ran)
        finally:
            sys.setswitchinterval(interval_s)
        thread.join()
        if met:
            return True
    return False
