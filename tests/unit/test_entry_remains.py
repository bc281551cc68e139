"""What can still be resumed of an entry that has lost objects."""

import pytest

from anchorline.domain.anchor import AnchorKind
from anchorline.domain.end import End
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.entry_remains import cut_back, without
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry


def an_entry() -> StoredEntry:
    """Blocks up to 8, 16, 24 and 27; anchors at 8, at 24, and at its end, 27."""
    blocks = [StoredBlock(ObjectName(f"b{end}"), key(end), end, 1) for end in (8, 16, 24, 27)]
    kinds = {8: AnchorKind.GRID, 24: AnchorKind.GRID, 27: AnchorKind.END}
    anchors = [
        StoredAnchor(ObjectName(f"a{line}"), key(line), line, kind, 1)
        for line, kind in kinds.items()
    ]
    return StoredEntry(
        id=EntryId("one"),
        role=Role.CONVERSATION,
        fingerprint=fingerprint_of({}),
        blocks=tuple(blocks),
        anchors=tuple(anchors),
        taint=20,
        end=End(27),
        session=None,
        hits=0,
        created_s=0.0,
        last_used_s=0.0,
    )


def key(line: int) -> PrefixKey:
    return PrefixKey(bytes([line]))


@pytest.mark.parametrize(
    ("lost", "lines", "rows"),
    [
        ("a27", [8, 24], 24),
        ("b27", [8, 24], 24),
        ("b24", [8], 8),
        ("b16", [8], 8),
        ("a24", [8, 27], 27),
        ("a8", [24, 27], 27),
    ],
)
def test_what_does_not_stand_on_the_lost_object_stays(
    lost: str, lines: list[int], rows: int
) -> None:
    rest = without(an_entry(), ObjectName(lost))

    assert rest is not None
    assert [anchor.line for anchor in rest.anchors] == lines
    assert rest.blocks[-1].end == rows
    assert (rest.end is not None) == (27 in lines)


def test_without_its_first_block_nothing_is_left() -> None:
    assert without(an_entry(), ObjectName("b8")) is None


def test_an_entry_without_anchors_is_none() -> None:
    assert cut_back(an_entry(), []) is None


def test_an_entry_that_keeps_all_its_anchors_is_itself() -> None:
    assert cut_back(an_entry(), an_entry().anchors) == an_entry()
