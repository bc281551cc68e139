"""Seals: what is taken of rows and of anchors, when, and how long it stays."""

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.application.held_sections import HeldSections
from anchorline.application.kept_blocks import KeptBlock
from anchorline.application.kept_seals import KeptSeals
from anchorline.application.kept_state import KeptState
from anchorline.application.live_verify_seals import Seals, unsealed
from anchorline.domain.anchor import Anchor, AnchorKind
from anchorline.domain.grid import Grid, Span
from anchorline.domain.namespace import Namespace
from contract.readings import prefill_to
from support.builders import random_ids

GRID = 8


class Sealed:
    """A slot of 40 rows, whose state is sealed."""

    def __init__(self) -> None:
        self.engine = CheckableEngine(window=64, grid=GRID)
        self.state = self.engine.slots[0]
        section_bytes = self.engine.profile.layout.section_bytes
        self.held = HeldSections(self.engine.copies, section_bytes)
        self.seals = Seals(self.state, Grid(GRID), self.held)
        prefill_to(self.engine, 0, random_ids(64), 40)

    @property
    def spans(self) -> list[tuple[int, int]]:
        return [(span.start, span.end) for span, _ in self.seals.rows]

    def keep(self, *, taint: int, line: int) -> list[KeptBlock]:
        """The blocks of an entry that is kept of it."""
        ids = random_ids(64)[:line]
        state = KeptState(ids, ids, Namespace(), taint, (), None, ())
        blocks: list[KeptBlock] = []
        for span in Grid(GRID).chunks(0, line):
            rows = ids[span.start : span.end]
            below = blocks[-1] if blocks else None
            blocks.append(KeptBlock(span, rows, rows, below, span.end <= taint, places={0}))
        KeptSeals(self.engine, self.held).keep(state, blocks, self.seals)
        return blocks

    def anchor(self, kind: AnchorKind = AnchorKind.GRID) -> Anchor:
        anchor = Anchor(40, kind, self.held.capture(self.state))
        self.seals.seal_sections(anchor)
        return anchor


