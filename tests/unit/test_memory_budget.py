"""Caches ask before they grow, and give back in order before a prefill would not fit."""

from dataclasses import replace

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.fixed_memory import FixedMemory
from anchorline.application.memory_budget import SAMPLES, MemoryBudget
from anchorline.application.memory_stats import GivenBack, Refused
from anchorline.application.reclaimable import CopyAccount
from anchorline.domain.errors import MemoryShort, RequestError
from anchorline.domain.grid import Span
from anchorline.domain.memory_plan import GIVE_BACK_ORDER, LimitsWanted, memory_plan
from anchorline.domain.workspace_model import NO_WORKSPACE
from anchorline.ports import telemetry as names
from support.memory import FakeCache, Pool

IN_ORDER = [name for name in GIVE_BACK_ORDER if name != "responses"]


# --- before a prefill ---------------------------------------------------------------------------


def test_a_prefill_that_fits_takes_nothing_from_anybody() -> None:
    pool = Pool(dict.fromkeys(IN_ORDER, 50))

    pool.budget.before_prefill(100)

    assert [cache.asked for cache in pool.caches.values()] == [[]] * len(IN_ORDER)


def test_the_allocators_free_blocks_are_given_back_before_any_cache() -> None:
    pool = Pool({"snapshots": 100})
    pool.memory.allocated = 600
    pool.memory.use()
    pool.memory.allocated = 200  # 400 bytes are free blocks

    pool.budget.before_prefill(300)

    assert pool.memory.use().reserved == 200
    assert pool.held() == {"snapshots": 100}
    assert pool.budget.stats().given_back == (GivenBack("reserve", "prefill", 1, 400),)


def test_caches_give_back_in_order_and_no_more_than_is_missing() -> None:
    # 100 of the model and 480 of caches; a prefill of 390 tokens takes 400 below the peak of 700.
    pool = Pool(dict.fromkeys(IN_ORDER, 80))

    pool.budget.before_prefill(390)

    assert pool.held() == {
        "snapshots": 0,
        "body_anchors": 0,
        "end_anchors": 0,
        "stash": 40,
        "parked": 80,
        "pinned": 80,
    }
    assert pool.memory.use().reserved + 400 == 700


def test_what_a_cache_has_in_use_stays_and_the_next_one_gives_instead() -> None:
    pool = Pool({"snapshots": 100, "parked": 400})
    pool.caches["snapshots"].kept = 90

    pool.budget.before_prefill(190)

    assert pool.held() == {"snapshots": 90, "parked": 310}


def test_the_system_keeps_its_part_when_others_have_taken_memory_since() -> None:
    # 900 less 100 of the system's: the prefill's 210 leave room for 190 of others and no cache.
    pool = Pool({"snapshots": 100})
    pool.memory.taken = 590

    pool.budget.before_prefill(200)

    assert pool.held() == {"snapshots": 0}


def test_where_others_have_taken_the_systems_part_a_quarter_of_the_rest_is_still_used() -> None:
    pool = Pool()
    pool.memory.taken = 820  # 80 are left

    pool.budget.before_prefill(10)

    with pytest.raises(MemoryShort):
        pool.budget.before_prefill(11)


def test_rows_that_nobody_has_touched_are_room_that_the_prompt_takes() -> None:
    pool = Pool({"snapshots": 300}, unwritten=200)

    pool.budget.before_prefill(150)  # 160 of workspace and 150 of rows, beside 400

    assert pool.held() == {"snapshots": 290}


def test_rows_of_prompts_that_run_already_count_too_and_their_workspace_does_not() -> None:
    # 250 of rows and 160 of workspace, beside 100.
    pool = Pool(unwritten=450, ceiling=300, peak=510)

    pool.budget.before_prefill(100, running=[150])

    with pytest.raises(MemoryShort):
        pool.budget.before_prefill(101, running=[150])


