"""The content chain: a name for the very bytes of all rows below a line.

A prefix key says which tokens stand below a line, and the same tokens may have been written twice:
rows that decode wrote have other bits than those of a prefill. The chain says which bytes they are.

    rows     0 ......... 8 ......... 16 ... 19
    chain    NO_ROWS     c1          c2      c3      cN = link(cN-1, content of block N, its line)

Each block names the chain below it, and so does each anchor: what was written over which rows can
be told from the objects alone, link by link.
"""

import hashlib
import struct
from typing import Final, NewType

ContentDigest = NewType("ContentDigest", str)
"""32 hexadecimal digits: an identity among honest bytes of the same tokens, not a defence."""

ContentChain = NewType("ContentChain", bytes)
"""16 bytes: sha256 cut to 128 bits."""

CHAIN_BYTES: Final = 16

NO_ROWS: Final = ContentChain(hashlib.sha256(b"anchorline rows 1").digest()[:CHAIN_BYTES])
"""The chain at line 0, of every model."""


def link(below: ContentChain, content: ContentDigest, line: int) -> ContentChain:
    """The chain once `content`, which reaches up to `line`, stands on what `below` names.

    The content of an anchor may be linked as well: what it gives names rows and sections together,
    and nothing stands on it.
    """
    text = below + bytes.fromhex(content) + struct.pack("<Q", line)
    return ContentChain(hashlib.sha256(text).digest()[:CHAIN_BYTES])
