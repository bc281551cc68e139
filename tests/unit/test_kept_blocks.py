"""Row blocks that entries keep: moved when they must be, once, and never beyond the budget."""

from collections.abc import Callable

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.kept_blocks import KeptBlock, KeptBlocks
from anchorline.domain.grid import Span
from anchorline.domain.tokens import TokenIds
from contract.readings import as_bytes, copied_rows, exported_rows, prefill_to
from support.builders import random_ids

GRID = 8
STEPS = 6
LENGTH = STEPS * GRID


class Keeping:
    """Kept blocks over the slots of an engine, with a budget in blocks of one grid step.

    Attributes:
        gives_up: what is given up for room, in turn.
        lost: what it was told is gone.
    """

    def __init__(self, *, slots: int = 1, room: int = 100, parts: Parts = Parts.HYBRID) -> None:
        self.engine = CheckableEngine(slots=slots, window=2 * LENGTH, grid=GRID, parts=parts)
        self.bytes_max = room * GRID * self.engine.profile.layout.row_bytes
        self.gives_up: list[Callable[[], None]] = []
        self.lost: list[KeptBlock] = []
        self.blocks = KeptBlocks(self.engine, self.free, self.make_room, self.lost.append)

    def free(self) -> int:
        return self.bytes_max - self.blocks.nbytes

    def make_room(self, nbytes: int) -> bool:
        while self.free() < nbytes and self.gives_up:
            self.gives_up.pop(0)()
        return self.free() >= nbytes

    def fill(self, slot: int, *, seed: int, length: int = LENGTH) -> TokenIds:
        """Prefill a slot from row 0."""
        ids = random_ids(length, seed=seed)
        self.engine.slots[slot].resume_at(0)
        prefill_to(self.engine, slot, ids)
        return ids

    def keep(self, slot: int, ids: TokenIds, *spans: Span) -> list[KeptBlock]:
        """Claim rows of a slot for one entry; by default every whole grid step."""
        kept: list[KeptBlock] = []
        for span in spans or self.engine.profile.grid.chunks(0, len(ids)):
            of = ids[span.start : span.end]
            block = KeptBlock(span, of, of, kept[-1] if kept else None, clean=True)
            self.blocks.need(block)
            self.blocks.claim(slot, block)
            kept.append(block)
        return kept

    def kept(self, slot: int, *, seed: int, length: int = LENGTH) -> list[KeptBlock]:
        """A slot's whole conversation, kept where it stands."""
        return self.keep(slot, self.fill(slot, seed=seed, length=length))

    def moved_out(self, slot: int, *, seed: int) -> list[KeptBlock]:
        """A conversation that has left its slot for good."""
        kept = self.kept(slot, seed=seed)
        self.blocks.vacate(slot, 0, LENGTH)
        return kept

    def rows(self, slot: int, span: Span) -> dict[str, bytes]:
        return as_bytes(exported_rows(self.engine.slots[slot], span))

    def copy(self, block: KeptBlock) -> dict[str, bytes]:
        assert block.handle is not None
        return as_bytes(copied_rows(self.engine, block.handle))

    def assert_counted(self) -> None:
        """The budget holds, and counts what there is."""
        counts = self.engine.copies.counts()
        assert self.blocks.nbytes == counts.row_bytes
        assert self.blocks.nbytes <= self.bytes_max


# --- ahead --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "free_max", "prepared"),
    [(100, 3, 3), (8, 100, 2), (3, 100, 0), (100, 100, 2 * STEPS), (0, 100, 0), (100, 0, 0)],
)
def test_no_more_copies_are_prepared_than_there_is_room_for_or_a_slot_has_blocks(
    room: int, free_max: int, prepared: int
) -> None:
    keeping = Keeping(room=room, parts=Parts.ATTENTION)
    size = GRID * keeping.blocks.row_bytes

    for _ in range(50):
        keeping.blocks.prepare_copy(free_max * size)

    assert keeping.engine.copies.counts().free_bytes == prepared * size


