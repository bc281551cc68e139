"""What the slots, the engine's copies and the tier in memory can give back."""

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.fixed_memory import FixedMemory
from anchorline.application.reclaimable import (
    RAM_ROLES,
    AllocatorReserve,
    BodyAnchors,
    CopyAccount,
    EndAnchors,
    RamEntries,
    UnwrittenRows,
    in_order,
)
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.entry import Role, Source
from anchorline.domain.errors import MemoryShort
from anchorline.domain.grid import Span
from anchorline.domain.memory_plan import GIVE_BACK_ORDER
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import token_ids
from anchorline.simulation.history import History
from support.memory import FakeCache, Pool

ANCHORS = AnchorBudget(bytes_max=1 << 20, count_min=5, newest_kept=2)


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def section_bytes(history: History) -> int:
    return history.engine.profile.layout.section_bytes


def body(history: History) -> BodyAnchors:
    return BodyAnchors(history.scheduler.slots, section_bytes(history), lambda _: True)


def ends(history: History) -> EndAnchors:
    return EndAnchors(history.scheduler.slots, section_bytes(history), lambda _: True)


def lines(history: History, slot: int = 0) -> list[int]:
    return [anchor.line for anchor in history.scheduler.slots[slot].resident.anchors]


# --- anchors of slots -----------------------------------------------------------------------------


def test_anchors_of_the_body_go_and_the_newest_stay() -> None:
    history = History(anchors=ANCHORS)
    history.ask(ids(0, 80))
    size = section_bytes(history)
    anchors = body(history)
    held = anchors.held()

    some = anchors.give_back(2 * size + 1)
    left = lines(history)
    rest = anchors.give_back(1 << 30)

    assert held == 10 * size
    assert some == 3 * size
    assert left[-2:] == [72, 80]
    assert len(left) == 7
    assert rest == 5 * size
    assert lines(history) == [72, 80]


def test_a_request_after_that_resumes_lower_and_is_as_exact() -> None:
    history = History(anchors=ANCHORS)
    history.ask(ids(0, 80))
    body(history).give_back(1 << 30)

    edited = history.ask([*ids(0, 77), 1, 2, 3])
    parted = history.ask([*ids(0, 50), 1, 2, 3])

    assert (edited.decision.cached, edited.decision.gate) == (72, Gate.BITWISE)
    assert (parted.decision.cached, parted.decision.gate) == (0, Gate.COLD)


def test_an_end_that_was_given_back_costs_the_tokens_above_the_last_anchor() -> None:
    history = History()
    first = history.submit(ids(0, 20), max_tokens=6)
    history.run()
    conversation = history.sequences[first].tolist()
    held = ends(history).held()

    freed = ends(history).give_back(1)
    answer = history.ask([*conversation, *ids(50, 9)])

    assert held == freed == section_bytes(history)
    assert ends(history).held() == section_bytes(history)  # of the next answer
    assert (answer.decision.source, answer.decision.cached) == (Source.RESIDENT, 16)


def test_what_is_given_back_is_a_change_to_who_looks_at_the_slot() -> None:
    history = History(anchors=ANCHORS)
    history.ask(ids(0, 80))
    resident = history.scheduler.slots[0].resident
    before = resident.changes

    body(history).give_back(1)
    ends(history).give_back(1)

    assert resident.changes == before + 2


def test_the_least_recently_used_slot_gives_first_and_a_busy_one_nothing() -> None:
    history = History(anchors=ANCHORS, slots=3)
    for start in (0, 30, 60):
        history.ask(ids(start, 40))
    history.ask(ids(0, 48))  # the first slot is the newest now
    busy = history.scheduler.slots[1]
    assert busy.idle
    history.submit([*ids(30, 40), *ids(5, 40)], max_tokens=20)
    history.step()
    assert not busy.idle

    body(history).give_back(1 << 30)

    assert len(lines(history, 2)) == 2
    assert len(lines(history, 0)) == 2
    assert len(lines(history, 1)) > 2


def test_one_slot_gives_what_it_can_and_the_next_no_more_than_is_missing() -> None:
    history = History(anchors=ANCHORS, slots=2)
    history.ask(ids(0, 40))  # three of its anchors may go
    history.ask(ids(30, 80))
    size = section_bytes(history)

    freed = body(history).give_back(5 * size)

    assert freed == 5 * size
    assert (len(lines(history, 0)), len(lines(history, 1))) == (2, 10 - 2)


