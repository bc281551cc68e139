"""The one record of kept state: what it holds, why it is kept, and for whom.

Every tier keeps the same two things, rows and anchors, for different reasons. The reason is a
role on the record, not a store of its own.
"""

import enum
from dataclasses import dataclass
from typing import NewType

from .anchor import Anchor
from .end import End
from .namespace import Namespace
from .taint_line import TaintLine
from .tokens import TokenIds

EntryId = NewType("EntryId", str)


class Role(enum.Enum):
    """Why an entry is kept."""

    RESIDENT = "resident"
    """A slot's own rows, in place: the next turn of the conversation in it."""

    STASH = "stash"
    """A conversation beside whose upper rows a short request runs: comes back at once."""

    PARK = "park"
    """A whole conversation that another one replaced: its next turn, whenever that comes."""

    PIN = "pin"
    """The head of a conversation that could not be kept whole: the turn after a compaction."""

    SNAPSHOT = "snapshot"
    """A short conversation, or a short prefix that prompts share: a chat's next turn."""

    HEAD = "head"
    """A prefix that several sessions read cold: every new session's start, after a restart too."""

    CONVERSATION = "conversation"
    """A live conversation with its end: its next turn, after eviction or a restart."""


class Tier(enum.Enum):
    """Where state stands, from the nearest."""

    SLOT = "slot"
    RAM = "ram"
    DISK = "disk"
    REMOTE = "remote"
    NONE = "none"

    @property
    def distance(self) -> int:
        return list(Tier).index(self)


class Source(enum.Enum):
    """What a request resumed from, as responses name it."""

    RESIDENT = "resident"
    END = "end"
    STASH = "stash"
    PARK = "park"
    PIN = "pin"
    SNAPSHOT = "snapshot"
    HEAD = "head"
    CONVERSATION = "conversation"
    RESPONSE = "response"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Entry:
    """State of one token sequence, kept under one role.

    Attributes:
        ids: what the model read; shape (tokens,).
        key_ids: what caches compare; same shape.
        anchors: ascending by line.
        taint: see `taint_line`.
        end: the end of the last generation, if its state is kept.
        session: the caller's hint, never an identity.
        hits: how often a request resumed from it.
        created_s: wall-clock seconds.
        last_used_s: wall-clock seconds.
    """

    id: EntryId
    role: Role
    tier: Tier
    namespace: Namespace
    ids: TokenIds
    key_ids: TokenIds
    anchors: tuple[Anchor, ...]
    taint: TaintLine
    end: End | None
    session: str | None
    hits: int
    created_s: float
    last_used_s: float
