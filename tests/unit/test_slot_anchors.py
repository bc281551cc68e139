"""The anchors of a slot, and what is known of each: one goes with the other."""

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.application.held_sections import HeldSections
from anchorline.application.slot_anchors import SlotAnchors
from anchorline.domain.anchor_budget import AnchorBudget


def anchors() -> SlotAnchors:
    engine = CheckableEngine(window=256, grid=8)
    sections = HeldSections(engine.copies, engine.profile.layout.section_bytes)
    budget = AnchorBudget(bytes_max=1 << 20)
    return SlotAnchors(engine.slots[0], engine.profile, budget, sections)


def lines(standing: SlotAnchors) -> list[int]:
    return [anchor.line for anchor in standing.standing]


def test_what_an_import_gives_up_is_not_asked_to_make_room_later() -> None:
    slot = anchors()
    slot.take(8)
    slot.take_extra(13, boundary=True)
    slot.cut(10, 20)  # as `cut_for_import` gives up what would be another history's

    slot.take_extra(21, boundary=True)
    slot.take_extra(29, boundary=True)

    assert lines(slot) == [8, 29]


def test_a_cut_up_to_a_line_leaves_what_stands_above_it() -> None:
    slot = anchors()
    for line in (8, 16, 24, 32):
        slot.take(line)

    slot.cut(8, 24)

    assert lines(slot) == [8, 32]
