"""An object's bytes: a header, and the payload parts behind it.

    0                  header_bytes                                   object_bytes
    | header, 0-filled | part 0, 0-filled | part 1, 0-filled | ... |
      4 KiB lines        each starts at a multiple of 4 KiB, in order, without gaps

Nothing here opens a file. What was read is held against the header by the functions below: every
bit of an object is under the header's checksum, under a part's, or a zero.
"""

import dataclasses
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from .content_chain import CHAIN_BYTES, ContentChain
from .end import End
from .entry import Role
from .errors import ObjectCorrupt
from .fingerprint import Fingerprint
from .grid import Span
from .namespace import Namespace
from .object_header import (
    DIMENSIONS_MAX,
    LINE_BYTES,
    ObjectHeader,
    ObjectKind,
    PartRecord,
    round_up,
)
from .prefix_key import PrefixKey
from .sums import Sums
from .tokens import TokenIds

MAGIC: Final = b"ANCHORLN"
FORMAT_VERSION: Final = 2
HEADER_BYTES_MAX: Final = 4 << 20
SPANS_MAX: Final = 1 << 14
TEXT_BYTES_MAX: Final = 4096

Checksum: TypeAlias = Callable[[npt.NDArray[np.uint8]], int]
"""crc32c of flat, contiguous bytes; 32 bits."""

# magic, version, header's bytes, metadata's bytes, checksum of the header with this field zero
_PREAMBLE: Final = struct.Struct("<8sIIII")
_CHECKSUM_AT: Final = _PREAMBLE.size - 4

# a part's offset, raw bytes, stored bytes, checksum, and both sums
_RECORD: Final = struct.Struct("<QQQIQQ")


def place_parts(header: ObjectHeader) -> ObjectHeader:
    """The header with every part's offset set: one behind the other, behind the header."""
    # Offsets have a fixed width, so the header is as long before as after.
    records = sum(len(_described(part)) + _RECORD.size for part in header.parts)
    at = round_up(_PREAMBLE.size + len(_front(header)) + records)
    parts: list[PartRecord] = []
    for part in header.parts:
        parts.append(part.placed(at))
        at += part.padded_bytes
    return dataclasses.replace(header, parts=tuple(parts))


def encode_header(header: ObjectHeader, checksum: Checksum) -> bytes:
    """The header's lines; a multiple of `LINE_BYTES` long.

    Args:
        header: with placed parts.

    Raises:
        ValueError: the parts are not placed, or a bound of this module is exceeded.
    """
    metadata = _metadata(header)
    nbytes = round_up(_PREAMBLE.size + len(metadata))
    if nbytes > HEADER_BYTES_MAX:
        raise ValueError(f"a header of {nbytes} bytes exceeds the bound of {HEADER_BYTES_MAX}")
    _check_placing(header.parts, nbytes)
    blank = _PREAMBLE.pack(MAGIC, FORMAT_VERSION, nbytes, len(metadata), 0)
    lines = np.zeros(nbytes, dtype=np.uint8)
    lines[: len(blank) + len(metadata)] = np.frombuffer(blank + metadata, dtype=np.uint8)
    lines[_CHECKSUM_AT : _PREAMBLE.size] = np.frombuffer(
        checksum(lines).to_bytes(4, "little"), dtype=np.uint8
    )
    return lines.tobytes()


def header_bytes(data: bytes) -> int:
    """How many bytes `decode_header` needs of the object that starts with `data`.

    Args:
        data: at least the first `LINE_BYTES` of an object.

    Raises:
        ObjectCorrupt: this is no object of ours, or one of another format version.
    """
    if len(data) < LINE_BYTES:
        raise ObjectCorrupt(f"an object of {len(data)} bytes is shorter than any header")
    magic, version, nbytes, metadata_bytes, _ = _PREAMBLE.unpack_from(data)
    if magic != MAGIC:
        raise ObjectCorrupt(f"the object starts with {magic!r}")
    if version != FORMAT_VERSION:
        raise ObjectCorrupt(
            f"the object has the format version {version}, and this program reads {FORMAT_VERSION}"
        )
    if nbytes > HEADER_BYTES_MAX or nbytes != round_up(_PREAMBLE.size + metadata_bytes):
        raise ObjectCorrupt(f"{metadata_bytes} bytes of metadata in a header of {nbytes}")
    return nbytes


