"""The rule of who leaves first: it excuses who was being read just then, and nobody else."""

import pytest

from anchorline.domain.entry import EntryId, Role
from anchorline.simulation.box import Box
from anchorline.simulation.tier_rules import check_order
from anchorline.simulation.tier_watch import TierState
from anchorline.simulation.violation import Violation


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def short_and_long(box: Box) -> tuple[EntryId, EntryId]:
    """A stored conversation of little worth, and a younger one of more."""
    for prompt in (ids(0, 20), ids(31, 150)):
        box.server.ask(prompt)
        box.flush()
    short, long = sorted(box.tier.entries(), key=lambda entry: entry.anchors[-1].line)
    return short.id, long.id


def make_room_for_one(box: Box) -> tuple[TierState, TierState]:
    """What a tier holds before and after one conversation leaves for room."""
    before = TierState.of(box.tier)
    box.tier.make_room(Role.CONVERSATION, box.shares.pool - box.tier.space().used + 1)
    after = TierState.of(box.tier)
    assert before is not None
    assert after is not None
    assert len(after.entries) == 1
    return before, after


def test_who_is_worth_more_may_leave_while_the_other_one_is_read() -> None:
    box = Box()
    short, long = short_and_long(box)
    box.tier.lend(short)

    before, after = make_room_for_one(box)
    box.tier.unlend(short)

    assert set(after.entries) == {short}
    assert box.tier.read_while_left == {long: {short}}
    check_order(before, after, box.tier)


def test_who_is_worth_more_may_not_leave_where_the_other_one_is_read_at_another_time() -> None:
    box = Box()
    short, long = short_and_long(box)
    box.tier.lend(short)
    before, after = make_room_for_one(box)
    box.tier.read_while_left[long] = frozenset()

    with pytest.raises(Violation, match="is worth less"):
        check_order(before, after, box.tier)


def test_whose_place_was_taken_by_its_next_turn_did_not_leave_for_room() -> None:
    box = Box()
    short, long = short_and_long(box)
    box.tier.lend(short)
    before, after = make_room_for_one(box)
    box.tier.read_while_left[long] = frozenset()
    box.tier.heirs.took(EntryId("its next turn"), [long])

    check_order(before, after, box.tier)