def test_where_memory_is_full_no_copy_is_prepared() -> None:
    keeping = Keeping(room=STEPS)
    keeping.moved_out(0, seed=1)
    size = GRID * keeping.blocks.row_bytes

    keeping.blocks.prepare_copy(size)

    assert keeping.engine.copies.counts().free_bytes == 0


# --- in place -----------------------------------------------------------------------------------


def test_what_is_kept_in_place_takes_nothing() -> None:
    keeping = Keeping(room=0)

    kept = keeping.kept(0, seed=1)

    assert keeping.blocks.nbytes == keeping.engine.copies.counts().rows == 0
    assert all(block.is_there and block.places == {0} for block in kept)


def test_rows_above_what_is_overwritten_are_never_moved() -> None:
    keeping = Keeping()
    kept = keeping.kept(0, seed=1)

    keeping.blocks.vacate(0, 0, 2 * GRID)

    assert [block.handle is None for block in kept] == [False, False, True, True, True, True]
    assert [block.places for block in kept] == [set(), set(), {0}, {0}, {0}, {0}]


def test_a_block_is_moved_out_once_with_the_rows_that_stood_there() -> None:
    keeping = Keeping()
    kept = keeping.kept(0, seed=1)
    expected = keeping.rows(0, kept[1].span)

    keeping.blocks.vacate(0, GRID, GRID + 1)
    prefill_over(keeping, 0, seed=2)
    keeping.blocks.vacate(0, 0, LENGTH)

    assert keeping.copy(kept[1]) == expected
    assert keeping.blocks.counts.captured == STEPS
    keeping.assert_counted()


def prefill_over(keeping: Keeping, slot: int, *, seed: int) -> None:
    """What a slot's next user writes, without telling anybody."""
    keeping.fill(slot, seed=seed)


@pytest.mark.parametrize(
    ("start", "end", "touched"),
    [
        (0, 0, []),
        (0, 1, [0]),
        (GRID - 1, GRID, [0]),
        (GRID, GRID + 1, [1]),
        (GRID - 1, GRID + 1, [0, 1]),
        (0, LENGTH, list(range(STEPS))),
        (LENGTH, LENGTH + GRID, []),
    ],
)
def test_exactly_the_blocks_with_a_row_that_is_overwritten_are_moved(
    start: int, end: int, touched: list[int]
) -> None:
    keeping = Keeping()
    kept = keeping.kept(0, seed=1)

    at_risk = keeping.blocks.at_risk(0, start, end)
    keeping.blocks.vacate(0, start, end)

    assert [at for at, block in enumerate(kept) if block.handle is not None] == touched
    assert at_risk == keeping.blocks.nbytes == len(touched) * keeping.blocks.bytes_of(kept[0])


def test_a_short_block_at_an_end_is_moved_when_its_own_rows_are_overwritten() -> None:
    keeping = Keeping()
    kept = keeping.kept(0, seed=1, length=2 * GRID + 3)
    expected = keeping.rows(0, kept[-1].span)

    keeping.blocks.vacate(0, 2 * GRID + 3, 2 * GRID + 4)
    in_place = kept[-1].handle is None
    keeping.blocks.vacate(0, 2 * GRID + 2, 2 * GRID + 3)

    assert in_place
    assert keeping.copy(kept[-1]) == expected
    assert keeping.blocks.nbytes == 3 * keeping.blocks.row_bytes
    keeping.assert_counted()


def test_two_entries_of_one_row_each_have_their_own_copy_of_it() -> None:
    keeping = Keeping()
    ids = keeping.fill(0, seed=1)
    [short] = keeping.keep(0, ids, Span(GRID, GRID + 5))
    [whole] = keeping.keep(0, ids, Span(GRID, 2 * GRID))
    expected = [keeping.rows(0, block.span) for block in (short, whole)]

    keeping.blocks.vacate(0, GRID + 2, GRID + 3)

    assert [keeping.copy(block) for block in (short, whole)] == expected
    keeping.assert_counted()


