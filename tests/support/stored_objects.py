"""Small whole objects, header and payload, and the check that one was read back as it was."""

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from anchorline.domain.content_chain import NO_ROWS
from anchorline.domain.end import End
from anchorline.domain.entry import Role
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.grid import Span
from anchorline.domain.namespace import Namespace
from anchorline.domain.object_format import (
    check_stored,
    decode_header,
    encode_header,
    header_bytes,
    place_parts,
)
from anchorline.domain.object_header import LINE_BYTES, ObjectHeader, ObjectKind, PartRecord
from anchorline.domain.object_name import check_name, identity_of
from anchorline.domain.prefix_key import extend, root_key
from anchorline.domain.stored_entry import ObjectName
from anchorline.domain.sums import sums_of
from anchorline.domain.tokens import token_ids
from anchorline.ports.block_storage import BlockStorage, ByteArray, ByteRange

FINGERPRINT = fingerprint_of({"weights": "toy"})


def crc32(data: npt.NDArray[np.uint8]) -> int:
    """Stands in for crc32c: another polynomial, the same promise."""
    return zlib.crc32(data.data)


def make_header(
    raws: Sequence[npt.NDArray[np.uint8]],
    *,
    kind: ObjectKind = ObjectKind.BLOCK,
    tokens: int = 8,
    start: int = 0,
    seed: int = 0,
    session: str | None = "s",
    namespace: Namespace | None = None,
) -> ObjectHeader:
    """A placed header over raw parts of bytes."""
    namespace = namespace or Namespace()
    span = Span(start, start + tokens)
    ids = token_ids([(seed * 31 + at * at) % 97 for at in range(tokens)])
    previous = root_key(namespace)
    is_end = kind is ObjectKind.END
    return place_parts(
        ObjectHeader(
            fingerprint=FINGERPRINT,
            namespace=namespace,
            kind=kind,
            key=extend(previous, ids),
            previous=previous,
            below=NO_ROWS,
            span=span,
            token_ids=ids,
            key_ids=ids,
            taint=span.end,
            role=Role.CONVERSATION if is_end else Role.HEAD,
            session=session,
            end=End(span.end, (Span(0, span.end),), (Span(0, 1),)) if is_end else None,
            parts=tuple(
                PartRecord(
                    name=f"part.{number}",
                    dtype="uint8",
                    shape=(len(raw),),
                    raw_bytes=len(raw),
                    stored_bytes=len(raw),
                    crc32c=crc32(raw),
                    sums=sums_of(raw),
                    codec="raw",
                )
                for number, raw in enumerate(raws)
            ),
        )
    )


def random_parts(seed: int, lengths: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, length, dtype=np.uint8) for length in lengths]


def padded(raw: npt.NDArray[np.uint8]) -> ByteArray:
    """The part with zeros up to the next line."""
    out = np.zeros(-(-len(raw) // LINE_BYTES) * LINE_BYTES, dtype=np.uint8)
    out[: len(raw)] = raw
    return out


def object_parts(
    header: ObjectHeader, raws: Sequence[npt.NDArray[np.uint8]]
) -> tuple[ObjectName, list[ByteArray]]:
    """The object's name, and what `put` takes."""
    lines = np.frombuffer(encode_header(header, crc32), dtype=np.uint8)
    return identity_of(header).name, [lines, *map(padded, raws)]


def make_object(
    seed: int, lengths: Sequence[int] = (5000, 4096, 1), *, kind: ObjectKind = ObjectKind.BLOCK
) -> tuple[ObjectName, list[ByteArray]]:
    """A whole object of random bytes that `seed` decides."""
    raws = random_parts(seed, lengths)
    return object_parts(make_header(raws, seed=seed, kind=kind), raws)


def check_object(storage: BlockStorage, name: ObjectName) -> ObjectHeader:
    """Read an object as an application does and hold every bit of it against its header.

    Raises:
        ObjectMissing, ObjectCorrupt, StorageUnavailable.
    """
    lines = storage.header(name, LINE_BYTES)
    lines = storage.header(name, header_bytes(lines))
    header = decode_header(lines, crc32)
    check_name(header, name)
    ranges = [ByteRange(part.offset, part.offset + part.padded_bytes) for part in header.parts]
    buffers = [storage.buffer(part.padded_bytes) for part in header.parts]
    views = [
        buffer[: part.padded_bytes] for buffer, part in zip(buffers, header.parts, strict=True)
    ]
    storage.read_into(name, ranges, views)
    for part, view in zip(header.parts, views, strict=True):
        check_stored(part, view, crc32)
    return header
