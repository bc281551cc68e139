"""The tier in memory: what it keeps, what it finds, and what leaves it first."""

import numpy as np
import pytest

from anchorline.application.ram_entry import RamEntry
from anchorline.domain import prompt_chain
from anchorline.domain.anchor import AnchorKind
from anchorline.domain.entry import Role, Source, Tier
from anchorline.domain.grid import Span
from anchorline.domain.namespace import Namespace
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.ram_retention import Retention
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import TokenIds
from support.builders import random_ids
from support.remembering import GRID, WINDOW, Remembering, with_other_media


def ids(seed: int, count: int) -> list[int]:
    return random_ids(count, seed=seed).tolist()


def one_key(*what: object) -> PrefixKey:
    """The same for everything."""
    return PrefixKey(b"0")


def key_of_the_line(key: PrefixKey, key_ids: TokenIds) -> PrefixKey:
    """The same for all prompts."""
    return PrefixKey(bytes([(key[0] + (len(key_ids) > 0)) % 256]))


LONG = 10 * GRID + 3


# --- keeping ------------------------------------------------------------------------------------


def test_what_is_kept_in_its_slot_takes_its_anchors_alone() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG))

    entry = memory.keeps(0)

    assert memory.tier.nbytes == len(entry.state.anchors) * memory.section_bytes
    assert memory.tier.bytes_all(entry) == memory.tier.nbytes + LONG * memory.row_bytes
    memory.assert_counted()


def test_what_has_left_its_slot_takes_all_of_it() -> None:
    memory = Remembering()

    entry = memory.parked(ids(1, LONG))

    assert memory.tier.nbytes == memory.tier.bytes_all(entry) == memory.tier.bytes_alone(entry)
    memory.assert_counted()


def test_an_entry_is_what_was_read_and_written_up_to_its_line() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG), answer=[1, 2, 3])

    entry = memory.keeps(0, role=Role.PARK, session="one")

    assert entry.ids.tolist() == [*ids(1, LONG), 1, 2, 3]
    assert (entry.line, entry.state.taint) == (LONG + 3, LONG)
    assert entry.state.end is not None
    assert entry.state.end.regions == (Span(LONG, LONG + 3),)
    assert [block.span for block in entry.blocks] == [
        *memory.engine.profile.grid.chunks(0, LONG + 3)
    ]


def test_a_head_alone_can_be_kept() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG), answer=[1, 2, 3])

    entry = memory.keeps(0, role=Role.PIN, line=6 * GRID)

    assert (entry.line, entry.state.taint, entry.state.end) == (6 * GRID, 6 * GRID, None)
    assert [anchor.line for anchor in entry.state.anchors][-1] == 6 * GRID
    assert len(entry.blocks) == 6


def test_conversations_share_the_rows_of_a_prefix_that_each_has_read_cold() -> None:
    memory = Remembering(slots=2)
    head = ids(0, 5 * GRID)

    one = memory.parked([*head, *ids(1, 3 * GRID)])
    other = memory.parked([*head, *ids(2, 3 * GRID)], slot=1)

    assert one.blocks[:5] == other.blocks[:5]
    assert all(block.needed == 2 for block in one.blocks[:5])
    assert memory.engine.copies.counts().rows == 5 + 3 + 3
    memory.assert_counted()


def test_rows_that_decode_wrote_are_shared_with_no_other_conversation() -> None:
    memory = Remembering(slots=2)
    question, answer = ids(0, 2 * GRID), ids(1, 2 * GRID)
    memory.reads(0, question, answer=answer)
    one = memory.keeps(0)
    memory.reads(1, [*question, *answer])
    other = memory.keeps(1)

    assert one.blocks[:2] == other.blocks[:2]
    assert not set(one.blocks[2:]) & set(other.blocks[2:])


def test_namespaces_share_no_row_though_all_keys_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_chain, "root_key", one_key)
    memory = Remembering(slots=2)

    one = memory.parked(ids(0, LONG), salt="one")
    other = memory.parked(ids(0, LONG), slot=1, salt="two")

    assert not set(one.blocks) & set(other.blocks)
    assert memory.ways([*ids(0, LONG), 1], salt="three") == []