def test_rows_that_stand_in_another_slot_too_are_not_moved() -> None:
    keeping = Keeping(slots=2)
    kept = keeping.kept(0, seed=1)
    keeping.fill(1, seed=1)
    for block in kept:
        keeping.blocks.claim(1, block)

    keeping.blocks.vacate(0, 0, LENGTH)

    assert keeping.blocks.counts.captured == 0
    assert all(block.places == {1} for block in kept)
    assert keeping.blocks.copies_needed(1, Span(0, LENGTH)) == LENGTH * keeping.blocks.row_bytes


def test_a_block_is_found_where_it_stands_and_not_under_another_span() -> None:
    keeping = Keeping(slots=2)
    kept = keeping.kept(0, seed=1)

    assert keeping.blocks.claimed(0, kept[2].span) is kept[2]
    assert keeping.blocks.claimed(0, Span(2 * GRID, 2 * GRID + 3)) is None
    assert keeping.blocks.claimed(1, kept[2].span) is None
    keeping.blocks.vacate(0, 2 * GRID, 3 * GRID)
    assert keeping.blocks.claimed(0, kept[2].span) is None


def test_copies_needed_are_those_of_rows_that_nobody_has_copied() -> None:
    keeping = Keeping()
    kept = keeping.moved_out(0, seed=1)
    assert keeping.blocks.bring(0, kept[0])

    needed = keeping.blocks.copies_needed(0, Span(0, 2 * GRID + 3))

    assert needed == (GRID + 3) * keeping.blocks.row_bytes


# --- bringing in --------------------------------------------------------------------------------


def test_what_is_brought_in_is_what_stood_there_and_its_copy_stays() -> None:
    keeping = Keeping()
    kept = keeping.kept(0, seed=1)
    expected = keeping.rows(0, Span(0, LENGTH))
    keeping.blocks.vacate(0, 0, LENGTH)
    keeping.fill(0, seed=2)

    brought = [keeping.blocks.bring(0, block) for block in kept]

    assert all(brought)
    assert keeping.rows(0, Span(0, LENGTH)) == expected
    assert all(block.handle is not None and block.places == {0} for block in kept)


def test_what_stands_where_a_block_is_brought_in_is_moved_out_first() -> None:
    keeping = Keeping()
    away = keeping.moved_out(0, seed=1)
    here = keeping.kept(0, seed=2)
    expected = [keeping.rows(0, block.span) for block in here]

    for block in away:
        assert keeping.blocks.bring(0, block)

    assert [keeping.copy(block) for block in here] == expected
    assert keeping.blocks.counts.swapped == 0
    keeping.assert_counted()


def test_where_there_is_room_for_no_copy_more_two_conversations_change_places() -> None:
    keeping = Keeping(room=STEPS)
    away = keeping.kept(0, seed=1)
    first = [keeping.rows(0, block.span) for block in away]
    keeping.blocks.vacate(0, 0, LENGTH)
    here = keeping.kept(0, seed=2)
    second = [keeping.rows(0, block.span) for block in here]

    for block in away:
        assert keeping.blocks.bring(0, block)
        keeping.assert_counted()
    forth = [keeping.rows(0, block.span) for block in away]
    for block in here:
        assert keeping.blocks.bring(0, block)
        keeping.assert_counted()
    back = [keeping.rows(0, block.span) for block in here]

    assert (forth, back) == (first, second)
    assert keeping.blocks.counts.swapped == 2 * STEPS
    assert keeping.lost == []


def test_a_swap_leaves_a_copy_of_what_another_entry_has_in_the_same_rows() -> None:
    """The short block stands there too, and has its own copy: it is in this slot no more."""
    keeping = Keeping(room=1)
    away = keeping.keep(0, keeping.fill(0, seed=1), Span(0, GRID))
    keeping.blocks.vacate(0, 0, GRID)
    ids = keeping.fill(0, seed=2)
    [standing] = keeping.keep(0, ids, Span(0, GRID))
    [short] = keeping.keep(0, ids, Span(0, 3))
    expected = keeping.rows(0, standing.span)
    keeping.bytes_max += 3 * keeping.blocks.row_bytes
    keeping.blocks.take(short, keeping.engine.slots[0].capture_rows(short.span))

    assert keeping.blocks.bring(0, away[0])

    assert keeping.copy(standing) == expected
    assert (short.places, standing.places, away[0].places) == (set(), set(), {0})
    keeping.assert_counted()