def decode_header(data: bytes, checksum: Checksum) -> ObjectHeader:
    """What the object that starts with `data` says about itself.

    Args:
        data: at least `header_bytes(data)` bytes; what follows them is not looked at.

    Raises:
        ObjectCorrupt: these are not the bytes `encode_header` returned.
    """
    nbytes = header_bytes(data)
    if len(data) < nbytes:
        raise ObjectCorrupt(f"the header is {nbytes} bytes long, and {len(data)} are there")
    _, _, _, metadata_bytes, expected = _PREAMBLE.unpack_from(data)
    lines = np.frombuffer(data, dtype=np.uint8, count=nbytes).copy()
    lines[_CHECKSUM_AT : _PREAMBLE.size] = 0
    found = checksum(lines)
    if found != expected:
        raise ObjectCorrupt(f"the header's checksum is {found:08x} and should be {expected:08x}")
    cursor = _Cursor(data, _PREAMBLE.size, _PREAMBLE.size + metadata_bytes)
    try:
        header = _read_metadata(cursor)
        _check_placing(header.parts, nbytes)
    except ValueError as error:  # the checksum holds: written by another program, or by a fault
        raise ObjectCorrupt(f"the header contradicts itself: {error}") from error
    return header


def check_stored(part: PartRecord, stored: npt.NDArray[np.uint8], checksum: Checksum) -> None:
    """Hold a part as it was read against its record; what lies behind it must be zeros.

    Args:
        stored: the part's `padded_bytes`, as they stand in the object; not modified.

    Raises:
        ObjectCorrupt: a bit differs from what was written.
    """
    if len(stored) != part.padded_bytes:
        raise ObjectCorrupt(f"part {part.name}: {len(stored)} bytes of {part.padded_bytes}")
    found = checksum(stored[: part.stored_bytes])
    if found != part.crc32c:
        raise ObjectCorrupt(
            f"part {part.name} has the checksum {found:08x} and should have {part.crc32c:08x}"
        )
    if stored[part.stored_bytes :].any():
        raise ObjectCorrupt(f"there is something behind part {part.name}")


def _check_placing(parts: tuple[PartRecord, ...], header_nbytes: int) -> None:
    at = header_nbytes
    for part in parts:
        if part.offset != at:
            raise ValueError(f"part {part.name} is placed at {part.offset} and not at {at}")
        at += part.padded_bytes


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) > TEXT_BYTES_MAX:
        raise ValueError(f"a text of {len(data)} bytes exceeds the bound of {TEXT_BYTES_MAX}")
    return struct.pack("<H", len(data)) + data


def _spans(spans: tuple[Span, ...]) -> bytes:
    if len(spans) > SPANS_MAX:
        raise ValueError(f"{len(spans)} spans exceed the bound of {SPANS_MAX}")
    flat = [bound for span in spans for bound in (span.start, span.end)]
    return struct.pack(f"<I{len(flat)}Q", len(spans), *flat)


def _metadata(header: ObjectHeader) -> bytes:
    """Everything but the preamble; as long whatever the offsets and checksums are."""
    return b"".join([_front(header), *map(_part, header.parts)])


def _front(header: ObjectHeader) -> bytes:
    """What stands before the records of the parts."""
    same_ids = np.array_equal(header.token_ids, header.key_ids)
    return b"".join(
        [
            bytes.fromhex(header.fingerprint),
            _text(header.namespace.salt),
            _text(header.namespace.adapter),
            _text(header.namespace.kv_scheme),
            _text(header.kind.value),
            _text(header.role.value),
            struct.pack("<B", len(header.key)) + header.key,
            struct.pack("<B", len(header.previous)) + header.previous,
            header.below,
            struct.pack("<QQQ", header.span.start, header.span.end, header.taint),
            struct.pack("<B", same_ids),
            header.token_ids.astype("<u4").tobytes(),
            b"" if same_ids else header.key_ids.astype("<u4").tobytes(),
            struct.pack("<B", header.session is not None) + _text(header.session or ""),
            _spans(header.end.hidden) + _spans(header.end.regions) if header.end else b"",
            struct.pack("<H", len(header.parts)),
        ]
    )