def test_a_prefill_that_does_not_fit_an_empty_server_is_told_to_come_back_with_the_numbers() -> (
    None
):
    pool = Pool({"snapshots": 100}, peak=450, ceiling=400)

    with pytest.raises(MemoryShort) as short:
        pool.budget.before_prefill(400)

    assert str(short.value) == (
        "a prompt of 400 tokens takes 410 B of the host's memory while it is read; 100 B of 450 B "
        "are held, and 900 B are available"
    )
    assert short.value.retry_after_s == 10
    assert pool.budget.stats().short == 1
    assert pool.telemetry.counted(names.MEMORY_SHORT, {"pool": "host"}) == 1


def test_the_pool_is_measured_again_and_no_cache_believed() -> None:
    class Boaster(FakeCache):
        def give_back(self, wanted: int) -> int:
            super().give_back(0)
            return wanted

    pool = Pool()
    boaster = Boaster(pool.memory, "snapshots", 200)
    parked = FakeCache(pool.memory, "parked", 200)
    pool.budget.manage([boaster, parked])

    pool.budget.before_prefill(290)

    assert (boaster.held(), parked.held()) == (200, 100)


def test_a_cache_is_asked_again_where_what_was_shared_is_left_to_who_remains() -> None:
    """Less has come free than it counts then, and it holds no less alone than before."""

    class Sharing(FakeCache):
        """Two of 100 bytes that they share, and 50 of each alone."""

        gone = 0

        def give_back(self, wanted: int) -> int:
            del wanted
            self.gone += 1
            super().give_back(50 if self.gone == 1 else 150)
            return 150

        def held(self) -> int:
            return 100 if self.gone == 0 else super().held()

    pool = Pool()
    sharing = Sharing(pool.memory, "snapshots", 200)
    parked = FakeCache(pool.memory, "parked", 200)
    pool.budget.manage([sharing, parked])

    pool.budget.before_prefill(290)

    assert (sharing.held(), parked.held()) == (0, 200)


def test_whether_a_prompt_can_ever_fit_is_known_before_its_response_and_gives_nothing_back() -> (
    None
):
    pool = Pool({"snapshots": 100, "parked": 200})

    pool.budget.before_response(490)

    assert pool.held() == {"snapshots": 100, "parked": 200}
    tight = Pool({"snapshots": 100}, ceiling=300, peak=400)
    tight.budget.before_response(290)
    with pytest.raises(MemoryShort):
        tight.budget.before_response(291)
    assert tight.held() == {"snapshots": 100}


def test_before_a_response_the_allocator_is_asked_what_it_does_not_say() -> None:
    class Silent(FixedMemory):
        """Free blocks look like allocated ones, as a C allocator's do."""

        hidden = 0

        def give_back(self) -> int:
            self.allocated -= self.hidden
            return self.hidden + super().give_back()

    pool = Pool()
    memory = Silent(total=1000, allocated=500)
    memory.hidden = 400
    budget = MemoryBudget("host", memory, pool.budget.plan, NO_WORKSPACE, pool.telemetry)
    budget.observe(1, 500)

    budget.before_response(100)

    assert memory.allocated == 100


# --- growing ------------------------------------------------------------------------------------


def test_a_cache_grows_up_to_the_ceiling_less_the_slack() -> None:
    pool = Pool({"parked": 0}, ram_bytes_max=1000)

    pool.budget.after_request()

    assert pool.budget.free() == 600 - 50 - 100
    assert pool.budget.may_grow("parked", 363)  # its share of the tier
    assert not pool.budget.may_grow("parked", 451)


def test_the_tier_in_memory_may_hold_its_budget_as_long_as_the_pool_has_the_room() -> None:
    pool = Pool({"parked": 100})

    roomy = pool.budget.tier_bytes_max(100)
    pool.memory.taken = 700
    pool.budget.after_request()
    crowded = pool.budget.tier_bytes_max(100)
    pool.memory.taken = 790
    pool.budget.after_request()

    assert (roomy, crowded) == (220, 100)
    assert pool.budget.tier_bytes_max(100) == 100 - 90


def test_free_blocks_are_room_and_rows_that_slots_will_take_are_not() -> None:
    pool = Pool()
    pool.memory.allocated = 400
    pool.memory.use()
    pool.memory.allocated = 350
    pool.unwritten = 30

    pool.budget.after_request()

    assert pool.budget.free() == 600 - 50 - 350 - 30


