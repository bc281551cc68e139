"""Entries on a medium: which objects hold the state of one token sequence."""

from dataclasses import dataclass
from typing import NewType

from .anchor import AnchorKind
from .end import End
from .entry import EntryId, Role
from .fingerprint import Fingerprint
from .prefix_key import PrefixKey

ObjectName = NewType("ObjectName", str)
"""A relative path: 64 hexadecimal digits, and 1 to 5 parts behind them, joined by `/`.

Each part has 1 to 160 lower-case letters, digits, `-`, `.` and `_`, starts with a letter or a
digit, and holds no `.tmp-`. So nothing that somebody else keeps in the same place is ever taken
for an object.
"""


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A row block that an entry needs.

    Attributes:
        key: the prefix key at its last line.
        end: that line; the block reaches down to the one before it in its entry, or to 0.
        nbytes: on the medium.
    """

    name: ObjectName
    key: PrefixKey
    end: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class StoredAnchor:
    """An anchor that an entry holds.

    Attributes:
        key: the prefix key at its line.
        nbytes: on the medium.
    """

    name: ObjectName
    key: PrefixKey
    line: int
    kind: AnchorKind
    nbytes: int


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """State of one token sequence on the medium.

    Attributes:
        blocks: ascending and without gaps from row 0.
        anchors: ascending; none above the last block.
        taint: rows from here on were not written by a cold grid prefill.
        session: the caller's hint.
        created_s: on the age clock: seconds that a jump of the wall clock cannot turn back.
        last_used_s: on the age clock.
    """

    id: EntryId
    role: Role
    fingerprint: Fingerprint
    blocks: tuple[StoredBlock, ...]
    anchors: tuple[StoredAnchor, ...]
    taint: int
    end: End | None
    session: str | None
    hits: int
    created_s: float
    last_used_s: float