def _part(part: PartRecord) -> bytes:
    return _described(part) + _RECORD.pack(
        part.offset,
        part.raw_bytes,
        part.stored_bytes,
        part.crc32c,
        part.sums.plain,
        part.sums.weighted,
    )


def _described(part: PartRecord) -> bytes:
    return _description(part.name, part.dtype, part.codec, part.shape)


@lru_cache(maxsize=1 << 12)
def _description(name: str, dtype: str, codec: str, shape: tuple[int, ...]) -> bytes:
    """What of a part's record is the same in every object of a model; kept for the next one."""
    texts = _text(name) + _text(dtype) + _text(codec)
    return texts + struct.pack(f"<B{len(shape)}Q", len(shape), *shape)


class _Cursor:
    """Reads metadata from front to back and never beyond its end.

    No count that it reads makes it allocate more than the metadata holds.
    """

    def __init__(self, data: bytes, at: int, end: int):
        self._data = data
        self._at = at
        self.end = end

    @property
    def left(self) -> int:
        return self.end - self._at

    def take(self, nbytes: int) -> bytes:
        if nbytes > self.left:
            raise ValueError(f"{nbytes} bytes were to follow, and {self.left} do")
        self._at += nbytes
        return self._data[self._at - nbytes : self._at]

    def numbers(self, form: str) -> tuple[int, ...]:
        form = f"<{form}"
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def number(self, form: str) -> int:
        return self.numbers(form)[0]

    def flag(self) -> bool:
        value = self.number("B")
        if value > 1:
            raise ValueError(f"a flag of {value}")
        return value == 1

    def text(self) -> str:
        nbytes = self.number("H")
        if nbytes > TEXT_BYTES_MAX:
            raise ValueError(f"a text of {nbytes} bytes")
        return self.take(nbytes).decode()

    def ids(self, count: int) -> TokenIds:
        ids = np.frombuffer(self.take(4 * count), dtype="<u4").astype(np.uint32)
        ids.flags.writeable = False
        return ids

    def spans(self) -> tuple[Span, ...]:
        count = self.number("I")
        if count > SPANS_MAX:
            raise ValueError(f"{count} spans")
        bounds = self.numbers(f"{2 * count}Q")
        return tuple(Span(*pair) for pair in zip(bounds[::2], bounds[1::2], strict=True))

    def part(self) -> PartRecord:
        name, dtype, codec = self.text(), self.text(), self.text()
        dimensions = self.number("B")
        if dimensions > DIMENSIONS_MAX:
            raise ValueError(f"part {name} has {dimensions} dimensions")
        shape = self.numbers(f"{dimensions}Q")
        offset, raw_bytes, stored_bytes, crc32c, *sums = _RECORD.unpack(self.take(_RECORD.size))
        return PartRecord(
            name, dtype, shape, raw_bytes, stored_bytes, crc32c, Sums(*sums), codec, offset
        )


def _read_metadata(cursor: _Cursor) -> ObjectHeader:
    fingerprint = Fingerprint(cursor.take(32).hex())
    namespace = Namespace(salt=cursor.text(), adapter=cursor.text(), kv_scheme=cursor.text())
    kind, role = ObjectKind(cursor.text()), Role(cursor.text())
    key = PrefixKey(cursor.take(cursor.number("B")))
    previous = PrefixKey(cursor.take(cursor.number("B")))
    below = ContentChain(cursor.take(CHAIN_BYTES))
    start, end_line, taint = cursor.numbers("QQQ")
    span = Span(start, end_line)
    same_ids = cursor.flag()
    token_ids = cursor.ids(end_line - start)
    key_ids = token_ids if same_ids else cursor.ids(end_line - start)
    has_session, session = cursor.flag(), cursor.text()
    end = None
    if kind is ObjectKind.END:
        end = End(line=end_line, hidden=cursor.spans(), regions=cursor.spans())
    parts = tuple(cursor.part() for _ in range(cursor.number("H")))
    if cursor.left:
        raise ValueError(f"{cursor.left} bytes follow the last part's record")
    return ObjectHeader(
        fingerprint=fingerprint,
        namespace=namespace,
        kind=kind,
        key=key,
        previous=previous,
        below=below,
        span=span,
        token_ids=token_ids,
        key_ids=key_ids,
        taint=taint,
        role=role,
        session=session if has_session else None,
        end=end,
        parts=parts,
    )
