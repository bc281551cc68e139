"""What becomes of older entries when one of longer or equal tokens is committed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from .anchor import AnchorKind
from .entry import Role
from .prompt_chain import PromptChain
from .stored_entry import StoredEntry

ANCHORS_SAVED: Final = 4
"""The newest grid anchors that a conversation keeps on the medium, for an edit after a restart."""


def continues(entry: StoredEntry, older: StoredEntry, chain: PromptChain) -> bool:
    """Whether a conversation begins with all of an older one's tokens, rows and all.

    Args:
        chain: of the tokens that were to be written; the entry may have become shorter.
    """
    if older.role is not Role.CONVERSATION or entry.role is not Role.CONVERSATION:
        return False
    if not older.blocks or not entry.blocks:
        return False
    last = older.blocks[-1]
    # What was to be written above the entry's last anchor does not count: it cannot be resumed.
    if last.end > entry.blocks[-1].end:
        return False
    # The short block at an older end is never part of the newer chain: its key tells.
    own = {block.name for block in entry.blocks}
    whole = all(block.name in own for block in older.blocks[:-1])
    return whole and chain.key(last.end) == last.key


def with_anchors_of(entry: StoredEntry, older: Sequence[StoredEntry]) -> StoredEntry:
    """The entry with the newest grid anchors that it and older ones have together.

    And with the end of one of the same tokens, where its own is not kept any more.
    """
    rows = {block.end: block.name for block in entry.blocks}
    anchors = {(anchor.line, anchor.kind): anchor for anchor in entry.anchors}
    end = entry.end
    for one in older:
        theirs = {block.end: block.name for block in one.blocks}
        for anchor in one.anchors:
            # A block's name tells all rows below it, so equal names at a line are equal rows.
            if anchor.line not in rows or rows[anchor.line] != theirs.get(anchor.line):
                continue
            if (one.taint >= anchor.line) != (entry.taint >= anchor.line):
                continue  # its gate would be told wrong: equal rows do not make equal sections
            if anchor.kind is AnchorKind.END:
                if end is not None or one.id != entry.id:
                    continue
                end = one.end
            anchors.setdefault((anchor.line, anchor.kind), anchor)
    grid = sorted(
        (anchor for anchor in anchors.values() if anchor.kind is AnchorKind.GRID),
        key=lambda anchor: anchor.line,
    )
    ends = [anchor for anchor in anchors.values() if anchor.kind is AnchorKind.END]
    kept = sorted([*grid[-ANCHORS_SAVED:], *ends], key=lambda anchor: anchor.line)
    return replace(entry, anchors=tuple(kept), end=end)
