"""Bringing a conversation from memory into a slot: all of it, or nothing of it."""

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.entry_write import Progress
from anchorline.application.ram_entry import RamEntry
from anchorline.application.ram_restore import RamRestore
from anchorline.domain.anchor import Anchor, AnchorKind
from anchorline.domain.namespace import Namespace
from anchorline.domain.offers import Offer
from contract.readings import differences
from support.builders import a_prompt, random_ids
from support.remembering import GRID, Remembering

LONG = 6 * GRID + 3


def ids(seed: int, count: int) -> list[int]:
    return random_ids(count, seed=seed).tolist()


def restore(
    memory: Remembering, entry: RamEntry, *, slot: int = 0, anchor: Anchor | None = None
) -> RamRestore:
    return RamRestore(
        memory.tier,
        entry,
        anchor or entry.state.anchors[-1],
        slot,
        memory.engine.slots[slot],
        memory.residents[slot],
    )


def run(restoring: RamRestore) -> Progress | None:
    """To its end, one block a step."""
    progress = restoring.step()
    while progress is Progress.WORKED:
        progress = restoring.step()
    restoring.close()
    return progress


def goes_on(memory: Remembering, slot: int, prompt: list[int]) -> Offer:
    """Where a prompt goes on in a slot."""
    resident = memory.residents[slot]
    offers = resident.survey(a_prompt(prompt), Namespace()).offers
    offer = max(offers, key=lambda one: one.line)
    resident.begin(a_prompt(prompt), Namespace(), offer)
    return offer


@pytest.mark.parametrize("parts", list(Parts))
@pytest.mark.parametrize("slot", [0, 1])
def test_what_comes_back_is_what_left_bit_for_bit(slot: int, parts: Parts) -> None:
    memory = Remembering(slots=2, parts=parts)
    memory.reads(0, ids(1, LONG), answer=[1, 2, 3])
    expected = memory.state(0)
    entry = memory.keeps(0)
    memory.reads(0, ids(2, LONG))
    memory.reads(1, ids(3, LONG))

    progress = run(restore(memory, entry, slot=slot))
    offer = goes_on(memory, slot, [*ids(1, LONG), 1, 2, 3, 4])

    assert (progress, offer.line) == (Progress.DONE, LONG + 3)
    assert differences(memory.state(slot), expected) == []


def test_it_goes_on_from_any_of_its_anchors() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG), answer=[1, 2, 3])
    entry = memory.keeps(0)

    for anchor in entry.state.anchors:
        memory.reads(0, ids(2, LONG + 2 * GRID))
        progress = run(restore(memory, entry, anchor=anchor))
        offer = goes_on(memory, 0, [*entry.ids[: anchor.line].tolist(), 96, 95])

        assert (progress, offer.line) == (Progress.DONE, anchor.line)


def test_an_end_that_is_not_the_newest_is_gone_on_from() -> None:
    """Exact arithmetic keeps several ends, and any arithmetic the last but one."""
    for row_invariant in (False, True):
        memory = Remembering(row_invariant=row_invariant)
        first = [*ids(1, LONG), 1, 2, 3]
        memory.reads(0, ids(1, LONG), answer=[1, 2, 3])
        memory.reads(0, [*first, *ids(2, GRID)], answer=[4, 5])
        entry = memory.keeps(0)
        memory.reads(0, ids(3, 2 * LONG))
        [end] = [one for one in entry.state.anchors if one.line == len(first)]

        progress = run(restore(memory, entry, anchor=end))
        offer = goes_on(memory, 0, [*first, 96])

        assert end.kind is AnchorKind.END
        assert (progress, offer.line) == (Progress.DONE, len(first))


def test_both_ends_stand_in_the_slot_again() -> None:
    memory = Remembering()
    first = [*ids(1, LONG), 1, 2, 3]
    memory.reads(0, ids(1, LONG), answer=[1, 2, 3])
    memory.reads(0, [*first, *ids(2, GRID)], answer=[4, 5, 6])
    entry = memory.keeps(0)
    memory.reads(0, ids(3, 2 * LONG))

    run(restore(memory, entry))

    resident = memory.residents[0]
    ends = {line for line in resident.lines if not memory.engine.profile.grid.has(line)}
    assert ends == {len(first), len(first) + GRID + 3}
    assert resident.end == entry.state.end


