"""The parts of objects: what rows and sections are called, and how they stand in a buffer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ..domain.layout import ITEM_BYTES, Section, View
from ..domain.object_header import ObjectHeader, PartRecord, round_up
from ..domain.object_name import identity_of
from ..domain.stored_entry import ObjectName
from ..domain.sums import NO_SUMS, Sums
from ..ports.block_storage import ByteArray, object_name

EMPTY_PART: Final = "empty"
"""The one part of an object without bytes: its header still names the tokens it stands for."""

HEADER_ROOM_BYTES: Final = 256 << 10
"""What a staging buffer leaves for the header of the object it is to hold."""


@dataclass(frozen=True)
class PartSpec:
    """What a part is called and shaped like, in an object."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @cached_property
    def nbytes(self) -> int:
        return ITEM_BYTES[self.dtype] * math.prod(self.shape)


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
    return tuple(
        PartRecord(
            name=spec.name,
            dtype=spec.dtype,
            shape=spec.shape,
            raw_bytes=spec.nbytes,
            stored_bytes=spec.nbytes,
            crc32c=0,
            # Not by default: sums that are missing would name other bytes alike.
            sums=sums[spec.name] if spec.nbytes else NO_SUMS,
            codec="raw",
        )
        for spec in specs
    )


def name_of(draft: ObjectHeader) -> ObjectName:
    """The name an object of these tokens and sums has, whether it is stored or not."""
    return object_name(identity_of(draft).name)
