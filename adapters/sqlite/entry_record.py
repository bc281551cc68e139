"""An entry as bytes, sealed: SQLite checks pages' order and not what stands in them.

A taint line with a flipped bit would turn a preserved state into a bitwise one.
"""

import hashlib
from operator import attrgetter
from typing import Final

import msgspec

from ...domain.stored_entry import StoredEntry
from ...ports.block_storage import check_object_names

SEAL_BYTES: Final = 16

_NAME: Final = attrgetter("name")
_BYTES: Final = attrgetter("nbytes")

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
        entry = _DECODER.decode(body)
    except msgspec.MsgspecError as error:  # sealed by a program that writes other records
        raise ValueError(str(error)) from error
    _check(entry)
    return entry


def _check(entry: StoredEntry) -> None:
    """Hold names to lead nowhere else, and lengths to be lengths: the seal is no signature.

    Raises:
        ValueError: they are not.
    """
    parts = (*entry.blocks, *entry.anchors)
    check_object_names(list(map(_NAME, parts)))
    if parts:
        least = min(parts, key=_BYTES)
        if least.nbytes < 0:
            raise ValueError(f"{least.name} takes {least.nbytes} bytes")


def _seal(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=SEAL_BYTES, person=b"anchorline entry").digest()
