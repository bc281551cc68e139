"""Objects of state: row blocks and anchors as named, verified bytes on a medium.

Everything here runs on the lanes of background jobs, or offline; nothing touches an engine.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ..domain.errors import ObjectCorrupt
from ..domain.layout import ITEM_BYTES, Section, View
from ..domain.object_format import (
    check_stored,
    decode_header,
    encode_header,
    header_bytes,
    place_parts,
)
from ..domain.object_header import LINE_BYTES, ObjectHeader, PartRecord, round_up
from ..domain.object_name import check_name, identity_of
from ..domain.stored_entry import ObjectName
from ..domain.sums import Sums, sums_of
from ..ports.block_storage import BlockStorage, ByteArray, ByteRange, object_name
from ..ports.codec import Codec

EMPTY_PART: Final = "empty"
"""The one part of an object without bytes: its header still names the tokens it stands for."""

PART_BYTES_READ_MAX: Final = 8 << 30
"""What is allocated for one part on the word of its header."""

HEADER_ROOM_BYTES: Final = 256 << 10
"""What a staging buffer leaves for the header of the object it is to hold."""


@dataclass(frozen=True, slots=True)
class PartSpec:
    """What a part is called and shaped like, in an object."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return ITEM_BYTES[self.dtype] * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class StoredState:
    """An object that was read and verified.

    Attributes:
        parts: raw bytes by part name, views of the staging buffer where nothing was compressed.
    """

    header: ObjectHeader
    parts: Mapping[str, ByteArray]


@dataclass(frozen=True, slots=True)
class Written:
    """What a write left on the medium.

    Attributes:
        nbytes: that the object takes.
        written: that were written now; 0 if the object was there.
    """

    nbytes: int
    written: int


def row_parts(views: Sequence[View], tokens: int) -> tuple[PartSpec, ...]:
    """The parts of a block of `tokens` rows."""
    specs = tuple(PartSpec(view.name, view.dtype, (tokens, *view.row_shape)) for view in views)
    return specs or (PartSpec(EMPTY_PART, "uint8", (0,)),)


def section_parts(sections: Sequence[Section]) -> tuple[PartSpec, ...]:
    """The parts of an anchor."""
    specs = tuple(PartSpec(section.name, section.dtype, section.shape) for section in sections)
    return specs or (PartSpec(EMPTY_PART, "uint8", (0,)),)


def payload_bytes(specs: Sequence[PartSpec]) -> int:
    """What the parts take in an object, each filled up to whole lines."""
    return sum(round_up(spec.nbytes) for spec in specs)


def part_views(buffer: ByteArray, specs: Sequence[PartSpec]) -> dict[str, ByteArray]:
    """Where each part stands in a buffer that is laid out as the payload of a raw object."""
    views: dict[str, ByteArray] = {}
    at = 0
    for spec in specs:
        views[spec.name] = buffer[at : at + spec.nbytes]
        at += round_up(spec.nbytes)
    return views


def draft_parts(specs: Sequence[PartSpec], sums: Mapping[str, Sums]) -> tuple[PartRecord, ...]:
    """The records of parts that are not encoded yet: enough to name the object.

    Args:
        sums: of every part that has bytes.
    """
    nothing = sums_of(np.empty(0, dtype=np.uint8))
    return tuple(
        PartRecord(
            name=spec.name,
            dtype=spec.dtype,
            shape=spec.shape,
            raw_bytes=spec.nbytes,
            stored_bytes=spec.nbytes,
            crc32c=0,
            # Not by default: sums that are missing would name other bytes alike.
            sums=sums[spec.name] if spec.nbytes else nothing,
            codec="raw",
        )
        for spec in specs
    )


def name_of(draft: ObjectHeader) -> ObjectName:
    """The name an object of these tokens and sums has, whether it is stored or not."""
    return object_name(identity_of(draft).name)


