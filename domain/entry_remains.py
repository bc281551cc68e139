"""What is left of an entry once some of its objects cannot be used."""

from collections.abc import Sequence
from dataclasses import replace

from .anchor import AnchorKind
from .stored_entry import ObjectName, StoredAnchor, StoredEntry


def without(entry: StoredEntry, name: ObjectName) -> StoredEntry | None:
    """The entry without an object and what stands on it; None if nothing is left to resume."""
    bad = next((block for block in entry.blocks if block.name == name), None)
    start = max((block.end for block in entry.blocks if bad and block.end < bad.end), default=0)
    top = start if bad else max((block.end for block in entry.blocks), default=0)
    return cut_back(
        entry, [anchor for anchor in entry.anchors if anchor.name != name and anchor.line <= top]
    )


def cut_back(entry: StoredEntry, anchors: Sequence[StoredAnchor]) -> StoredEntry | None:
    """The entry with some of its anchors, ascending, and the blocks below them; None if with none.

    The rows below each of them must be there.
    """
    if not anchors:
        return None
    top = anchors[-1].line
    ends = any(anchor.kind is AnchorKind.END for anchor in anchors)
    return replace(
        entry,
        blocks=tuple(block for block in entry.blocks if block.end <= top),
        anchors=tuple(anchors),
        end=entry.end if ends else None,
    )