def test_what_stands_in_another_slot_alone_is_brought_in_from_there() -> None:
    keeping = Keeping(slots=2)
    kept = keeping.kept(1, seed=1)
    expected = keeping.rows(1, Span(0, LENGTH))
    keeping.fill(0, seed=2)

    for block in kept:
        assert keeping.blocks.bring(0, block)

    assert keeping.rows(0, Span(0, LENGTH)) == expected
    assert all(block.places == {0, 1} for block in kept)
    keeping.assert_counted()


def test_what_stands_in_another_slot_can_be_brought_in_though_its_copy_made_room() -> None:
    """Room is made of copies whose rows stand in a slot too; so of that of the block itself."""
    keeping = Keeping(slots=2, room=1)
    [block] = keeping.keep(1, keeping.fill(1, seed=1), Span(0, GRID))
    keeping.blocks.take(block, keeping.engine.slots[1].capture_rows(block.span))
    expected = keeping.rows(1, block.span)
    ids = keeping.fill(0, seed=2)
    standing = [*keeping.keep(0, ids, Span(0, 5)), *keeping.keep(0, ids, Span(0, 3))]
    keeping.gives_up = [
        lambda: drop_a_copy_in_place(keeping),
        *[lambda block=block: keeping.blocks.release(block) for block in standing],
    ]

    assert keeping.blocks.bring(0, block)

    assert keeping.rows(0, block.span) == expected
    assert block.places == {0, 1}
    keeping.assert_counted()


def test_what_stands_in_another_slot_is_brought_in_where_there_is_room_for_no_copy() -> None:
    keeping = Keeping(slots=2, room=0)
    kept = keeping.kept(1, seed=1)
    expected = keeping.rows(1, Span(0, LENGTH))
    keeping.fill(0, seed=2)

    for block in kept:
        assert keeping.blocks.bring(0, block)

    assert keeping.rows(0, Span(0, LENGTH)) == expected
    assert all((block.places, block.handle) == ({0, 1}, None) for block in kept)
    keeping.assert_counted()


def drop_a_copy_in_place(keeping: Keeping) -> None:
    assert keeping.blocks.drop_copies_in_place(1) > 0


def test_what_is_in_place_already_is_not_brought_again() -> None:
    keeping = Keeping()
    kept = keeping.kept(0, seed=1)

    assert keeping.blocks.bring(0, kept[0])

    assert keeping.blocks.counts.restored == 0


@pytest.mark.parametrize("parts", [Parts.ATTENTION, Parts.RECURRENT])
def test_states_of_one_kind_of_parts_move_alike(parts: Parts) -> None:
    keeping = Keeping(parts=parts)
    kept = keeping.kept(0, seed=1)
    expected = keeping.rows(0, Span(0, LENGTH))
    keeping.blocks.vacate(0, 0, LENGTH)
    keeping.fill(0, seed=2)

    for block in kept:
        assert keeping.blocks.bring(0, block)

    assert keeping.rows(0, Span(0, LENGTH)) == expected
    keeping.assert_counted()


# --- room ---------------------------------------------------------------------------------------


def test_what_there_is_no_room_for_is_lost_and_told() -> None:
    keeping = Keeping(room=2)
    kept = keeping.kept(0, seed=1)

    keeping.blocks.vacate(0, 0, LENGTH)

    assert keeping.lost == kept[2:]
    assert [block.is_there for block in kept] == [True, True, False, False, False, False]
    assert keeping.blocks.counts.lost == STEPS - 2
    keeping.assert_counted()


