"""Lossless compression and checksums of parts."""

from dataclasses import dataclass
from typing import Protocol

from .block_storage import ByteArray


@dataclass(frozen=True, slots=True)
class Encoded:
    """A part as it is stored.

    Attributes:
        codec: how: what `decode` needs to know; "raw" is the bytes themselves.
        data: its bytes, not padded. May be a view of the part that was given.
    """

    codec: str
    data: ByteArray


class Codec(Protocol):
    """Callable from any thread; releases the interpreter lock while it works on large parts.

    Attributes:
        compresses: False: `encode` gives every part as it is.
    """

    @property
    def compresses(self) -> bool: ...

    def encode(self, data: ByteArray, item_bytes: int) -> Encoded:
        """Compress a part, or not if that does not make it smaller.

        Args:
            data: not modified.
            item_bytes: the width of its elements, by which byte planes are cut.
        """
        ...

    def decode(self, codec: str, stored: ByteArray, into: ByteArray) -> None:
        """Fill `into`, which is exactly as long as the part, from its stored bytes.

        Raises:
            ObjectCorrupt: the bytes are no such part, or of another length.
        """
        ...

    def checksum(self, data: ByteArray, start: int = 0) -> int:
        """crc32c (Castagnoli), continued from `start`; 32 bits."""
        ...