def test_growth_leaves_room_for_the_workspace_of_what_runs() -> None:
    pool = Pool({"parked": 0})
    pool.budget.before_prefill(400)

    assert pool.budget.free() == 700 - 100 - 410

    pool.budget.after_request()
    assert pool.budget.free() == 450


def test_growth_never_takes_what_the_system_keeps() -> None:
    pool = Pool({"parked": 0}, taken=600)
    pool.budget.after_request()

    assert pool.budget.free() == 900 - 600 - 100
    pool.memory.taken = 850
    pool.budget.after_request()
    assert pool.budget.free() == -50


def test_on_a_crowded_machine_free_blocks_are_room_and_what_slots_will_take_is_not() -> None:
    engine = CheckableEngine(grid=8, window=64)
    memory = FixedMemory(total=1000, allocated=150, taken=100)
    memory.use()
    memory.allocated = 130  # 20 bytes are free blocks, and 750 are available
    pool = Pool()
    found = replace(pool.budget.plan.found, total=1 << 20, floor=400)
    plan = memory_plan(found, LimitsWanted(ceiling=1 << 19, peak=1 << 19, slack=0))
    budget = MemoryBudget(
        "host",
        memory,
        plan,
        NO_WORKSPACE,
        pool.telemetry,
        CopyAccount(engine.copies),
        unwritten=lambda: 70,
    )

    before = budget.free()
    engine.slots[0].capture_rows(Span(0, 8))

    assert before == 750 + 20 - 70 - 400
    assert before - budget.free() == 8 * engine.profile.layout.row_bytes


def test_copies_of_state_count_from_the_moment_they_are_made() -> None:
    engine = CheckableEngine(grid=8, window=64)
    state, layout = engine.slots[0], engine.profile.layout
    pool = Pool()
    copies = CopyAccount(engine.copies)
    budget = MemoryBudget(
        "host", pool.memory, pool.budget.plan, NO_WORKSPACE, pool.telemetry, copies
    )
    before = budget.free()

    handle = state.capture_rows(Span(0, 8))
    grown = before - budget.free()
    engine.copies.release_rows(handle)

    assert grown == 8 * layout.row_bytes
    assert budget.free() == before


def test_a_cache_has_its_share_and_what_cheaper_ones_leave_unused() -> None:
    # Of 220 bytes snapshots have 40, the stash 20, parked and pinned ones 80 each; anchors 50.
    pool = Pool(dict.fromkeys(IN_ORDER, 0))
    pool.caches["snapshots"].grow(10)
    pool.budget.after_request()

    assert pool.budget.may_grow("snapshots", 30)
    assert not pool.budget.may_grow("snapshots", 31)
    assert pool.budget.may_grow("body_anchors", 30 + 50)
    assert not pool.budget.may_grow("body_anchors", 30 + 50 + 1)
    assert pool.budget.may_grow("stash", 30 + 50 + 50 + 20)
    assert not pool.budget.may_grow("stash", 30 + 50 + 50 + 20 + 1)


def test_the_tier_in_memory_stays_within_its_budget_whatever_its_parts_may() -> None:
    pool = Pool(dict.fromkeys(IN_ORDER, 0))
    pool.budget.after_request()

    assert pool.budget.may_grow("pinned", 220)
    assert not pool.budget.may_grow("pinned", 221)


def test_a_more_valuable_cache_does_not_take_what_a_cheaper_one_uses() -> None:
    # The snapshots have taken more than their share of 40, which is no debt of the others.
    pool = Pool({"snapshots": 50, "stash": 20, "parked": 0}, ram_bytes_max=220)
    pool.budget.after_request()

    assert pool.budget.may_grow("parked", 80)
    assert not pool.budget.may_grow("parked", 81)


