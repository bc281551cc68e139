"""A catalog that fails while a server runs: what it could not note is not stored, and no more.

No error of it reaches a request or the scheduler's step, a flush says what is true, and once the
catalog works again it and the index agree, and no object is left that nobody needs.
"""

from collections.abc import Iterable

import pytest

from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.simulation.faulty_catalog import (
    CALLS,
    CHANGES,
    CatalogFault,
    FaultyCatalog,
)
from anchorline.adapters.simulation.faulty_storage import Fault, FaultyStorage
from anchorline.application.write_ledger import DAYS_SHOWN, WriteLedger
from anchorline.domain.disk_index import objects_of
from anchorline.domain.disk_retention import Shares
from anchorline.domain.entry import EntryId, Role
from anchorline.domain.errors import StorageUnavailable
from anchorline.domain.stored_entry import ObjectName, StoredEntry
from anchorline.domain.write_guard import WriteCause, WriteGuard
from anchorline.ports import telemetry as names
from anchorline.ports.block_storage import BlockStorage
from anchorline.ports.catalog import AgeMark, Catalog
from anchorline.simulation.box import GRID, Box

DAY_S = 86_400.0


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


class Failing:
    """Makes the catalogs of a box, and says which of their calls fail."""

    def __init__(self) -> None:
        self.calls: set[str] = set()
        self.made: list[FaultyCatalog] = []

    def __call__(self, catalog: MemoryCatalog) -> Catalog:
        made = FaultyCatalog(catalog)
        made.failing = self.calls
        self.made.append(made)
        return made

    @property
    def now(self) -> FaultyCatalog:
        return self.made[-1]


def failing_box(**how: object) -> tuple[Box, Failing]:
    failing = Failing()
    return Box(index=failing, tolerant=True, **how), failing  # type: ignore[arg-type]


def uses_of_a_life(box: Box) -> None:
    """Requests, evictions, heads, resumes, damage, saves, what grows old, what is cleared."""
    head = ids(0, 10 * GRID)
    for start in (40, 50, 60, 70):
        prompt = [*head, *ids(start, 3 * GRID)]
        box.server.ask(prompt)
        box.settle()
        assert box.server.ask([*prompt, 1, 2]).decision.cached > 0
        box.flush()
        box.server.scheduler.clear(ram=True, disk=False)
        box.server.ask([*prompt, 1, 2, 3])
    for name in box.names[:2]:
        box.storage.overwrite(ObjectName(name), bytes(4096))
    box.server.scheduler.clear(ram=True, disk=False)
    box.server.ask([*head, *ids(60, 2 * GRID)])
    box.disk.tier.stats(0)
    box.clock.advance(60.0)
    box.settle()
    box.disk.tier.tidy()


def check_agreed(box: Box) -> None:
    """The catalog and the index hold the same, and nothing else is stored."""
    tier = box.disk.tier
    assert {entry.id: entry for entry in box.catalog.entries()} == {
        entry.id: entry for entry in tier.entries()
    }
    needed = {name for entry in tier.entries() for name in objects_of(entry)}
    assert set(box.names) == needed
    day = box.local_day()
    assert tier.ledger.today == sum(box.catalog.written(1).get(day, {}).values())


@pytest.mark.parametrize("call", sorted(CALLS))
def test_whatever_call_fails_requests_are_answered_and_all_is_made_up_for(call: str) -> None:
    box, failing = failing_box()
    failing.calls.add(call)

    uses_of_a_life(box)
    failing.calls.clear()
    box.disk.tier.tidy()

    check_agreed(box)
    prompt = ids(3, 6 * GRID)
    box.clock.advance(DAY_S)  # the pause after failures is over
    box.server.ask(prompt)
    assert box.flush().durable
    check_agreed(box)
    box.kill()
    assert box.server.ask([*prompt, 1]).decision.cached == 6 * GRID


@pytest.mark.parametrize("fault", CatalogFault)
def test_a_catalog_of_which_all_fails_costs_what_is_kept_on_disk_and_no_request(
    fault: CatalogFault,
) -> None:
    box, failing = failing_box()
    box.server.ask(ids(0, 6 * GRID))
    assert box.flush().durable
    failing.now.rates = {fault: 1.0}

    uses_of_a_life(box)
    report = box.flush()
    failing.now.rates = {}
    box.disk.tier.tidy()

    assert not report.durable
    assert box.server.telemetry.counted_in_all(names.STORAGE_ERRORS) > 0
    check_agreed(box)


