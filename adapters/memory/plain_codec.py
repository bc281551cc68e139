"""A codec that compresses nothing, in plain Python."""

from functools import cache

import numpy as np

from ...domain.errors import ObjectCorrupt
from ...ports.block_storage import ByteArray
from ...ports.codec import Encoded


class PlainCodec:
    """Implements `ports.codec.Codec` for tests: every part is stored raw.

    Its checksum is the real one, a byte at a time: some 10 MB/s, for the small parts of tests, and
    it holds the interpreter lock. It models no codec that changes a part's bytes or length.
    """

    compresses = False

    def encode(self, data: ByteArray, item_bytes: int) -> Encoded:
        del item_bytes
        return Encoded("raw", data)

    def decode(self, codec: str, stored: ByteArray, into: ByteArray) -> None:
        if codec != "raw":
            raise ObjectCorrupt(f"there is no codec {codec!r}")
        if len(stored) != len(into):
            raise ObjectCorrupt(f"{len(stored)} raw bytes stand where {len(into)} are expected")
        np.copyto(into, stored)

    def checksum(self, data: ByteArray, start: int = 0) -> int:
        table = _castagnoli()
        crc = start ^ 0xFFFFFFFF
        for byte in data.data:
            crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
        return crc ^ 0xFFFFFFFF


@cache
def _castagnoli() -> tuple[int, ...]:
    """What each value of the lowest byte does to a crc of the reflected polynomial 0x82F63B78."""
    table: list[int] = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)
