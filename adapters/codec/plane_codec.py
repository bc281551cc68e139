"""Compression of byte planes with zstd as an entropy coder."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

import crc32c
import numpy as np
import zstandard

from ...domain.errors import ObjectCorrupt
from ...ports.block_storage import ByteArray, ByteRange
from ...ports.codec import Encoded
from .byte_planes import cut_plane, join_planes, width_of
from .plane_format import FRAME_ITEMS, PlaneLayout, frame_spans, plan_layout, read_head, write_head

RAW: Final = "raw"
PLANES: Final = "planes-1"
"""The format of `plane_format`; a change to it is a new name."""

# An item's sign, exponent and highest bits of the mantissa stand in its top plane; the planes below
# are noise in honest floats, and compressing them costs time and gains nothing. Integers are short
# or hashes: all their planes are looked at, and most are all zero or noise.
_TRIED: Final = {1: (0,), 2: (1,), 4: (3,), 8: (0, 1, 2, 3, 4, 5, 6, 7)}

_ENTROPY: Final = 0
"""Finds next to no matches and so does little more than Huffman coding: best for rows."""
_MATCHES: Final = 1
"""Plain level 1: best for recurrent states, sums of outer products whose signs repeat."""

_CANDIDATES: Final = {
    1: (_ENTROPY, _MATCHES),
    2: (_ENTROPY,),
    4: (_ENTROPY, _MATCHES),
    8: (_ENTROPY, _MATCHES),
}
"""By width; where there are several, a sample of the plane decides."""

_SAMPLE_BYTES_MIN: Final = 4 << 10
_SAMPLE_BYTES_MAX: Final = 32 << 10
_KEPT_MAX: Final = 15 / 16
"""A plane that keeps more of its length than this is stored raw: it would only cost time."""

_WINDOW_MAX: Final = FRAME_ITEMS


class PlaneCodec:
    """Implements `ports.codec.Codec`.

    The planes that can shrink are compressed in frames, on threads; the others are stored as they
    are. If none shrinks the part is stored raw, without a copy.
    """

    compresses = True

    def __init__(self, threads: int = 1):
        """Makes the threads' pool; `close` ends it.

        Args:
            threads: frames worked on at once, over all callers; with 1 the caller does the work.
        """
        assert threads >= 1, f"{threads} threads cannot work"
        self._pool = (
            ThreadPoolExecutor(threads, thread_name_prefix="codec") if threads > 1 else None
        )
        self._coders = _Coders()

    def close(self) -> None:
        """End the threads; no call may follow."""
        if self._pool is not None:
            self._pool.shutdown()

    def encode(self, data: ByteArray, item_bytes: int) -> Encoded:
        _assert_flat(data)
        width = width_of(len(data), item_bytes)
        settings = self._choose_settings(data, width)
        spans = frame_spans(len(data) // width)
        pieces: dict[tuple[int, int], ByteArray] = {}

        def compress_frame(index: int) -> None:
            for plane, setting in settings.items():
                frame = _cut(data, width, plane, spans[index])
                packed = self._coders.compress(setting, frame)
                pieces[plane, index] = packed if len(packed) < len(frame) else frame

        self._each(len(spans), compress_frame)
        lengths = {
            plane: [len(pieces[plane, index]) for index in range(len(spans))] for plane in settings
        }
        most = _KEPT_MAX * (len(data) // width)
        layout = plan_layout(
            len(data), width, {plane: kept for plane, kept in lengths.items() if sum(kept) <= most}
        )
        if not layout.frames or layout.stored >= len(data):
            return Encoded(RAW, data)
        return Encoded(PLANES, self._assembled(layout, data, pieces, spans))

    def decode(self, codec: str, stored: ByteArray, into: ByteArray) -> None:
        _assert_flat(stored)
        _assert_flat(into)
        if codec == RAW:
            if len(stored) != len(into):
                raise ObjectCorrupt(f"{len(stored)} raw bytes stand where {len(into)} are expected")
            np.copyto(into, stored)
            return
        if codec != PLANES:
            raise ObjectCorrupt(f"there is no codec {codec!r}")
        layout = read_head(stored, len(into))
        spans = frame_spans(layout.items)

        def decode_frame(index: int) -> None:
            span = spans[index]
            planes = [
                self._decoded(stored, layout.frames[plane][index], span.end - span.start)
                if plane in layout.frames
                else _within(stored, layout.raw[plane], span)
                for plane in range(layout.width)
            ]
            join_planes(planes, into[span.start * layout.width : span.end * layout.width])

        self._each(len(spans), decode_frame)

    def checksum(self, data: ByteArray, start: int = 0) -> int:
        # The package lets go of the interpreter lock by itself, from 32 KiB up.
        return crc32c.crc32c(data.data, start)

    # --- private --------------------------------------------------------------------------------

    def _choose_settings(self, data: ByteArray, width: int) -> dict[int, int]:
        """By plane worth trying, the settings that make most of a sample from its middle."""
        candidates = _CANDIDATES[width]
        if len(candidates) == 1:
            return dict.fromkeys(_TRIED[width], candidates[0])
        items = len(data) // width
        length = min(max(items // 8, _SAMPLE_BYTES_MIN), _SAMPLE_BYTES_MAX, items)
        start = (items - length) // 2
        span = ByteRange(start, start + length)
        chosen: dict[int, int] = {}
        for plane in _TRIED[width]:
            sample = _cut(data, width, plane, span)
            kept, setting = min(
                (len(self._coders.compress(setting, sample)), setting) for setting in candidates
            )
            if kept <= _KEPT_MAX * len(sample):
                chosen[plane] = setting
        return chosen

    def _assembled(
        self,
        layout: PlaneLayout,
        data: ByteArray,
        pieces: dict[tuple[int, int], ByteArray],
        spans: Sequence[ByteRange],
    ) -> ByteArray:
        out = np.empty(layout.stored, dtype=np.uint8)
        write_head(layout, out)

        def place_frame(index: int) -> None:
            span = spans[index]
            frame = data[span.start * layout.width : span.end * layout.width]
            for plane, place in layout.raw.items():
                cut_plane(frame, layout.width, plane, _within(out, place, span))
            for plane, places in layout.frames.items():
                np.copyto(out[places[index].start : places[index].end], pieces[plane, index])

        self._each(len(spans), place_frame)
        return out

    def _decoded(self, stored: ByteArray, place: ByteRange, nbytes: int) -> ByteArray:
        frame = stored[place.start : place.end]
        return frame if len(frame) == nbytes else self._coders.decompress(frame, nbytes)

    def _each(self, count: int, work: Callable[[int], None]) -> None:
        """Run `work` for 0 .. count-1 and wait for all of it, also where some of it fails."""
        if self._pool is None or count <= 1:
            for index in range(count):
                work(index)
            return
        futures = [self._pool.submit(work, index) for index in range(count)]
        # Not until the first error: what still runs writes to buffers that are the caller's again.
        wait(futures)
        for future in futures:
            future.result()


class _Coders(threading.local):
    """One zstd context of each kind a thread: they cannot be shared, and are dear to make."""

    def __init__(self) -> None:
        level_1 = zstandard.ZstdCompressionParameters.from_level  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] # its keywords have no types
        self._compressors = {
            _ENTROPY: zstandard.ZstdCompressor(
                compression_params=level_1(1, min_match=7, hash_log=6)
            ),
            _MATCHES: zstandard.ZstdCompressor(compression_params=level_1(1)),
        }
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX)

    def compress(self, setting: int, frame: ByteArray) -> ByteArray:
        packed = self._compressors[setting].compress(frame.data)
        return np.frombuffer(packed, dtype=np.uint8)

    def decompress(self, packed: ByteArray, nbytes: int) -> ByteArray:
        """The `nbytes` bytes of one zstd frame, whose own header decides what is allocated.

        Raises:
            ObjectCorrupt: it is no frame of as many bytes.
        """
        try:
            told = zstandard.get_frame_parameters(packed.data)
            if told.content_size != nbytes or told.window_size > _WINDOW_MAX:
                raise ObjectCorrupt(
                    f"a frame tells of {told.content_size} bytes where {nbytes} are expected"
                )
            plain = self._decompressor.decompress(packed.data, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise ObjectCorrupt(f"a frame of {len(packed)} bytes: {error}") from error
        if len(plain) != nbytes:
            raise ObjectCorrupt(f"a frame holds {len(plain)} bytes where {nbytes} are expected")
        return np.frombuffer(plain, dtype=np.uint8)


def _cut(data: ByteArray, width: int, plane: int, span: ByteRange) -> ByteArray:
    """The bytes of a plane in `span`: a view where items are bytes, else a copy."""
    frame = data[span.start * width : span.end * width]
    if width == 1:
        return frame
    out = np.empty(span.end - span.start, dtype=np.uint8)
    cut_plane(frame, width, plane, out)
    return out


def _within(stored: ByteArray, place: ByteRange, span: ByteRange) -> ByteArray:
    """The `span` of what stands at `place`."""
    return stored[place.start + span.start : place.start + span.end]


def _assert_flat(data: ByteArray) -> None:
    assert data.dtype == np.uint8, f"an array of {data.dtype} is not bytes"
    assert data.ndim == 1, f"an array of shape {data.shape} is not flat"
    assert data.flags.c_contiguous, "bytes with gaps between them"
