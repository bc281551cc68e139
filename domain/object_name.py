"""Names of stored objects: what they hold can be told, and looked for, without opening them.

    <fingerprint>/blocks/ab/<prefix key>-<content chain>.blk
    <fingerprint>/anchors/ab/<prefix key>-<grid or end>-<content chain>.anc

`ab` stands for the key's first byte. The content chain is that of the object's own bytes over all
rows below it. All of a name is hexadecimal digits and fixed words, and the same bytes over the same
bytes of the same tokens have the same name on every machine.
"""

import hashlib
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from .content_chain import ContentChain, ContentDigest, link
from .errors import ObjectCorrupt
from .fingerprint import Fingerprint
from .object_header import ObjectHeader, ObjectKind, PartRecord
from .prefix_key import PrefixKey
from .stored_entry import ObjectName
from .sums import SUMS_VERSION

_NAME: Final = re.compile(
    r"(?P<fingerprint>[0-9a-f]{64})/"
    r"(?:blocks/(?P<block_fan>[0-9a-f]{2})/(?P<block_key>(?:[0-9a-f]{2}){1,16})"
    r"-(?P<block_chain>[0-9a-f]{32})\.blk"
    r"|anchors/(?P<anchor_fan>[0-9a-f]{2})/(?P<anchor_key>(?:[0-9a-f]{2}){1,16})"
    r"-(?P<kind>grid|end)-(?P<anchor_chain>[0-9a-f]{32})\.anc)",
    re.ASCII,
)

_SUMS: Final = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class ObjectIdentity:
    """What a name says.

    Attributes:
        chain: of the object's own bytes over the rows below it. Blocks stand on blocks, so that of
            a block is what the objects above it have as their `below`.
    """

    fingerprint: Fingerprint
    kind: ObjectKind
    key: PrefixKey
    chain: ContentChain

    @property
    def name(self) -> ObjectName:
        key, chain = self.key.hex(), self.chain.hex()
        if self.kind is ObjectKind.BLOCK:
            return ObjectName(f"{self.fingerprint}/blocks/{key[:2]}/{key}-{chain}.blk")
        return ObjectName(
            f"{self.fingerprint}/anchors/{key[:2]}/{key}-{self.kind.value}-{chain}.anc"
        )


def content_digest(parts: Iterable[PartRecord]) -> ContentDigest:
    """The identity of raw bytes: over every part's name, dtype, shape and sums, in order.

    How the parts are compressed and where they stand does not enter: an unchanged block keeps the
    digest that it was given under another codec.
    """
    text = [b"anchorline content 1", struct.pack("<I", SUMS_VERSION)]
    for part in parts:
        text.append(_shaped(part.name, part.dtype, part.shape))
        text.append(_SUMS.pack(part.sums.plain, part.sums.weighted))
    return ContentDigest(hashlib.sha256(b"".join(text)).hexdigest()[:32])


@lru_cache(maxsize=1 << 12)
def _shaped(name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    """What of a part's identity is the same in every object of a model; kept for the next one."""
    texts = [struct.pack("<I", len(text)) + text for text in (name.encode(), dtype.encode())]
    return b"".join(texts) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)


def chain_of(header: ObjectHeader) -> ContentChain:
    """The content chain up to the end of the object that the header stands in."""
    return link(header.below, content_digest(header.parts), header.line)


def identity_of(header: ObjectHeader) -> ObjectIdentity:
    """The identity of the object that the header stands in."""
    return ObjectIdentity(header.fingerprint, header.kind, header.key, chain_of(header))


def key_prefix(fingerprint: Fingerprint, kind: ObjectKind, key: PrefixKey) -> str:
    """What the names of all objects of this kind at this key start with."""
    return ObjectIdentity(fingerprint, kind, key, ContentChain(b"")).name.rpartition("-")[0] + "-"


def parse_name(name: str) -> ObjectIdentity | None:
    """What a name says; None for a name that is none of ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    part = match.groupdict()
    fan, key = part["block_fan"] or part["anchor_fan"], part["block_key"] or part["anchor_key"]
    if not key.startswith(fan):
        return None
    return ObjectIdentity(
        fingerprint=Fingerprint(part["fingerprint"]),
        kind=ObjectKind(part["kind"] or "block"),
        key=PrefixKey(bytes.fromhex(key)),
        chain=ContentChain(bytes.fromhex(part["block_chain"] or part["anchor_chain"])),
    )


def check_name(header: ObjectHeader, name: str) -> None:
    """Hold a header against the name its object was found under.

    Raises:
        ObjectCorrupt: the object stands under a name that is not its own.
    """
    own = identity_of(header).name
    if own != name:
        raise ObjectCorrupt(f"the object {name} says that it is {own}")
