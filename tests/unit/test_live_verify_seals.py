"""Seals: what is taken of rows and of anchors, when, and how long it stays."""

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.application.held_sections import HeldSections
from anchorline.application.live_verify_seals import Seals, unsealed
from anchorline.domain.anchor import Anchor, AnchorKind
from anchorline.domain.grid import Grid, Span
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