def test_what_is_worth_less_makes_room() -> None:
    keeping = Keeping(slots=2, room=STEPS)
    less = keeping.moved_out(0, seed=1)
    more = keeping.kept(1, seed=2)
    keeping.gives_up = [lambda block=block: keeping.blocks.release(block) for block in less]

    keeping.blocks.vacate(1, 0, LENGTH)

    assert keeping.lost == []
    assert all(block.handle is not None for block in more)
    assert not any(block.is_there for block in less)
    keeping.assert_counted()


def test_what_is_given_up_for_the_room_it_would_take_is_no_loss() -> None:
    keeping = Keeping(room=0)
    kept = keeping.kept(0, seed=1)
    keeping.gives_up = [lambda block=block: keeping.blocks.release(block) for block in kept]

    keeping.blocks.vacate(0, 0, LENGTH)

    assert (keeping.lost, keeping.blocks.counts.captured) == ([], 0)
    keeping.assert_counted()


def test_a_copy_of_rows_that_stand_in_a_slot_makes_room_and_is_made_again() -> None:
    keeping = Keeping()
    kept = keeping.moved_out(0, seed=1)
    for block in kept:
        assert keeping.blocks.bring(0, block)
    expected = [keeping.copy(block) for block in kept]

    freed = keeping.blocks.drop_copies_in_place(2 * GRID * keeping.blocks.row_bytes)
    left = [block for block in kept if block.handle is not None]
    keeping.blocks.vacate(0, 0, LENGTH)

    assert (freed, len(left)) == (2 * GRID * keeping.blocks.row_bytes, STEPS - 2)
    assert [keeping.copy(block) for block in kept] == expected


def test_a_copy_of_rows_that_are_about_to_be_overwritten_makes_no_room() -> None:
    """But one of rows that stand in another slot too does."""
    keeping = Keeping(slots=2)
    kept = keeping.moved_out(0, seed=1)
    for block in kept:
        assert keeping.blocks.bring(0, block)
    assert keeping.blocks.bring(1, kept[2])

    freed = keeping.blocks.drop_copies_in_place(keeping.blocks.nbytes, leaving=0)

    assert freed == keeping.blocks.bytes_of(kept[2])
    assert [block for block in kept if block.handle is None] == [kept[2]]


# --- giving up ----------------------------------------------------------------------------------


def test_with_the_last_entry_that_needs_it_a_block_is_given_up() -> None:
    keeping = Keeping(slots=2)
    kept = keeping.moved_out(0, seed=1)
    for block in kept:
        keeping.blocks.need(block)
    assert keeping.blocks.bring(1, kept[0])

    for block in kept:
        keeping.blocks.release(block)
    still = keeping.engine.copies.counts().rows
    for block in kept:
        keeping.blocks.release(block)

    assert still == STEPS
    assert keeping.engine.copies.counts().rows == keeping.blocks.nbytes == 0
    assert not any(block.is_there for block in kept)
    assert keeping.blocks.claimed(1, kept[0].span) is None


def test_rows_of_a_slot_whose_forward_failed_are_lost_if_they_stand_nowhere_else() -> None:
    keeping = Keeping(slots=2)
    kept = keeping.kept(0, seed=1)
    keeping.blocks.vacate(0, 0, GRID)  # a copy
    keeping.fill(1, seed=1)
    keeping.blocks.claim(1, kept[1])  # in another slot

    keeping.blocks.forget(0)

    assert keeping.lost == kept[2:]
    assert all(block.places <= {1} for block in kept)


def test_what_is_lost_with_one_block_is_not_lost_twice() -> None:
    keeping = Keeping()
    kept = keeping.kept(0, seed=1)
    told: list[KeptBlock] = []

    def lost(block: KeptBlock) -> None:
        told.append(block)
        for above in kept[kept.index(block) :]:
            blocks.release(above)

    blocks = KeptBlocks(keeping.engine, keeping.free, keeping.make_room, lost)
    for block in kept:
        block.places.clear()
        blocks.claim(0, block)

    blocks.forget(0)

    assert told == kept[:1]
    assert not any(block.is_there for block in kept)