@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_start_whose_catalog_fails_serves_with_the_tier_or_without(call: str) -> None:
    box, failing = failing_box()
    prompt = ids(0, 6 * GRID)
    box.server.ask(prompt)
    box.flush()
    failing.calls.add(call)

    box.kill()

    resumed = box.server.ask([*prompt, 1]).decision.cached
    assert resumed == (0 if box.server.disk is None else 6 * GRID)
    assert (box.server.disk is not None) == (
        call in CHANGES or call in ("unreferenced", "cold_counts")
    )
    failing.calls.clear()
    box.kill()
    assert box.server.ask([*prompt, 1]).decision.cached == 6 * GRID


def test_an_entry_that_could_not_be_committed_leaves_no_object_and_the_flush_says_so() -> None:
    box, failing = failing_box()
    failing.calls.add("put")
    box.server.ask(ids(0, 6 * GRID))

    report = box.flush()

    assert (report.durable, report.failed, report.saved) == (False, 1, 0)
    assert report.missing == 1
    assert box.names == []
    skipped = {"reason": "medium_failed", "role": "conversation"}
    assert box.server.telemetry.counted(names.WRITES_SKIPPED, skipped) == 1
    assert box.disk.tier.ledger.today > 0  # the drive has written them


def test_after_a_failed_commit_writing_pauses_longer_each_time_and_goes_on() -> None:
    box, failing = failing_box()
    tier = box.disk.tier
    failing.calls.add("put")
    box.server.ask(ids(0, 6 * GRID))
    box.flush()
    assert tier.ledger.refuses(WriteCause.EVICTION, 6 * GRID) is not None
    box.clock.advance(5.5)
    assert tier.ledger.refuses(WriteCause.EVICTION, 6 * GRID) is None

    box.flush()
    box.clock.advance(5.5)
    assert tier.ledger.refuses(WriteCause.EVICTION, 6 * GRID) is not None
    failing.calls.clear()

    assert box.flush().durable
    box.clock.advance(5.5)
    assert tier.ledger.refuses(WriteCause.EVICTION, 6 * GRID) is None
    events = [str(row.get("event")) for row in box.server.telemetry.records]
    assert [event for event in events if event.startswith("disk_writes")] == [
        "disk_writes_fail",
        "disk_writes_work_again",
    ]


def test_an_entry_that_is_older_is_kept_while_its_successor_cannot_be_committed() -> None:
    box, failing = failing_box()
    prompt = ids(0, 6 * GRID)
    box.server.ask(prompt)
    box.flush()
    failing.calls.add("put")
    box.server.ask([*prompt, *ids(9, 3 * GRID)])

    assert not box.flush().durable

    box.kill()
    assert box.server.ask([*prompt, 1]).decision.cached == 6 * GRID


@pytest.mark.parametrize("calls", [{"remove", "put"}, {"remove", "put", "unreferenced"}])
def test_damage_that_could_not_be_noted_is_noted_once_the_catalog_works(calls: set[str]) -> None:
    box, failing = failing_box()
    box.server.ask(ids(0, 6 * GRID))
    box.flush()
    (entry,) = box.disk.tier.entries()
    failing.calls |= calls
    box.disk.tier.distrust(entry.blocks[0].name, "found damaged")
    assert box.disk.tier.entries() == ()
    assert box.catalog.entries() != []

    failing.calls.clear()
    box.disk.tier.tidy()

    check_agreed(box)
    assert box.names == []


def test_an_entry_that_was_cut_back_is_cut_back_in_the_catalog_once_it_works() -> None:
    box, failing = failing_box()
    prompt = ids(0, 6 * GRID)
    box.server.ask(prompt)
    box.flush()
    (entry,) = box.disk.tier.entries()
    failing.calls.add("put")
    box.disk.tier.distrust(entry.blocks[-1].name, "found damaged")
    (rest,) = box.disk.tier.entries()

    failing.calls.clear()
    box.disk.tier.tidy()

    assert rest.anchors[-1].line < entry.anchors[-1].line
    assert list(box.catalog.entries()) == [rest]
    check_agreed(box)


def test_a_use_that_is_noted_does_not_pay_for_damage_that_was_not() -> None:
    box, failing = failing_box()
    prompt = ids(0, 6 * GRID)
    box.server.ask(prompt)
    box.flush()
    (entry,) = box.disk.tier.entries()
    failing.calls.add("put")
    box.disk.tier.distrust(entry.blocks[-1].name, "found damaged")
    box.disk.tier.used(entry.id)
    failing.calls.clear()

    box.disk.tier.tidy()

    check_agreed(box)


