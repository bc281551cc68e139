"""How fast a codec is on this machine: measured at start, for `domain.codec_choice`."""

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from ...domain.codec_choice import CodecRates
from ...ports.block_storage import ByteArray
from ...ports.codec import Codec

SAMPLE_BYTES: Final = 8 << 20
CHANNELS: Final = 128
TRIES: Final = 3


def measure_rates(
    codec: Codec, *, sample_bytes: int = SAMPLE_BYTES, clock: Callable[[], float] = time.thread_time
) -> CodecRates:
    """Encode, decode and check a sample, some tens of milliseconds in all; the best of `TRIES`.

    Args:
        codec: works in the caller's thread, so with one thread.
        sample_bytes: length of the sample.
        clock: seconds. By default those that this thread computes: a machine that is busy while
            the server starts is not taken for a slow one.
    """
    part = keys_like(sample_bytes)
    encoded = codec.encode(part, 2)
    into = np.empty_like(part)

    def rate(nbytes: int, work: Callable[[], object]) -> float:
        seconds: list[float] = []
        for _ in range(TRIES):
            start_s = clock()
            work()
            seconds.append(clock() - start_s)
        return nbytes / max(min(seconds), 1e-9)  # a coarse clock may not have moved

    return CodecRates(
        ratio=len(part) / len(encoded.data),
        decode_bytes_per_s=rate(len(part), lambda: codec.decode(encoded.codec, encoded.data, into)),
        checksum_bytes_per_s=rate(len(encoded.data), lambda: codec.checksum(encoded.data)),
    )


def keys_like(nbytes: int) -> ByteArray:
    """Bytes that compress as keys and values in bf16 do: normal, each channel with its own scale.

    The same every time. Scales are log-normal; their spread was fitted to rows of a real model
    (docs/adr/0005-codec.md).
    """
    random = np.random.default_rng(0)
    rows = nbytes // (2 * CHANNELS)
    scales = random.lognormal(sigma=0.5, size=CHANNELS).astype(np.float32)
    numbers = random.standard_normal((rows, CHANNELS), dtype=np.float32) * scales
    return (numbers.view(np.uint32) >> 16).astype("<u2").view(np.uint8).reshape(-1)