def test_rows_on_top_of_others_are_not_shared_though_all_keys_collide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal tokens in one block say nothing of those below it."""
    monkeypatch.setattr(prompt_chain, "extend", key_of_the_line)
    memory = Remembering(slots=2)
    tail = ids(0, 2 * GRID)

    one = memory.parked([*ids(1, GRID), *tail])
    other = memory.parked([*ids(2, GRID), *tail], slot=1)

    assert not set(one.blocks) & set(other.blocks)


def test_the_newer_version_of_a_conversation_takes_the_place_of_the_older_one() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG), answer=[1, 2])
    older = memory.keeps(0, session="one")
    older.hits = 3
    memory.reads(0, [*ids(1, LONG), 1, 2, *ids(2, GRID)], answer=[5])

    newer = memory.keeps(0, session="one")

    assert memory.tier.entries == (newer,)
    assert (newer.hits, memory.tier.counts.superseded) == (3, 1)
    memory.leaves(0)
    memory.assert_counted()


@pytest.mark.parametrize("why", ["another session", "it is being read", "a branch"])
def test_what_the_newer_one_cannot_do_stays(why: str) -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG), answer=[1, 2])
    older = memory.keeps(0, session="one")
    older.lent += why == "it is being read"
    cut = 3 * GRID if why == "a branch" else LONG + 2
    memory.reads(0, [*[*ids(1, LONG), 1, 2][:cut], *ids(2, LONG)])

    memory.keeps(0, session="two" if why == "another session" else "one")

    assert memory.tier.has(older)


def test_a_dropped_entry_leaves_nothing_behind() -> None:
    memory = Remembering(slots=2)
    entries = [memory.parked(ids(1, LONG)), memory.parked([*ids(1, LONG), 5], slot=1)]

    for entry in entries:
        memory.tier.drop(entry)
    memory.tier.drop(entries[0])
    for resident in memory.residents:
        resident.forget()

    assert (memory.tier.nbytes, memory.tier.entries) == (0, ())
    assert memory.engine.copies.counts().rows == 0
    assert memory.ways([*ids(1, LONG), 5, 6]) == []


def test_to_clear_forgets_what_nobody_is_reading() -> None:
    memory = Remembering()
    idle, read = memory.parked(ids(1, LONG)), memory.parked(ids(2, LONG))
    read.lent += 1

    forgotten = memory.tier.clear()

    assert (forgotten, memory.tier.entries) == (idle.line, (read,))


# --- finding ------------------------------------------------------------------------------------


def test_ways_are_told_from_the_highest_and_at_one_line_the_grids_first() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, 10 * GRID))  # it ends on a grid line
    memory.keeps(0)

    ways = memory.ways([*ids(1, 10 * GRID), 7])

    assert [(way.anchor.line, way.anchor.kind) for way in ways] == [
        (10 * GRID, AnchorKind.GRID),
        (10 * GRID, AnchorKind.END),
    ]


def test_a_prompt_resumes_below_where_it_parts_and_leaves_a_token_to_forward() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, 10 * GRID))
    entry = memory.keeps(0)

    def best(prompt: list[int]) -> list[int]:
        assert all(way.entry is entry for way in memory.ways(prompt))
        return [way.anchor.line for way in memory.ways(prompt)][:1]

    assert best(ids(1, 10 * GRID)) == [9 * GRID]
    assert best([*ids(1, 5 * GRID + 2), 96, 96]) == [5 * GRID]
    assert best([96, *ids(1, 5 * GRID)]) == []


def test_what_is_found_by_its_key_and_is_of_other_tokens_is_counted_and_no_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompt_chain, "extend", one_key)
    memory = Remembering()
    memory.reads(0, ids(1, LONG))
    memory.keeps(0)

    assert memory.ways(ids(2, LONG)) == []
    assert memory.tier.counts.collisions > 0


def test_a_picture_that_is_another_one_is_no_way_whatever_its_placeholder() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG))
    memory.keeps(0)
    other = with_other_media(ids(1, LONG), at=4 * GRID + 1)

    ways = memory.tier.ways(other, memory.chain(other))

    assert [way.anchor.line for way in ways] == [4 * GRID]


@pytest.mark.parametrize(
    ("row_invariant", "gates"),
    [(False, [Gate.PRESERVED, Gate.BITWISE]), (True, [Gate.BITWISE, Gate.BITWISE])],
)
def test_an_offer_tells_where_from_under_which_gate_and_what_is_to_be_moved(
    gates: list[Gate], *, row_invariant: bool
) -> None:
    memory = Remembering(slots=2, row_invariant=row_invariant)
    memory.reads(0, ids(1, LONG), answer=[1, 2])
    memory.keeps(0, role=Role.STASH)

    ways = memory.ways([*ids(1, LONG), 1, 2, 3])
    here = [memory.tier.offer(way, 0) for way in ways]
    there = [memory.tier.offer(way, 1) for way in ways]

    assert [offer.gate for offer in here] == gates
    assert {(offer.tier, offer.source) for offer in here} == {(Tier.RAM, Source.STASH)}
    assert [(offer.move_bytes, offer.move_seconds) for offer in here] == [(0, 0.0)] * 2
    rows = LONG + 2
    assert there[0].move_bytes == rows * memory.row_bytes + memory.section_bytes
    assert there[0].move_seconds >= there[1].move_seconds > 0


def test_the_shared_line_is_the_highest_up_to_which_memory_has_the_rows() -> None:
    memory = Remembering()
    memory.parked(ids(1, LONG))
    prompt = [*ids(1, 6 * GRID + 5), 96, 96]

    chain = memory.chain(with_other_media(prompt, at=len(prompt) - 1))

    assert memory.tier.shared_line(chain) == 6 * GRID


# --- room ---------------------------------------------------------------------------------------


def test_what_is_worth_least_goes_until_there_is_room_and_no_more() -> None:
    memory = Remembering()
    old, short = memory.parked(ids(1, LONG)), memory.parked(ids(2, LONG))
    new = memory.parked(ids(3, LONG))
    old.hits, new.hits = 2, 1
    wanted = memory.tier.free() + memory.tier.bytes_alone(short)

    assert memory.tier.make_room(wanted)

    assert memory.tier.entries == (old, new)
    assert memory.tier.counts.evicted == 1
    assert memory.tier.free() == wanted


def test_nothing_is_given_up_for_room_that_cannot_be_made() -> None:
    memory = Remembering()
    entries = [memory.parked(ids(seed, LONG)) for seed in range(3)]
    entries[1].lent += 1

    made = memory.tier.make_room(memory.tier.bytes_max - memory.tier.bytes_all(entries[1]) + 1)

    assert not made
    assert memory.tier.entries == tuple(entries)
    assert memory.tier.make_room(memory.tier.room())
    assert memory.tier.entries == (entries[1],)


def test_room_counts_what_two_that_are_being_read_share_once_and_counts_it() -> None:
    memory = Remembering(slots=2)
    head = ids(0, 5 * GRID)
    for slot in (0, 1):
        memory.parked([*head, *ids(1 + slot, 3 * GRID)], slot=slot).lent += 1

    assert memory.tier.room() == memory.tier.free()
    assert not memory.tier.make_room(memory.tier.free() + 1)


def test_copies_of_rows_that_stand_in_a_slot_go_before_any_entry() -> None:
    memory = Remembering()
    entry = memory.parked(ids(1, LONG))
    for block in entry.blocks:
        assert memory.tier.blocks.bring(0, block)

    assert memory.tier.make_room(memory.tier.bytes_max - memory.tier.nbytes + 1)

    assert memory.tier.entries == (entry,)
    assert memory.tier.counts.evicted == 0
    memory.leaves(0)
    memory.assert_counted()


def test_what_would_be_lost_goes_last_and_is_told_before() -> None:
    memory = Remembering()
    lost, safe = memory.parked(ids(1, LONG)), memory.parked(ids(2, LONG))
    safe.hits = 100
    memory.tier.is_safe = lambda entry: entry is safe

    free, one = memory.tier.free(), memory.tier.bytes_alone(safe)

    assert memory.tier.unsafe_victims(free + one) == []
    assert memory.tier.unsafe_victims(free + one + 1) == [lost]
    assert memory.tier.make_room(free + one)
    assert memory.tier.entries == (lost,)


def test_an_open_sessions_conversation_goes_after_what_is_nobodys() -> None:
    memory = Remembering()
    open_one, other = memory.parked(ids(1, LONG)), memory.parked(ids(2, LONG))
    other.hits = 100
    memory.tier.in_session = lambda entry: entry is open_one

    memory.tier.give_back(1)

    assert memory.tier.entries == (open_one,)


@pytest.mark.parametrize(
    ("retention", "goes"),
    [(Retention.LRU, "oldest"), (Retention.VALUE, "costly"), (Retention.COST_SIZE, "costly")],
)
def test_each_policy_has_its_own_victim(retention: Retention, goes: str) -> None:
    """The costly one has as many bytes as the oldest, and saves fewer tokens."""
    memory = Remembering(retention=retention)
    entries: dict[str, RamEntry] = {"oldest": memory.parked(ids(1, 8 * GRID))}
    memory.clock.advance(10.0)
    entries["costly"] = memory.parked(ids(2, GRID - 1))
    memory.clock.advance(10.0)
    if retention is Retention.LRU:
        memory.tier.used(entries["costly"])

    memory.tier.give_back(1)

    (left,) = memory.tier.entries
    assert left is not entries[goes]


def test_what_a_use_is_worth_does_not_depend_on_where_the_rows_stand_by_then() -> None:
    """Rows that stand in a slot take nothing yet, and all of their bytes once they have left."""
    memory = Remembering(retention=Retention.COST_SIZE)
    memory.reads(0, ids(1, LONG))
    entry = memory.keeps(0)
    in_its_slot = entry.credit
    memory.leaves(0)

    memory.tier.used(entry)

    assert entry.credit == in_its_slot > 0


def test_memory_is_given_back_from_the_roles_that_were_asked_for() -> None:
    memory = Remembering()
    entries = {
        role: memory.parked(ids(number, LONG), role=role)
        for number, role in enumerate([Role.SNAPSHOT, Role.STASH, Role.PARK, Role.PIN])
    }
    held = memory.tier.held([Role.STASH, Role.PIN])

    came_free = memory.tier.give_back(memory.tier.bytes_max, [Role.STASH, Role.PIN])

    assert came_free == held > 0
    assert memory.tier.entries == (entries[Role.SNAPSHOT], entries[Role.PARK])
    memory.assert_counted()


def test_a_use_is_remembered() -> None:
    memory = Remembering()
    entry = memory.parked(ids(1, LONG))
    memory.clock.advance(5.0)

    memory.tier.used(entry)

    assert (entry.hits, memory.tier.counts.restored) == (1, 1)
    assert entry.last_used_s == memory.clock.monotonic()


# --- rows that are lost -------------------------------------------------------------------------


def test_an_entry_whose_upper_rows_are_lost_goes_on_below_them() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG), answer=[1, 2])
    entry = memory.keeps(0)
    told: list[tuple[RamEntry, int]] = []
    memory.tier.cut = lambda entry, line: told.append((entry, line))
    memory.tier.blocks.vacate(0, 0, 6 * GRID + 1)

    memory.tier.blocks.forget(0)

    assert told == [(entry, 7 * GRID)]
    assert (entry.line, len(entry.blocks), entry.state.end) == (7 * GRID, 7, None)
    assert [way.anchor.line for way in memory.ways([*ids(1, LONG), 1])] == [7 * GRID]
    assert np.array_equal(entry.ids, random_ids(LONG, seed=1)[: 7 * GRID])
    memory.residents[0].forget()
    memory.assert_counted()


def test_an_entry_that_can_be_resumed_nowhere_any_more_is_dropped() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, LONG))
    entry = memory.keeps(0)

    memory.tier.blocks.forget(0)
    memory.residents[0].forget()

    assert not memory.tier.has(entry)
    assert memory.engine.copies.counts().sections == 1  # the slot's buffer for its next end
    memory.assert_counted()


def test_what_is_cut_keeps_no_line_above_a_block_that_ends_higher() -> None:
    """Off the grid, inside a whole block: there are rows above the line, and no key for it."""
    memory = Remembering(row_invariant=True)
    first = ids(1, 4 * GRID + 3)
    memory.reads(0, first, answer=[1, 2])
    memory.reads(0, [*first, 1, 2, *ids(2, 2 * GRID)], answer=[3])
    entry = memory.keeps(0)
    lines = [anchor.line for anchor in entry.state.anchors]
    memory.tier.blocks.vacate(0, 0, 4 * GRID)

    memory.tier.blocks.forget(0)

    assert 4 * GRID + 5 in lines
    assert entry.line == entry.blocks[-1].span.end == 4 * GRID


def test_two_entries_of_lost_rows_are_both_cut() -> None:
    memory = Remembering(slots=1)
    memory.reads(0, ids(1, LONG))
    older = memory.keeps(0, session="one")
    memory.reads(0, [*ids(1, LONG), *ids(2, GRID)])
    newer = memory.keeps(0, session="two")
    memory.tier.blocks.vacate(0, 0, 3 * GRID)

    memory.tier.blocks.forget(0)

    assert (older.line, newer.line) == (3 * GRID, 3 * GRID)
    assert all(block.needed == 2 for block in older.blocks)


def test_the_window_is_never_left() -> None:
    memory = Remembering()
    memory.reads(0, ids(1, WINDOW))

    entry = memory.keeps(0)
    memory.leaves(0)

    assert (entry.line, entry.namespace) == (WINDOW, Namespace())
    memory.assert_counted()
