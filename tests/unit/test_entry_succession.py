"""What a newer entry takes over of older ones, and which of these may go."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from anchorline.domain.anchor import AnchorKind
from anchorline.domain.end import End
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.entry_succession import ANCHORS_SAVED, continues, with_anchors_of
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.grid import Grid
from anchorline.domain.namespace import Namespace
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.stored_entry import ObjectName, StoredAnchor, StoredBlock, StoredEntry
from anchorline.domain.tokens import token_ids

GRID = Grid(8)


def a_chain(tokens: int) -> PromptChain:
    return PromptChain(token_ids(range(tokens)), Namespace(), GRID)


def an_entry(
    tokens: int, anchors: Iterable[int], *, history: str = "one", taint: int = 0, ends: bool = False
) -> StoredEntry:
    """A conversation over the same tokens; those of another history have rows of their own."""
    chain = a_chain(tokens)
    spans = list(GRID.chunks(0, tokens))
    return StoredEntry(
        id=EntryId(f"{tokens}"),
        role=Role.CONVERSATION,
        fingerprint=fingerprint_of({}),
        blocks=tuple(
            StoredBlock(ObjectName(f"b{span.end}-{history}"), chain.key(span.end), span.end, 1)
            for span in spans
        ),
        anchors=tuple(
            StoredAnchor(
                ObjectName(f"a{line}-{history}"),
                chain.key(line),
                line,
                AnchorKind.END if ends and line == tokens else AnchorKind.GRID,
                1,
            )
            for line in anchors
        ),
        taint=taint,
        end=End(tokens) if ends else None,
        session=None,
        hits=0,
        created_s=0.0,
        last_used_s=0.0,
    )


def lines(entry: StoredEntry) -> list[int]:
    return [anchor.line for anchor in entry.anchors]


def test_a_conversation_continues_one_whose_tokens_it_begins_with() -> None:
    longer, older = an_entry(30, [24]), an_entry(19, [16, 19], ends=True)

    assert continues(longer, older, a_chain(30))
    assert not continues(older, longer, a_chain(19))


def test_an_entry_that_became_shorter_does_not_continue_one_that_reaches_further() -> None:
    cut_short, older = an_entry(16, [16]), an_entry(19, [16, 19], ends=True)

    assert not continues(cut_short, older, a_chain(30))


def test_rows_of_another_history_are_not_continued() -> None:
    assert not continues(an_entry(30, [24]), an_entry(19, [16], history="two"), a_chain(30))


@pytest.mark.parametrize("role", list(Role))
def test_only_conversations_continue_conversations(role: Role) -> None:
    longer, older = an_entry(30, [24]), replace(an_entry(19, [16]), role=role)

    assert continues(longer, older, a_chain(30)) == (role is Role.CONVERSATION)


def test_the_newest_grid_anchors_of_both_stay() -> None:
    entry = with_anchors_of(an_entry(70, [64]), [an_entry(60, [16, 24, 32, 40, 48])])

    assert lines(entry) == [32, 40, 48, 64]
    assert len(entry.anchors) == ANCHORS_SAVED


def test_an_anchor_over_other_rows_is_not_taken() -> None:
    entry = with_anchors_of(an_entry(70, [64]), [an_entry(60, [48], history="two")])

    assert lines(entry) == [64]


@pytest.mark.parametrize(("own", "theirs"), [(0, 48), (70, 40)])
def test_an_anchor_whose_gate_would_be_told_wrong_is_not_taken(own: int, theirs: int) -> None:
    entry = with_anchors_of(an_entry(70, [64], taint=own), [an_entry(60, [48], taint=theirs)])

    assert lines(entry) == [64]


def test_the_end_of_the_same_tokens_stays_where_the_new_one_has_none() -> None:
    older = an_entry(19, [16, 19], ends=True)
    entry = with_anchors_of(an_entry(19, [16]), [older])

    assert (lines(entry), entry.end) == ([16, 19], older.end)


def test_the_end_of_other_tokens_goes() -> None:
    entry = with_anchors_of(an_entry(30, [24]), [an_entry(16, [8, 16], ends=True)])

    assert (lines(entry), entry.end) == ([8, 24], None)
