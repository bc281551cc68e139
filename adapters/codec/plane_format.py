"""How a part's planes are laid out in its stored bytes.

    header   width, which planes are compressed, frames a plane, length of the part
    table    of every compressed plane, the lowest first: the stored length of each frame
    raw      the other planes, the lowest first, whole
    frames   of every compressed plane, the lowest first

A frame is `FRAME_ITEMS` bytes of a plane, the last one of a plane what is left; a frame as long as
what it holds is not compressed. All numbers are little-endian. Everything about the layout follows
from the header and the table, and both are checked against the lengths at hand before anything is
allocated by them.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...domain.errors import ObjectCorrupt
from ...ports.block_storage import ByteArray, ByteRange
from .byte_planes import WIDTHS

FRAME_ITEMS: Final = 1 << 20
"""Part of the format's name, not of its header: another length is another codec."""

HEADER: Final = struct.Struct("<BBHIQ")


@dataclass(frozen=True, slots=True)
class PlaneLayout:
    """Where everything stands.

    Attributes:
        nbytes: of the part.
        width: bytes of an item.
        raw: by plane that is stored as it is, its place.
        frames: by compressed plane, the places of its frames.
        stored: bytes in all.
    """

    nbytes: int
    width: int
    raw: dict[int, ByteRange]
    frames: dict[int, Sequence[ByteRange]]
    stored: int

    @property
    def items(self) -> int:
        """Items of the part, which is bytes of a plane."""
        return self.nbytes // self.width


def frame_spans(items: int) -> list[ByteRange]:
    """The half-open ranges of a plane that its frames hold."""
    return [
        ByteRange(start, min(start + FRAME_ITEMS, items)) for start in range(0, items, FRAME_ITEMS)
    ]


def plan_layout(nbytes: int, width: int, lengths: dict[int, Sequence[int]]) -> PlaneLayout:
    """The layout of a part.

    Args:
        nbytes: of the part.
        width: of its items.
        lengths: by compressed plane, the stored length of each of its frames.
    """
    items = nbytes // width
    at = HEADER.size + 4 * sum(len(frames) for frames in lengths.values())
    raw: dict[int, ByteRange] = {}
    for plane in range(width):
        if plane not in lengths:
            raw[plane] = ByteRange(at, at + items)
            at += items
    frames: dict[int, Sequence[ByteRange]] = {}
    for plane in sorted(lengths):
        places: list[ByteRange] = []
        for length in lengths[plane]:
            places.append(ByteRange(at, at + length))
            at += length
        frames[plane] = places
    return PlaneLayout(nbytes, width, raw, frames, at)


def write_head(layout: PlaneLayout, into: ByteArray) -> None:
    """Write header and table at the start of `into`."""
    mask = sum(1 << plane for plane in layout.frames)
    count = len(frame_spans(layout.items))
    head = HEADER.pack(layout.width, mask, 0, count, layout.nbytes)
    into[: HEADER.size] = np.frombuffer(head, dtype=np.uint8)
    table = np.array(
        [
            place.end - place.start
            for plane in sorted(layout.frames)
            for place in layout.frames[plane]
        ],
        dtype="<u4",
    )
    into[HEADER.size : HEADER.size + 4 * len(table)] = table.view(np.uint8)


def read_head(stored: ByteArray, nbytes: int) -> PlaneLayout:
    """The layout that a header and a table tell of, checked in every number.

    Args:
        stored: all bytes of the part as it is stored.
        nbytes: of the part, as the caller knows it.

    Raises:
        ObjectCorrupt: these are no such bytes, or of a part of another length.
    """
    if len(stored) < HEADER.size:
        raise ObjectCorrupt(f"{len(stored)} bytes are too few for planes")
    width, mask, zero, count, told = HEADER.unpack(stored[: HEADER.size].data)
    if told != nbytes:
        raise ObjectCorrupt(f"planes of {told} bytes stand where {nbytes} are expected")
    if width not in WIDTHS or nbytes % width or not 0 < mask < 1 << width or zero:
        raise ObjectCorrupt(f"there are no planes of width {width}, mask {mask:#x} and {zero}")
    spans = frame_spans(nbytes // width)
    planes = [plane for plane in range(width) if mask >> plane & 1]
    table_end = HEADER.size + 4 * count * len(planes)
    if count != len(spans) or table_end > len(stored):
        raise ObjectCorrupt(f"a table of {count} frames a plane stands in {len(stored)} bytes")
    table = stored[HEADER.size : table_end].view("<u4").reshape(len(planes), count)
    layout = plan_layout(
        nbytes, width, {plane: table[row].tolist() for row, plane in enumerate(planes)}
    )
    if layout.stored != len(stored):
        raise ObjectCorrupt(f"planes of {layout.stored} bytes stand in {len(stored)}")
    for places in layout.frames.values():
        for place, span in zip(places, spans, strict=True):
            if not 0 < place.end - place.start <= span.end - span.start:
                raise ObjectCorrupt(
                    f"a frame of {span.end - span.start} bytes is stored in {place}"
                )
    return layout