def test_what_was_refused_is_counted_with_its_reason() -> None:
    pool = Pool(dict.fromkeys(IN_ORDER, 0))
    pool.budget.after_request()

    pool.budget.may_grow("snapshots", 100)
    pool.budget.may_grow("pinned", 250)
    pool.budget.may_grow("pinned", 600)
    pool.budget.before_prefill(500)
    pool.budget.may_grow("pinned", 210)
    pool.memory.taken = 799
    pool.budget.after_request()
    pool.budget.may_grow("pinned", 100)

    assert pool.budget.stats().refused == (
        Refused("pinned", "machine", 1),
        Refused("pinned", "peak", 1),
        Refused("pinned", "ram", 2),
        Refused("snapshots", "share", 1),
    )
    assert (
        pool.telemetry.counted(
            names.MEMORY_REFUSED, {"pool": "host", "cache": "snapshots", "reason": "share"}
        )
        == 1
    )


# --- after a request ----------------------------------------------------------------------------


def test_free_blocks_over_the_slack_are_released_after_a_request() -> None:
    pool = Pool()
    pool.memory.allocated = 300
    pool.memory.use()

    pool.memory.allocated = 250
    pool.budget.after_request()
    kept = pool.memory.use().reserved
    pool.memory.allocated = 249
    pool.budget.after_request()

    assert kept == 300
    assert pool.memory.use().reserved == 249
    assert pool.budget.stats().given_back == (GivenBack("reserve", "slack", 1, 51),)


def test_what_is_over_the_ceiling_goes_back_between_requests() -> None:
    pool = Pool({"snapshots": 100, "parked": 500})

    pool.budget.after_request()

    assert pool.held() == {"snapshots": 0, "parked": 500}
    assert pool.budget.stats().given_back == (GivenBack("snapshots", "ceiling", 1, 100),)
    assert (
        pool.telemetry.counted(
            names.MEMORY_GIVEN_BACK, {"pool": "host", "cache": "snapshots", "reason": "ceiling"}
        )
        == 100
    )


def test_what_caches_hold_is_told_when_nothing_runs() -> None:
    pool = Pool({"parked": 70})

    pool.budget.after_request([10])
    running = pool.telemetry.gauged(names.MEMORY_CACHE_BYTES, {"pool": "host", "cache": "parked"})
    pool.budget.after_request()

    assert running is None
    assert (
        pool.telemetry.gauged(names.MEMORY_CACHE_BYTES, {"pool": "host", "cache": "parked"}) == 70
    )


# --- what is observed ---------------------------------------------------------------------------


def test_a_chunk_that_takes_more_than_estimated_raises_the_workspace() -> None:
    pool = Pool(peak=600)

    pool.budget.forwarding(64)
    pool.memory.allocated += 150
    pool.memory.allocated -= 150
    pool.budget.forwarded()

    assert pool.budget.stats().workspace.raised_bytes == 150 - 74
    pool.budget.before_prefill(500 - 10 - 76)
    with pytest.raises(MemoryShort):
        pool.budget.before_prefill(500 - 10 - 75)


def test_what_rises_while_something_else_is_at_work_is_no_workspace() -> None:
    pool = Pool()
    pool.budget.is_disturbed = lambda: True

    pool.budget.forwarding(64)
    pool.memory.allocated += 300
    pool.budget.forwarded()

    assert pool.budget.stats().workspace.raised_bytes == 0


def test_what_is_written_meanwhile_has_room_beside_a_prefill() -> None:
    pool = Pool({"snapshots": 100}, beside=60)

    pool.budget.before_prefill(450)  # 460 of workspace and 60, beside 200 of 700

    assert pool.held() == {"snapshots": 80}


def test_caches_leave_room_for_what_is_written_between_requests() -> None:
    assert Pool(beside=0).budget.free() == 600 - 50 - 100
    assert Pool(beside=80).budget.free() == 600 - 80 - 100


def test_what_came_and_went_before_a_chunk_is_none_of_its_workspace() -> None:
    pool = Pool()
    pool.memory.allocated += 400
    pool.memory.allocated -= 400

    pool.budget.forwarding(64)
    pool.budget.forwarded()

    assert pool.budget.stats().workspace.raised_bytes == 0