def test_a_planned_stop_tells_the_catalog_what_it_is_owed() -> None:
    box, failing = failing_box()
    prompt = ids(0, 6 * GRID)
    box.server.ask(prompt)
    box.flush()
    box.server.scheduler.clear(ram=True, disk=False)
    failing.calls |= {"touch", "add_written"}
    box.server.ask([*prompt, 1])
    failing.calls.clear()

    box.disk.tier.close()

    (entry,) = box.catalog.entries()
    assert entry.hits == 1


@pytest.mark.parametrize("calls", [{"close"}, set(CALLS)])
def test_a_stop_whose_catalog_fails_lets_the_medium_go(calls: set[str]) -> None:
    box, failing = failing_box()
    box.server.ask(ids(0, 6 * GRID))
    failing.calls |= calls
    closed: list[bool] = []
    box.storage.close = lambda: closed.append(True)  # type: ignore[method-assign]

    box.disk.tier.close()

    assert closed == [True]


def test_an_object_that_could_not_be_deleted_goes_later() -> None:
    box, failing = failing_box()
    box.server.ask(ids(0, 6 * GRID))
    box.flush()
    failing.calls.add("unreferenced")

    box.server.scheduler.clear(ram=False, disk=True)
    left = box.names
    failing.calls.clear()
    box.disk.tier.tidy()

    assert left != []
    assert box.names == []


def test_an_object_that_could_not_be_deleted_and_is_needed_again_stays() -> None:
    box, failing = failing_box()
    prompt = ids(0, 6 * GRID)
    box.server.ask(prompt)
    box.flush()
    failing.calls.add("unreferenced")
    box.server.scheduler.clear(ram=False, disk=True)
    failing.calls.clear()
    assert box.flush().durable

    box.disk.tier.tidy()

    check_agreed(box)
    box.kill()
    assert box.server.ask([*prompt, 1]).decision.cached == 6 * GRID


def test_where_nothing_can_leave_nothing_is_written_over_the_budget() -> None:
    box, failing = failing_box(shares=Shares(1 << 18, 1 << 18))
    failing.calls.add("remove")

    for start in range(0, 90, 9):
        box.server.ask(ids(start, 8 * GRID))
        box.flush()
        assert box.disk.tier.space().used <= box.shares.pool

    failing.calls.clear()
    box.clock.advance(DAY_S)
    box.server.ask(ids(5, 8 * GRID))
    box.settle()
    assert box.flush().durable
    check_agreed(box)


class TestRoomThatCannotBeMade:
    """Nobody leaves for a fault: neither in the place of who cannot, nor for what nobody needs."""

    def stored(self, box: Box, count: int) -> list[EntryId]:
        """So many conversations, the least valuable first."""
        for at in range(count):
            box.server.ask(ids(31 * at, (4 + 4 * at) * GRID))
            box.flush()
        return self.entries(box)

    def entries(self, box: Box) -> list[EntryId]:
        by_length = sorted(box.disk.tier.entries(), key=lambda entry: entry.anchors[-1].line)
        return [entry.id for entry in by_length]

    def make_room(self, box: Box, *, leaving: int = 1) -> bool:
        """For so much that the least valuable have to leave, so many of them."""
        by_length = sorted(box.disk.tier.entries(), key=lambda entry: entry.anchors[-1].line)
        freed = sum(sum(objects_of(entry).values()) for entry in by_length[: leaving - 1])
        too_much = box.shares.pool - box.disk.tier.space().used + freed + 1
        return box.disk.tier.make_room(Role.CONVERSATION, too_much)

    def test_who_is_worth_more_does_not_leave_for_one_whom_the_catalog_keeps(self) -> None:
        class Keeping(MemoryCatalog):
            kept: frozenset[EntryId] = frozenset()

            def remove(self, ids: Iterable[EntryId]) -> None:
                going = list(ids)
                if not self.kept.isdisjoint(going):
                    raise StorageUnavailable("its row is locked")
                super().remove(going)

        catalog = Keeping(needs_rebuild=False)
        box = Box(catalog=catalog, shares=Shares(1 << 19, 1 << 19))
        least, *others = self.stored(box, 3)

        catalog.kept = frozenset({least})
        made, stayed = self.make_room(box, leaving=2), self.entries(box)
        catalog.kept = frozenset()

        assert (made, stayed) == (False, [least, *others])
        assert self.make_room(box)
        assert self.entries(box) == others

    def test_only_one_leaves_while_nothing_can_be_deleted(self) -> None:
        media: list[FaultyStorage] = []

        def medium(storage: BlockStorage) -> BlockStorage:
            media.append(FaultyStorage(storage, seed=0))
            return media[-1]

        box = Box(medium=medium)
        _, *others = self.stored(box, 3)

        media[-1].rates = {Fault.FAILED_WRITE: 1.0}
        made, stayed = self.make_room(box), self.entries(box)
        media[-1].rates = {}

        assert (made, stayed) == (False, others)
        assert self.make_room(box), "what could not be deleted goes first"
        assert self.entries(box) == others
        check_agreed(box)

    def test_what_the_catalog_was_not_told_goes_before_anybody_leaves(self) -> None:
        box, failing = failing_box()
        damaged, *others = self.stored(box, 3)
        entry = next(one for one in box.disk.tier.entries() if one.id == damaged)
        failing.calls |= {"remove", "put"}
        box.disk.tier.distrust(entry.blocks[0].name, "planted")
        failing.calls.clear()

        assert self.make_room(box)

        assert self.entries(box) == others
        check_agreed(box)