@pytest.mark.parametrize(
    ("sealed", "left"),
    [
        ([], [(5, 8), (8, 16), (16, 21)]),
        ([(5, 8)], [(8, 16), (16, 21)]),
        ([(8, 16)], [(5, 8), (16, 21)]),
        ([(16, 24)], [(5, 8), (8, 16)]),
        ([(0, 8), (8, 11), (11, 16), (16, 24)], []),
        ([(24, 32)], [(5, 8), (8, 16), (16, 21)]),
        ([(8, 10), (12, 14)], [(5, 8), (10, 12), (14, 16), (16, 21)]),
    ],
)
def test_what_is_left_to_be_sealed_is_what_no_seal_covers(
    sealed: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    spans = unsealed(Grid(GRID), Span(5, 21), [Span(*span) for span in sealed])

    assert [(span.start, span.end) for span in spans] == left


def test_rows_below_those_that_are_sealed_are_sealed_as_well() -> None:
    # A stored state whose taint line lies lower than that of the rows it was found to share.
    one = Sealed()
    one.seals.seal_rows(32, 40)

    one.seals.seal_rows(20, 40)

    assert one.spans == [(20, 24), (24, 32), (32, 40)]


def test_rows_are_sealed_as_they_are_the_first_time() -> None:
    one = Sealed()
    one.seals.seal_rows(20, 36)
    before = dict(one.seals.rows)
    one.state.resume_at(0)
    prefill_to(one.engine, 0, random_ids(64, seed=1), 40)

    one.seals.seal_rows(20, 40)

    assert one.spans == [(20, 24), (24, 32), (32, 36), (36, 40)]
    assert {span: sums for span, sums in one.seals.rows if span in before} == before


def test_seals_that_rows_had_elsewhere_are_theirs() -> None:
    one, other = Sealed(), Sealed()
    one.seals.seal_rows(20, 30)

    other.seals.take_rows(one.seals.rows)
    other.seals.seal_rows(20, 40)

    assert other.spans == [(20, 24), (24, 30), (30, 32), (32, 40)]
    assert other.seals.rows[:2] == one.seals.rows


def test_above_a_cut_nothing_is_sealed() -> None:
    one = Sealed()
    one.seals.seal_rows(20, 40)

    one.seals.cut(24)

    assert one.spans == [(20, 24)]


def test_the_seal_of_an_anchor_is_that_of_its_copy_line_and_kind() -> None:
    one = Sealed()
    anchor = one.anchor()

    assert one.seals.of_anchor(anchor) == one.state.section_sums()
    assert one.seals.of_anchor(Anchor(32, anchor.kind, anchor.handle)) is None
    assert one.seals.of_anchor(Anchor(40, AnchorKind.END, anchor.handle)) is None


def test_the_seal_of_an_anchor_stays_as_long_as_anybody_holds_its_copy() -> None:
    one = Sealed()
    anchor = one.anchor()
    one.held.keep(anchor.handle)

    one.held.release(anchor.handle)
    assert one.seals.of_anchor(anchor) is not None

    one.held.give_up(anchor.handle)
    assert one.seals.of_anchor(anchor) is None


def test_a_copy_that_is_written_over_has_no_seal() -> None:
    one = Sealed()
    anchor = one.anchor()

    assert one.held.capture(one.state, anchor.handle) == anchor.handle

    assert one.seals.of_anchor(anchor) is None


# --- of what memory keeps -------------------------------------------------------------------------


def sealed_spans(blocks: list[KeptBlock]) -> list[tuple[int, int]]:
    return [(span.start, span.end) for block in blocks for span, _ in block.seals]


def test_an_entry_has_the_seals_of_its_slot() -> None:
    one = Sealed()
    for end in (22, 23, 40):
        one.seals.seal_rows(20, end)

    blocks = one.keep(taint=20, line=40)

    assert sealed_spans(blocks) == one.spans == [(20, 22), (22, 23), (23, 24), (24, 32), (32, 40)]
    assert [sums for block in blocks for _, sums in block.seals] == [
        sums for _, sums in one.seals.rows
    ]


def test_what_a_slot_has_not_sealed_is_sealed_when_it_is_kept() -> None:
    one = Sealed()
    one.seals.seal_rows(24, 32)

    blocks = one.keep(taint=20, line=40)

    assert sealed_spans(blocks) == [(20, 24), (24, 32), (32, 40)]
    assert blocks[2].seals[0][1] == one.state.row_sums(Span(20, 24))


def test_an_entry_that_ends_inside_a_block_has_no_seal_of_the_rows_above() -> None:
    one = Sealed()
    one.seals.seal_rows(20, 36)
    one.seals.seal_rows(36, 40)

    assert sealed_spans(one.keep(taint=20, line=36)) == [(20, 24), (24, 32), (32, 36)]


def test_rows_whose_seals_reach_above_an_entrys_end_are_sealed_up_to_it() -> None:
    one = Sealed()
    one.seals.seal_rows(32, 40)

    blocks = one.keep(taint=32, line=36)

    assert blocks[-1].seals == ((Span(32, 36), one.state.row_sums(Span(32, 36))),)


def test_the_first_seal_of_rows_stays() -> None:
    one = Sealed()
    one.seals.seal_rows(36, 40)
    blocks = one.keep(taint=36, line=40)
    first = one.state.row_sums(Span(36, 40))
    one.state.resume_at(0)
    prefill_to(one.engine, 0, random_ids(64, seed=1), 40)
    later = Seals(one.state, Grid(GRID), one.held)
    later.seal_rows(32, 36)
    later.seal_rows(36, 40)
    assert first not in [sums for _, sums in later.rows]

    state = KeptState(random_ids(40), random_ids(40), Namespace(), 32, (), None, ())
    KeptSeals(one.engine, one.held).keep(state, blocks, later)

    assert blocks[-1].seals == (later.rows[0], (Span(36, 40), first))
