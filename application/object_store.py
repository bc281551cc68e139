"""Objects of state: row blocks and anchors as named, verified bytes on a medium.

Everything here runs on the lanes of background jobs, or offline; nothing touches an engine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Final

import numpy as np

from ..domain.errors import ObjectCorrupt
from ..domain.layout import ITEM_BYTES
from ..domain.object_format import (
    HEADER_BYTES_MAX,
    check_stored,
    decode_header,
    encode_header,
    header_bytes,
    place_parts,
)
from ..domain.object_header import LINE_BYTES, ObjectHeader, PartRecord, round_up
from ..domain.object_name import check_name
from ..domain.stored_entry import ObjectName
from ..domain.sums import NO_SUMS, Sums
from ..ports.block_storage import BlockStorage, ByteArray, ByteRange
from ..ports.codec import Codec, Encoded
from ..ports.gpu_state import RowsPlace
from .object_parts import name_of

RAW_BYTES_READ_MAX: Final = 8 << 30
"""What is allocated for an object on the word of its header, where no layout is known."""

LOOK_BYTES: Final = 1 << 20
"""What is looked at at a time. Less would stay in the core's cache until all have seen it, but each
look lets the interpreter lock go, and who wants it back waits for the other lanes."""


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


_UNKNOWN: Final[Mapping[str, int]] = MappingProxyType({})

WARM_ITEM_BYTES: Final = 4
"""A width for which a codec has a choice of settings, and so tries all of them."""


class ObjectStore:
    """Writes and reads objects; callable from any lane."""

    def __init__(self, storage: BlockStorage, codec: Codec) -> None:
        """Takes a codec that decides by itself what is worth compressing."""
        self._storage = storage
        self._codec = codec

    @property
    def storage(self) -> BlockStorage:
        return self._storage

    def warm(self, sample: ByteArray) -> None:
        """Compress a sample and read it back: this thread makes for itself what that takes."""
        encoded = self._codec.encode(sample, WARM_ITEM_BYTES)
        self._codec.decode(encoded.codec, encoded.data, np.empty_like(sample))

    @property
    def checksum_ahead(self) -> Callable[[ByteArray, int], int] | None:
        """What `write` takes of each part, where it can be known before the part is encoded."""
        return None if self._codec.compresses else self._codec.checksum

    def write(
        self, draft: ObjectHeader, payload: ByteArray, checksums: Mapping[str, int] = _UNKNOWN
    ) -> Written:
        """Encode and store an object; durable with the next `sync`.

        Args:
            draft: names the parts, with the sums of their bytes.
            payload: the parts where `part_views` puts them, each filled up to whole lines; the
                fill is zeroed, the parts are not modified. Free again on return.
            checksums: of parts, by `checksum_ahead`, as far as they are known.

        Raises:
            StorageFull, StorageReadOnly, StorageUnavailable: nothing was stored.
            ObjectCorrupt: an object of this name was there already, and is damaged.
            ObjectMissing: it was there, and somebody deletes it.
        """
        needed = sum(round_up(part.raw_bytes) for part in draft.parts)
        assert needed <= len(payload), f"{len(payload)} bytes are not all parts"
        records: list[PartRecord] = []
        stored: list[ByteArray] = []
        at = 0
        for part in draft.parts:
            raw = payload[at : at + part.raw_bytes]
            encoded = self._codec.encode(raw, ITEM_BYTES[part.dtype])
            crc32c = self._checksum_of(part, encoded, checksums)
            records.append(part.encoded(encoded.codec, len(encoded.data), crc32c))
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

    def sync(self) -> None:
        """Make durable all that was written; see `BlockStorage.sync`."""
        self._storage.sync()

    def read(
        self,
        name: ObjectName,
        nbytes: int,
        staging: ByteArray,
        *,
        raw_bytes_max: int = RAW_BYTES_READ_MAX,
    ) -> StoredState:
        """Read a whole object and verify everything but its tokens, which the caller compares.

        The content sums are not recomputed here: that is done where the bytes come to stand.

        Args:
            nbytes: the object's length, as the catalog has it.
            staging: aligned and long enough; the result's parts may be views of it. Where the parts
                fit into it as they were before compression, nothing is allocated for them.
            raw_bytes_max: of all parts together; an object that tells of more is damaged, and
                nothing is allocated for it.

        Raises:
            ObjectMissing, ObjectCorrupt, StorageUnavailable.
        """
        assert nbytes <= len(staging), f"{nbytes} bytes do not fit a buffer of {len(staging)}"
        # To the end: parts that grow are unpacked from the front on, behind those still packed.
        first = (len(staging) - nbytes) // LINE_BYTES * LINE_BYTES
        place = staging[first : first + nbytes]
        self._storage.read_into(name, [ByteRange(0, nbytes)], [place])
        head = bytes(place[: min(nbytes, LINE_BYTES)])
        lines = bytes(place[: min(header_bytes(head), nbytes)])
        header = decode_header(lines, self._checksum)
        check_name(header, name)
        if header.object_bytes != nbytes:
            raise ObjectCorrupt(
                f"{name} should be {nbytes} bytes long and says that it has {header.object_bytes}"
            )
        claimed = sum(part.raw_bytes for part in header.parts)
        if claimed > raw_bytes_max:
            raise ObjectCorrupt(f"its parts claim {claimed} bytes, of {raw_bytes_max} there can be")
        if all(part.codec == "raw" for part in header.parts):
            return StoredState(
                header, {part.name: self._checked(part, place) for part in header.parts}
            )
        return StoredState(header, self._unpacked(header, staging, first, nbytes))

    def place(
        self, name: ObjectName, parts: Sequence[PartRecord], place: RowsPlace
    ) -> dict[str, Sums]:
        """Read some raw parts to where their rows stand, and verify them there.

        Nothing is copied in between. So wrong bytes may stand there before that is known: on an
        error nobody may use them.

        Args:
            parts: records of the object's header, that follow each other.

        Returns:
            By part, the sums of what stands there now.

        Raises:
            ObjectMissing, ObjectCorrupt, StorageUnavailable.
        """
        arriving = [_Arriving.at(part, place.memory(part.name), self._storage) for part in parts]
        self._storage.read_into(
            name,
            [span for one in arriving for span in one.ranges],
            [buffer for one in arriving for buffer in one.buffers],
        )
        return {one.part.name: one.verified(self._codec.checksum, place) for one in arriving}

    def read_header(self, name: ObjectName, likely_bytes: int = 0) -> ObjectHeader:
        """Read and verify an object's header alone.

        Args:
            likely_bytes: how long it is, as far as the caller can know; the object is no shorter.
                A header that is no longer takes one read around every cache.

        Raises:
            ObjectMissing, ObjectCorrupt, StorageUnavailable.
        """
        if LINE_BYTES <= likely_bytes <= HEADER_BYTES_MAX:
            data = self._first_bytes(name, round_up(likely_bytes))
        else:
            data = self._storage.header(name, LINE_BYTES)
        needed = header_bytes(data)
        if needed > len(data):
            data = self._storage.header(name, needed)
        header = decode_header(data, self._checksum)
        check_name(header, name)
        return header

    def _checked(self, part: PartRecord, place: ByteArray) -> ByteArray:
        """A part's stored bytes in those of its object.

        Raises:
            ObjectCorrupt: a bit differs from what was written.
        """
        stored = place[part.offset : part.offset + part.padded_bytes]
        check_stored(part, stored, self._checksum)
        return stored[: part.stored_bytes]

    def _unpacked(
        self, header: ObjectHeader, staging: ByteArray, first: int, nbytes: int
    ) -> dict[str, ByteArray]:
        """The raw bytes of all parts, in the staging buffer that holds the object.

        New memory for each part would be given back and asked for again with every object, page by
        page: that took up to half of the processor time of a restore.

        Args:
            first: where in it the object begins.

        Raises:
            ObjectCorrupt: a part is not what was written.
        """
        place = staging[first : first + nbytes]
        ends = [*(part.offset for part in header.parts[1:]), nbytes]
        parts: dict[str, ByteArray] = {}
        at = 0
        for part, end in zip(header.parts, ends, strict=True):
            data = self._checked(part, place)
            if at + part.raw_bytes > first + end:  # it does not fit below what is still packed
                raw = np.empty(part.raw_bytes, dtype=np.uint8)
            else:
                raw = staging[at : at + part.raw_bytes]
                at += round_up(part.raw_bytes)
                if len(raw) and at > first + part.offset:
                    data = data.copy()  # it is about to be overwritten
            self._codec.decode(part.codec, data, raw)
            parts[part.name] = raw
        return parts

    def _first_bytes(self, name: ObjectName, nbytes: int) -> bytes:
        buffer = self._storage.buffer(nbytes)[:nbytes]
        self._storage.read_into(name, [ByteRange(0, nbytes)], [buffer])
        return buffer.tobytes()

    def _checksum_of(self, part: PartRecord, encoded: Encoded, checksums: Mapping[str, int]) -> int:
        """Of what is stored of a part: of its own bytes, or of others that mean them."""
        known = checksums.get(part.name) if encoded.codec == "raw" else None
        return self._checksum(encoded.data) if known is None else known

    def _checksum(self, data: ByteArray) -> int:
        return self._codec.checksum(data)

    def _filled(self, data: ByteArray) -> ByteArray:
        """A copy that is filled up with zeros to whole lines, in memory that moves as it is."""
        buffer = self._storage.buffer(round_up(len(data)))[: round_up(len(data))]
        buffer[: len(data)] = data
        return buffer


@dataclass(frozen=True, slots=True)
class _Arriving:
    """A raw part that is read to where it belongs.

    Attributes:
        memory: where that is.
        ranges: of the object, which follow each other.
        buffers: what is read into, one a range. A last line that is not full, with the fill behind
            it, has a buffer of its own.
    """

    part: PartRecord
    memory: ByteArray
    ranges: list[ByteRange]
    buffers: list[ByteArray]

    @classmethod
    def at(cls, part: PartRecord, memory: ByteArray, storage: BlockStorage) -> "_Arriving":
        if len(memory) != part.raw_bytes:
            raise ObjectCorrupt(
                f"part {part.name} is {part.raw_bytes} bytes long and should be {len(memory)}"
            )
        whole = part.raw_bytes // LINE_BYTES * LINE_BYTES
        lengths = [whole] if whole else []
        buffers = [memory[:whole]] if whole else []
        if whole < part.padded_bytes:
            lengths.append(LINE_BYTES)
            buffers.append(storage.buffer(LINE_BYTES)[:LINE_BYTES])
        ends = [part.offset + end for end in accumulate(lengths)]
        spans = [ByteRange(end - size, end) for end, size in zip(ends, lengths, strict=True)]
        return cls(part, memory, spans, buffers)

    def verified(self, checksum: Callable[[ByteArray, int], int], place: RowsPlace) -> Sums:
        """The sums of the part where it stands, once it has been read.

        Raises:
            ObjectCorrupt: a bit differs from what was written.
        """
        part = self.part
        rest = part.raw_bytes % LINE_BYTES
        if rest:
            line = self.buffers[-1]
            self.memory[-rest:] = line[:rest]
            if line[rest:].any():
                raise ObjectCorrupt(f"there is something behind part {part.name}")
        crc32c, sums = 0, NO_SUMS
        # In pieces, so that the second look finds in the processor's cache what the first fetched.
        for start in range(0, part.raw_bytes, LOOK_BYTES):
            end = min(start + LOOK_BYTES, part.raw_bytes)
            crc32c = checksum(self.memory[start:end], crc32c)
            sums += place.sums(part.name, start, end)
        if crc32c != part.crc32c:
            raise ObjectCorrupt(
                f"part {part.name} has the checksum {crc32c:08x} and should have {part.crc32c:08x}"
            )
        return sums