def test_one_block_moves_a_step_and_none_that_stands_there() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG))
    entry = memory.keeps(0)
    memory.reads(0, ids(2, 2 * GRID + 1))

    restoring = restore(memory, entry)
    run(restoring)

    assert restoring.blocks_moved == 3
    assert restoring.bytes_moved == 3 * GRID * memory.row_bytes


def test_the_copies_stay_and_the_slot_writes_on_its_own_rows() -> None:
    """A lend is no gift: what the borrower writes changes nothing of what is kept."""
    memory = Remembering()
    memory.reads(0, ids(1, LONG), answer=[1, 2])
    expected = memory.state(0)
    entry = memory.keeps(0)
    memory.reads(0, ids(2, LONG))
    held = [*ids(1, LONG), 1, 2]

    for seed in (4, 5, 6):
        assert run(restore(memory, entry)) is Progress.DONE
        memory.reads(0, [*held, *ids(seed, 2 * GRID)], answer=[7])
    run(restore(memory, entry))
    goes_on(memory, 0, [*held, 3])

    assert differences(memory.state(0), expected) == []
    assert memory.tier.has(entry)
    memory.assert_counted()


def test_one_entry_comes_into_two_slots_at_once() -> None:
    memory = Remembering(slots=2)
    memory.reads(0, ids(1, LONG), answer=[1, 2])
    expected = memory.state(0)
    entry = memory.keeps(0)
    memory.reads(0, ids(2, LONG))
    both = [restore(memory, entry, slot=slot) for slot in (0, 1)]

    while Progress.DONE not in [one.step() for one in both]:
        pass
    for slot, one in enumerate(both):
        one.close()
        goes_on(memory, slot, [*ids(1, LONG), 1, 2, 3])

    assert [differences(memory.state(slot), expected) for slot in (0, 1)] == [[], []]
    assert entry.lent == 0


def test_it_stays_until_it_is_closed_once() -> None:
    memory = Remembering()
    entry = memory.parked(ids(1, LONG))
    restoring = restore(memory, entry)
    memory.tier.clear()
    held = memory.tier.has(entry)

    restoring.close()
    restoring.close()

    assert (held, entry.lent) == (True, 0)


@pytest.mark.parametrize("steps", range(1, 8))
def test_what_is_given_up_half_way_is_as_good_as_before(steps: int) -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG), answer=[1, 2])
    expected = memory.state(0)
    entry = memory.keeps(0)
    memory.reads(0, ids(2, LONG))
    half = restore(memory, entry)
    for _ in range(steps):
        half.step()
    half.close()

    memory.reads(0, ids(3, LONG))
    run(restore(memory, entry))
    goes_on(memory, 0, [*ids(1, LONG), 1, 2, 3])

    assert differences(memory.state(0), expected) == []


def test_a_slot_whose_forward_failed_takes_it() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG), answer=[1, 2])
    expected = memory.state(0)
    entry = memory.keeps(0)
    memory.leaves(0)
    memory.engine.slots[0].spoil()
    memory.tier.blocks.forget(0)

    assert run(restore(memory, entry)) is Progress.DONE

    goes_on(memory, 0, [*ids(1, LONG), 1, 2, 3])
    assert differences(memory.state(0), expected) == []


def test_rows_that_are_lost_on_the_way_end_it_and_leave_the_slot_empty() -> None:
    memory = Remembering(slots=2)
    memory.reads(1, ids(1, LONG))
    entry = memory.keeps(1)
    restoring = restore(memory, entry)
    restoring.step()
    memory.engine.slots[1].spoil()
    memory.tier.blocks.forget(1)

    assert run(restoring) is None

    assert memory.residents[0].length == 0
    assert (entry.line, entry.lent) == (GRID, 0)
    memory.residents[1].forget()
    memory.assert_counted()


def test_where_there_is_room_for_no_copy_it_comes_from_slot_to_slot() -> None:
    memory = Remembering(slots=2)
    memory.reads(1, ids(1, LONG), answer=[1, 2])
    expected = memory.state(1)
    entry = memory.keeps(1)
    taken = memory.tier.nbytes
    memory.tier.limit = lambda held: taken

    assert run(restore(memory, entry)) is Progress.DONE

    goes_on(memory, 0, [*ids(1, LONG), 1, 2, 3])
    assert differences(memory.state(0), expected) == []
    assert memory.engine.copies.counts().rows == 0
    memory.assert_counted()
