"""Anchors: owned copies of the sections at one line."""

import enum
from dataclasses import dataclass
from typing import NewType

SectionsHandle = NewType("SectionsHandle", int)
"""Names a copy of the sections that an engine holds for the cache; opaque, counted."""

RowsHandle = NewType("RowsHandle", int)
"""Names a copy of some rows that an engine holds outside its slots; opaque, counted."""


class AnchorKind(enum.Enum):
    """Where an anchor was taken: that decides under which gate it resumes."""

    GRID = "grid"
    """A prefill chunk ended at this grid line; or, where arithmetic is row-invariant and nothing
    depends on who wrote the rows, any forward at any line."""

    END = "end"
    """A generation stopped here."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A copy of the sections at `line`, immutable from the moment it exists."""

    line: int
    kind: AnchorKind
    handle: SectionsHandle