class TestTheDaysBytes:
    def ledger(self, catalog: Catalog, box: Box, day_bytes: int = 100) -> WriteLedger:
        self.telemetry = RecordingTelemetry()
        guard = WriteGuard(day_bytes, 1 << 20)
        return WriteLedger(guard, catalog, box.clock, self.telemetry, box.local_day)

    def test_the_guard_holds_back_though_the_catalog_takes_nothing_down(self) -> None:
        box, catalog = Box(), FaultyCatalog(MemoryCatalog())
        ledger = self.ledger(catalog, box)
        catalog.failing |= CALLS

        with pytest.raises(StorageUnavailable):
            ledger.wrote(Role.HEAD, 101)

        assert ledger.today == 101
        assert ledger.refuses(WriteCause.HEAD, 8) is not None
        assert ledger.by_day() == {box.local_day(): {"head": 101}}

    def test_what_was_not_taken_down_is_with_the_next_and_once(self) -> None:
        box, inner = Box(), MemoryCatalog()
        catalog = FaultyCatalog(inner)
        ledger = self.ledger(catalog, box)
        catalog.failing.add("add_written")
        with pytest.raises(StorageUnavailable):
            ledger.wrote(Role.HEAD, 5)
        catalog.failing.clear()

        ledger.wrote(Role.CONVERSATION, 7)
        ledger.record()

        assert inner.written(1) == {box.local_day(): {"head": 5, "conversation": 7}}
        assert self.ledger(inner, box).today == 12

    def test_a_ledger_keeps_as_many_days_as_it_shows(self) -> None:
        box, inner = Box(), MemoryCatalog()
        ledger = self.ledger(inner, box)
        for _ in range(DAYS_SHOWN + 3):
            ledger.wrote(Role.HEAD, 5)
            box.clock.advance(DAY_S)

        assert len(ledger.by_day()) == DAYS_SHOWN
        assert ledger.by_day() == inner.written(DAYS_SHOWN)
        assert ledger.today == 0


def test_the_age_that_could_not_be_written_down_is_later() -> None:
    box, failing = failing_box()
    failing.calls.add("set_age_mark")
    box.disk.tier.tidy()
    failing.calls.clear()
    box.clock.advance(9.0)

    box.disk.tier.tidy()

    mark = box.catalog.age_mark()
    assert isinstance(mark, AgeMark)
    assert mark.age_s == box.disk.tier.now_s()


def test_a_head_is_counted_when_the_catalog_counts_again() -> None:
    box, failing = failing_box()
    head = ids(0, 10 * GRID)
    failing.calls.add("count_cold")
    for start in (40, 50):
        box.server.ask([*head, *ids(start, 3 * GRID)])
        box.settle()
        box.server.scheduler.clear_ram()
    assert heads_of(box) == []
    failing.calls.clear()

    for start in (60, 70):
        box.server.ask([*head, *ids(start, 3 * GRID)])
        box.settle()
        box.server.scheduler.clear_ram()

    assert heads_of(box) != []


def heads_of(box: Box) -> list[StoredEntry]:
    return [entry for entry in box.disk.tier.entries() if entry.role is Role.HEAD]