def test_a_slot_that_something_is_copied_from_is_left_alone() -> None:
    history = History(anchors=ANCHORS)
    history.ask(ids(0, 80))
    size = section_bytes(history)

    assert BodyAnchors(history.scheduler.slots, size, lambda _: False).give_back(1 << 30) == 0
    assert EndAnchors(history.scheduler.slots, size, lambda _: False).give_back(1 << 30) == 0


def test_anchors_without_bytes_are_not_given_up_for_bytes() -> None:
    history = History(anchors=ANCHORS)
    history.ask(ids(0, 80))

    assert BodyAnchors(history.scheduler.slots, 0, lambda _: True).give_back(1) == 0
    assert EndAnchors(history.scheduler.slots, 0, lambda _: True).give_back(1) == 0
    assert len(lines(history)) == 10


# --- rows and copies ------------------------------------------------------------------------------


def test_rows_count_as_unwritten_until_a_slot_has_reached_them() -> None:
    engine = CheckableEngine(slots=2, grid=8, window=64)
    unwritten, row_bytes = UnwrittenRows(engine.slots), engine.profile.layout.row_bytes

    before = unwritten()
    engine.prefill(0, token_ids(range(8)))
    after = unwritten()
    engine.slots[0].resume_at(0)

    assert (before, after) == (128 * row_bytes, 120 * row_bytes)
    assert unwritten() == 120 * row_bytes


def test_copies_are_counted_where_they_stand() -> None:
    engine = CheckableEngine(grid=8, window=64)
    state, layout = engine.slots[0], engine.profile.layout
    rows = state.capture_rows(Span(0, 8))
    state.capture_sections()

    both = CopyAccount(engine.copies).count()
    on_host = CopyAccount(engine.copies, sections=False).count()
    on_device = CopyAccount(engine.copies, rows=False).count()
    engine.copies.release_rows(rows)

    assert on_host.live == 8 * layout.row_bytes
    assert on_device.live == layout.section_bytes
    assert both.live == on_host.live + on_device.live
    assert CopyAccount(engine.copies).count().free == 8 * layout.row_bytes


def test_the_reserve_is_what_the_copies_and_the_allocator_have_free() -> None:
    engine = CheckableEngine(grid=8, window=64)
    engine.copies.release_rows(engine.slots[0].capture_rows(Span(0, 8)))
    memory = FixedMemory(total=1000, allocated=500)
    memory.use()
    memory.allocated = 300
    reserve = AllocatorReserve(memory, CopyAccount(engine.copies))
    before = reserve.count().free

    reserve.give_back()

    assert before > 0
    assert reserve.count().free == 0
    assert memory.use().reserved == 300


# --- the tier in memory ---------------------------------------------------------------------------


class Tier:
    """Stands for the tier in memory: bytes by role."""

    def __init__(self, **held: int) -> None:
        self.bytes = {Role(name): nbytes for name, nbytes in held.items()}

    def held(self, roles: tuple[Role, ...]) -> int:
        return sum(self.bytes.get(role, 0) for role in roles)

    def give_back(self, wanted: int, roles: tuple[Role, ...]) -> int:
        return sum(self.bytes.pop(role, 0) for role in roles if wanted)


def test_each_reason_for_an_entry_in_memory_gives_back_for_itself() -> None:
    tier = Tier(snapshot=10, park=30)
    caches = [RamEntries(tier, name, role) for name, role in RAM_ROLES.items()]  # type: ignore[arg-type]

    assert [cache.held() for cache in caches] == [10, 0, 30, 0]
    assert caches[2].give_back(5) == 30
    assert tier.bytes == {Role.SNAPSHOT: 10}


def test_all_caches_stand_in_the_order_of_the_plan() -> None:
    pool = Pool()
    caches = [FakeCache(pool.memory, name) for name in reversed(GIVE_BACK_ORDER)]

    assert [cache.name for cache in in_order(caches)] == list(GIVE_BACK_ORDER)


def test_slots_give_back_in_order_what_a_prefill_needs() -> None:
    history = History(anchors=ANCHORS)
    history.ask(ids(0, 80))
    size = section_bytes(history)
    pool = Pool()
    pool.memory.allocated = 690
    pool.budget.manage([body(history), ends(history)])

    # The fixed pool does not see what comes free, so all of it is asked for.
    with pytest.raises(MemoryShort):
        pool.budget.before_prefill(200)

    assert lines(history) == [72, 80]
    assert [(back.cache, back.bytes) for back in pool.budget.stats().given_back] == [
        ("body_anchors", 8 * size),
        ("end_anchors", size),
    ]
