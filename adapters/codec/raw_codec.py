"""A codec that stores parts as they are, and reads what any other setting has written."""

from ...ports.block_storage import ByteArray
from ...ports.codec import Codec, Encoded


class RawCodec:
    """Implements the `Codec` port over another codec, of which it never uses `encode`."""

    compresses = False

    def __init__(self, reads: Codec) -> None:
        """Takes what decodes parts that were compressed earlier, and computes checksums."""
        self._reads = reads

    def encode(self, data: ByteArray, item_bytes: int) -> Encoded:
        del item_bytes
        return Encoded("raw", data)

    def decode(self, codec: str, stored: ByteArray, into: ByteArray) -> None:
        self._reads.decode(codec, stored, into)

    def checksum(self, data: ByteArray, start: int = 0) -> int:
        return self._reads.checksum(data, start)