class ObjectStore:
    """Writes and reads objects; callable from any lane."""

    def __init__(self, storage: BlockStorage, codec: Codec) -> None:
        """Takes a codec that decides by itself what is worth compressing."""
        self._storage = storage
        self._codec = codec

    @property
    def storage(self) -> BlockStorage:
        return self._storage

    def write(self, draft: ObjectHeader, payload: ByteArray) -> Written:
        """Encode and store an object; durable on return.

        Args:
            draft: names the parts, with the sums of their bytes.
            payload: the parts where `part_views` puts them, each filled up to whole lines; the
                fill is zeroed, the parts are not modified. Free again on return.

        Raises:
            StorageFull, StorageReadOnly, StorageUnavailable: nothing was stored.
            ObjectCorrupt: an object of this name was there already, and is damaged.
            ObjectMissing: it was there, and somebody deletes it.
        """
        specs = [PartSpec(part.name, part.dtype, part.shape) for part in draft.parts]
        assert payload_bytes(specs) <= len(payload), f"{len(payload)} bytes are not all parts"
        records: list[PartRecord] = []
        stored: list[ByteArray] = []
        at = 0
        for part, raw in zip(draft.parts, part_views(payload, specs).values(), strict=True):
            encoded = self._codec.encode(raw, ITEM_BYTES[part.dtype])
            records.append(
                replace(
                    part,
                    stored_bytes=len(encoded.data),
                    crc32c=self._codec.checksum(encoded.data),
                    codec=encoded.codec,
                )
            )
            if encoded.codec == "raw":
                # Raw parts are written from where they stand; only the fill is cleared.
                payload[at + len(raw) : at + round_up(len(raw))] = 0
                stored.append(payload[at : at + round_up(len(raw))])
            else:
                stored.append(self._filled(encoded.data))
            at += round_up(len(raw))
        header = place_parts(replace(draft, parts=tuple(records)))
        lines = self._filled(np.frombuffer(encode_header(header, self._checksum), dtype=np.uint8))
        if all(record.codec == "raw" for record in records):
            stored = [payload[:at]]
        name = name_of(draft)
        written = self._storage.put(name, [lines, *(piece for piece in stored if len(piece))])
        if written == 0:
            # The same state under another codec, or with another header: its length is its own.
            return Written(self.read_header(name).object_bytes, 0)
        return Written(header.object_bytes, written)

    def read(self, name: ObjectName, nbytes: int, staging: ByteArray) -> StoredState:
        """Read a whole object and verify everything but its tokens, which the caller compares.

        The content sums are not recomputed here: that is done where the bytes come to stand.

        Args:
            nbytes: the object's length, as the catalog has it.
            staging: aligned and long enough; the result's parts may be views of it.

        Raises:
            ObjectMissing, ObjectCorrupt, StorageUnavailable.
        """
        assert nbytes <= len(staging), f"{nbytes} bytes do not fit a buffer of {len(staging)}"
        place = staging[:nbytes]
        self._storage.read_into(name, [ByteRange(0, nbytes)], [place])
        head = bytes(place[: min(nbytes, LINE_BYTES)])
        lines = bytes(place[: min(header_bytes(head), nbytes)])
        header = decode_header(lines, self._checksum)
        check_name(header, name)
        if header.object_bytes != nbytes:
            raise ObjectCorrupt(
                f"{name} should be {nbytes} bytes long and says that it has {header.object_bytes}"
            )
        parts: dict[str, ByteArray] = {}
        for part in header.parts:
            if part.raw_bytes > PART_BYTES_READ_MAX:
                raise ObjectCorrupt(f"part {part.name} claims to have {part.raw_bytes} bytes")
            stored = place[part.offset : part.offset + part.padded_bytes]
            check_stored(part, stored, self._checksum)
            data = stored[: part.stored_bytes]
            if part.codec != "raw":
                raw = np.empty(part.raw_bytes, dtype=np.uint8)
                self._codec.decode(part.codec, data, raw)
                data = raw
            parts[part.name] = data
        return StoredState(header, parts)

    def read_header(self, name: ObjectName) -> ObjectHeader:
        """Read and verify an object's header alone.

        Raises:
            ObjectMissing, ObjectCorrupt, StorageUnavailable.
        """
        data = self._storage.header(name, LINE_BYTES)
        needed = header_bytes(data)
        if needed > len(data):
            data = self._storage.header(name, needed)
        header = decode_header(data, self._checksum)
        check_name(header, name)
        return header

    def _checksum(self, data: ByteArray) -> int:
        return self._codec.checksum(data)

    def _filled(self, data: ByteArray) -> ByteArray:
        """A copy that is filled up with zeros to whole lines, in memory that moves as it is."""
        buffer = self._storage.buffer(round_up(len(data)))[: round_up(len(data))]
        buffer[: len(data)] = data
        return buffer