def test_rows_that_a_chunk_is_the_first_to_write_are_no_workspace() -> None:
    pool = Pool(unwritten=400)

    pool.budget.forwarding(64)
    pool.memory.allocated += 300
    pool.unwritten -= 300
    pool.budget.forwarded()

    assert pool.budget.stats().workspace.raised_bytes == 0


def test_blocks_that_the_allocator_keeps_of_a_chunk_are_workspace() -> None:
    pool = Pool(peak=600)

    pool.budget.forwarding(64)
    pool.memory.allocated += 150
    pool.budget.forwarded()

    assert pool.budget.stats().workspace.raised_bytes == 150 - 74


def test_after_some_prefills_of_a_length_nobody_watches_any_more() -> None:
    pool = Pool()
    for _ in range(SAMPLES):
        pool.budget.forwarding(70)
        pool.budget.forwarded()

    pool.budget.forwarding(80)
    pool.memory.allocated += 300
    pool.memory.allocated -= 300
    pool.budget.forwarded()

    assert pool.budget.stats().workspace.raised_bytes == 0
    pool.budget.forwarding(130)
    pool.memory.allocated += 300
    pool.memory.allocated -= 300
    pool.budget.forwarded()
    assert pool.budget.stats().workspace.raised_bytes == 300 - 140


# --- limits -------------------------------------------------------------------------------------


def test_limits_that_are_changed_are_in_force_at_once() -> None:
    pool = Pool({"snapshots": 100, "parked": 100})

    plan = pool.budget.set_limits({"ceiling": 250})

    assert (plan.ceiling.bytes, plan.peak.bytes) == (250, 700)
    assert pool.held() == {"snapshots": 50, "parked": 100}
    assert (
        pool.telemetry.gauged(names.MEMORY_LIMIT_BYTES, {"pool": "host", "limit": "ceiling"}) == 250
    )


def test_a_smaller_budget_of_the_tier_in_memory_is_reached_at_once() -> None:
    pool = Pool({"snapshots": 60, "body_anchors": 40, "parked": 100})

    pool.budget.set_limits({"ram_bytes_max": 70})

    assert pool.held() == {"snapshots": 0, "body_anchors": 40, "parked": 70}
    assert pool.budget.stats().given_back == (
        GivenBack("parked", "limits", 1, 30),
        GivenBack("snapshots", "limits", 1, 60),
    )


def test_a_limit_may_be_left_to_the_server_again() -> None:
    pool = Pool()

    plan = pool.budget.set_limits({"ceiling": None, "peak": None})

    assert plan.ceiling.bytes == 100 + 800 // 2
    assert plan.peak.bytes == plan.ceiling.bytes


def test_limits_that_make_no_sense_change_nothing() -> None:
    pool = Pool({"parked": 400})

    with pytest.raises(RequestError) as refused:
        pool.budget.set_limits({"ceiling": 200, "peak": 150})

    assert refused.value.field == "peak"
    assert pool.budget.plan.ceiling.bytes == 600
    assert pool.held() == {"parked": 400}


def test_caches_come_in_the_order_in_which_they_give_back() -> None:
    pool = Pool()
    parked, snapshots = (FakeCache(pool.memory, name) for name in ("parked", "snapshots"))

    with pytest.raises(AssertionError, match="out of order"):
        pool.budget.manage([parked, snapshots])


def test_every_figure_is_told_with_where_it_comes_from() -> None:
    pool = Pool({"parked": 30}, unwritten=40, ceiling=None)
    pool.budget.before_prefill(120)

    stats = pool.budget.stats()

    assert (stats.pool, stats.total, stats.held, stats.unwritten) == ("host", 1000, 130, 40)
    assert (stats.available, stats.free, stats.running) == (870, 0, 120)
    assert stats.caches == {"parked": 30}
    assert list(stats.limits) == ["ceiling", "peak", "slack", "floor", "anchors", "ram_bytes_max"]
    assert stats.limits["peak"].why == "as set"
    assert "for model and slots" in stats.limits["ceiling"].why
    assert (stats.workspace.floor_bytes, stats.workspace.window_bytes) == (10, 500)
