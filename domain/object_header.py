"""What a stored object says about itself: the values that its header holds.

An object is a row block or an anchor. Its header is enough to rebuild what an index knew of it: it
names the rows below it by their key and their content chain, so they are found again without the
index, and the ids of its span stand in it, so that no key needs to be believed.
"""

import enum
import math
import re
from dataclasses import dataclass
from typing import Final

from .anchor import AnchorKind
from .content_chain import CHAIN_BYTES, ContentChain
from .end import End
from .entry import Role
from .fingerprint import Fingerprint
from .grid import Span
from .layout import ITEM_BYTES
from .namespace import Namespace
from .prefix_key import KEY_BYTES, PrefixKey
from .sums import Sums
from .tokens import TokenIds

LINE_BYTES: Final = 4096
"""Headers are as many of these as they need; parts start at multiples of it."""

PARTS_MAX: Final = 4096
TOKENS_MAX: Final = 1 << 18
DIMENSIONS_MAX: Final = 8
PART_BYTES_MAX: Final = 1 << 40


def round_up(nbytes: int) -> int:
    """The next multiple of `LINE_BYTES`."""
    return -(-nbytes // LINE_BYTES) * LINE_BYTES


class ObjectKind(enum.Enum):
    """What an object holds."""

    BLOCK = "block"
    """The rows of its span, over all views."""

    GRID = "grid"
    """The sections at the end of its span, where a prefill chunk ended."""

    END = "end"
    """The sections at the end of its span, where a generation stopped."""

    @classmethod
    def of_anchor(cls, kind: AnchorKind) -> "ObjectKind":
        return cls(kind.value)


@dataclass(frozen=True, slots=True)
class PartRecord:
    """One payload part.

    Attributes:
        dtype: a key of `layout.ITEM_BYTES`.
        shape: of the raw part.
        raw_bytes: of the part as the engine holds it.
        stored_bytes: of the part as it stands in the object, without the fill behind it.
        crc32c: over the stored bytes.
        sums: over the raw bytes.
        codec: what turns stored bytes into raw ones; "raw" is nothing.
        offset: in the object; a multiple of `LINE_BYTES`. Set by `place_parts`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw_bytes: int
    stored_bytes: int
    crc32c: int
    sums: Sums
    codec: str
    offset: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"part {self.name} has the unknown dtype {self.dtype!r}")
        if len(self.shape) > DIMENSIONS_MAX or min(self.shape, default=0) < 0:
            raise ValueError(f"part {self.name} has the shape {self.shape}")
        if self.raw_bytes != ITEM_BYTES[self.dtype] * math.prod(self.shape):
            raise ValueError(
                f"part {self.name}: {self.raw_bytes} bytes are no {self.dtype} {self.shape}"
            )
        if not 0 <= self.stored_bytes <= PART_BYTES_MAX or self.raw_bytes > PART_BYTES_MAX:
            raise ValueError(f"part {self.name} is {self.raw_bytes} bytes, {self.stored_bytes}")
        if self.codec == "raw" and self.stored_bytes != self.raw_bytes:
            raise ValueError(
                f"part {self.name} is stored raw in {self.stored_bytes} bytes of {self.raw_bytes}"
            )

    # Written out: an object has dozens of parts, and `dataclasses.replace` takes thrice as long,
    # with the interpreter held.
    def encoded(self, codec: str, stored_bytes: int, crc32c: int) -> "PartRecord":
        """The part as it is stored."""
        return PartRecord(
            self.name,
            self.dtype,
            self.shape,
            self.raw_bytes,
            stored_bytes,
            crc32c,
            self.sums,
            codec,
            self.offset,
        )

    def placed(self, offset: int) -> "PartRecord":
        """The part where it stands in the object."""
        return PartRecord(
            self.name,
            self.dtype,
            self.shape,
            self.raw_bytes,
            self.stored_bytes,
            self.crc32c,
            self.sums,
            self.codec,
            offset,
        )

    @property
    def padded_bytes(self) -> int:
        """What the part takes in the object, the fill behind it included."""
        return round_up(self.stored_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectHeader:
    """All that an object says about itself. Not modified by anyone; compare encodings.

    Attributes:
        key: the prefix key at `span.end`.
        previous: the prefix key at `span.start`: the block before this one has it as its key.
        below: the content chain of the rows that it was written over: those below `span.start` for
            a block, and those below `span.end` for an anchor.
        span: a block's rows. An anchor's line is `span.end`, and its span tells the ids that stand
            directly below it; it may be empty.
        token_ids: of the span; read-only.
        key_ids: of the span; read-only.
        taint: rows from here on were not written by a cold grid prefill; at most `span.end`.
        role: why it was written first; entries of other roles may share it.
        session: the caller's hint when it was written first.
        end: of an end anchor, None for every other kind.
    """

    fingerprint: Fingerprint
    namespace: Namespace
    kind: ObjectKind
    key: PrefixKey
    previous: PrefixKey
    below: ContentChain
    span: Span
    token_ids: TokenIds
    key_ids: TokenIds
    taint: int
    role: Role
    session: str | None
    end: End | None
    parts: tuple[PartRecord, ...]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.fingerprint):
            raise ValueError(f"{self.fingerprint!r} is not a fingerprint")
        if not all(1 <= len(key) <= KEY_BYTES for key in (self.key, self.previous)):
            raise ValueError(f"prefix keys of {len(self.key)} and {len(self.previous)} bytes")
        if len(self.below) != CHAIN_BYTES:
            raise ValueError(f"a content chain of {len(self.below)} bytes")
        if not len(self.token_ids) == len(self.key_ids) == len(self.span) <= TOKENS_MAX:
            raise ValueError(
                f"{len(self.token_ids)} token ids and {len(self.key_ids)} key ids for {self.span}"
            )
        if not 0 <= self.taint <= self.span.end:
            raise ValueError(f"the taint line {self.taint} lies outside [0, {self.span.end}]")
        if self.kind is ObjectKind.BLOCK and not len(self.span):
            raise ValueError("a block without rows")
        if (self.kind is ObjectKind.END) != (self.end is not None):
            raise ValueError(f"end data is an end anchor's, and this is a {self.kind.value}")
        if self.end is not None and self.end.line != self.span.end:
            raise ValueError(f"an anchor at {self.span.end} with the end at {self.end.line}")
        if not 1 <= len({part.name for part in self.parts}) == len(self.parts) <= PARTS_MAX:
            raise ValueError(f"{len(self.parts)} parts are none, too many, or share a name")

    @property
    def line(self) -> int:
        """The line the object's state reaches up to."""
        return self.span.end

    @property
    def object_bytes(self) -> int:
        """The object's length, once its parts are placed; one of another length is damaged."""
        last = self.parts[-1]
        return last.offset + last.padded_bytes
