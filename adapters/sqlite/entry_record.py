"""An entry as bytes, sealed: SQLite checks pages' order and not what stands in them.

A taint line with a flipped bit would turn a preserved state into a bitwise one.
"""

import hashlib
from typing import Final

import msgspec

from ...domain.stored_entry import StoredEntry

SEAL_BYTES: Final = 16

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(StoredEntry)


def encode_entry(entry: StoredEntry) -> bytes:
    """The entry's bytes behind their seal."""
    body = _ENCODER.encode(entry)
    return _seal(body) + body


def decode_entry(record: bytes) -> StoredEntry:
    """The entry that was encoded.

    Raises:
        ValueError: the bytes are others.
    """
    body = record[SEAL_BYTES:]
    if _seal(body) != record[:SEAL_BYTES]:
        raise ValueError(f"a record of {len(record)} bytes is not what was written")
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:  # sealed by a program that writes other records
        raise ValueError(str(error)) from error


def _seal(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=SEAL_BYTES, person=b"anchorline entry").digest()
