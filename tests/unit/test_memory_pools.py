"""A server's pools: one where the model runs on the host, two where it runs on a device."""

from dataclasses import replace

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.fixed_memory import FixedMemory
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.application.memory_pools import MemoryPools
from anchorline.application.memory_setup import fitted, manage_caches, memory_pools
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.byte_size import MIB
from anchorline.domain.errors import MemoryShort, RequestError
from anchorline.domain.grid import Span
from anchorline.domain.memory_plan import LimitsWanted
from anchorline.simulation.history import History

ANCHORS = AnchorBudget(bytes_max=1 << 20, count_min=5, newest_kept=2)


def engine_of(slots: int = 2) -> CheckableEngine:
    return CheckableEngine(slots=slots, grid=8, window=256)


def pools_of(
    engine: CheckableEngine, *, host: FixedMemory, device: FixedMemory | None = None, **wanted: int
) -> MemoryPools:
    return memory_pools(
        engine,
        RecordingTelemetry(),
        host,
        None if device is None else ("cuda:0", device),
        LimitsWanted().changed(wanted),
        ANCHORS,
    )


def memory(total: int = 64 * MIB, allocated: int = MIB) -> FixedMemory:
    return FixedMemory(total=total, allocated=allocated)


def test_on_the_host_one_pool_has_rows_anchors_and_workspace() -> None:
    engine = engine_of()
    layout, profile = engine.profile.layout, engine.profile
    pools = pools_of(engine, host=memory(), ram_bytes_max=2 * MIB)

    found = pools.model.plan.found

    assert pools.model is pools.host
    assert found.unwritten == 2 * 256 * layout.row_bytes
    assert found.anchors == 2 * (256 // 8 + 2 + 1) * layout.section_bytes
    assert found.workspace == min(
        profile.workspace_floor_bytes + 256 * profile.workspace_row_bytes,
        profile.workspace_bytes_max,
    )
    assert pools.host.plan.ram_bytes_max.bytes == 2 * MIB


def test_a_device_has_anchors_and_workspace_and_the_host_the_rows_that_are_kept() -> None:
    engine = engine_of()
    pools = pools_of(engine, host=memory(), device=memory(), ceiling=32 * MIB, ram_bytes_max=MIB)

    on_device, on_host = pools.model.plan, pools.host.plan

    assert [stats.pool for stats in pools.stats()] == ["cuda:0", "host"]
    assert (on_device.ceiling.bytes, on_device.ram_bytes_max.bytes) == (32 * MIB, 0)
    assert on_device.found.unwritten == on_host.found.unwritten == 0
    assert (on_host.found.workspace, on_host.found.anchors) == (0, 0)
    assert on_host.ram_bytes_max.bytes == MIB
    assert on_device.floor.bytes < on_host.floor.bytes


def test_copies_count_in_the_pool_that_they_stand_in() -> None:
    engine = engine_of()
    pools = pools_of(engine, host=memory(), device=memory())
    before = (pools.model.free(), pools.host.free())

    engine.slots[0].capture_sections()
    engine.slots[0].capture_rows(Span(0, 8))

    layout = engine.profile.layout
    assert before[0] - pools.model.free() == layout.section_bytes
    assert before[1] - pools.host.free() == 8 * layout.row_bytes


def test_a_request_has_to_fit_each_pool() -> None:
    host, device = memory(), memory()
    pools = pools_of(engine_of(), host=host, device=device)
    pools.model.observe(100, MIB)
    pools.before_response(100)
    pools.before_prefill(100)
    pools.after_request()

    device.taken = 62 * MIB + 1

    with pytest.raises(MemoryShort, match="cuda:0's memory"):
        pools.before_prefill(100)
    with pytest.raises(MemoryShort):
        pools.before_response(100)


def test_limits_are_the_models_pools_unless_another_is_named() -> None:
    pools = pools_of(engine_of(), host=memory(), device=memory())

    pools.set_limits(None, {"ceiling": 20 * MIB})
    pools.set_limits("host", {"ram_bytes_max": 3 * MIB})

    assert pools.model.plan.ceiling.bytes == 20 * MIB
    assert pools.host.plan.ceiling.bytes != 20 * MIB
    assert pools.host.plan.ram_bytes_max.bytes == 3 * MIB


def test_rows_are_kept_on_the_host_and_no_device_has_a_budget_for_them() -> None:
    pools = pools_of(engine_of(), host=memory(), device=memory())

    with pytest.raises(RequestError, match="of the pool 'host'") as refused:
        pools.set_limits(None, {"ram_bytes_max": MIB})

    assert refused.value.field == "ram_bytes_max"


def test_what_chunks_take_is_observed_where_the_model_runs() -> None:
    host, device = memory(), memory()
    pools = pools_of(engine_of(), host=host, device=device)

    pools.forwarding(64)
    for pool in (host, device):
        pool.allocated += 8 * MIB
        pool.allocated -= 8 * MIB
    pools.forwarded()

    on_device, on_host = pools.stats()
    assert on_device.workspace.raised_bytes > 7 * MIB
    assert on_host.workspace.window_bytes == 0


def test_anchors_are_cut_to_what_the_plan_has_for_them_and_else_left_as_they_are() -> None:
    engine = engine_of()
    roomy = pools_of(engine, host=memory())
    ceiling = roomy.model.plan.found.engine + 2000
    tight = pools_of(engine, host=memory(), ceiling=ceiling, slack=0)

    assert roomy.model.plan.anchors.bytes > 1000 == tight.model.plan.anchors.bytes
    assert fitted(ANCHORS, roomy, 2) == ANCHORS
    assert fitted(ANCHORS, tight, 2) == replace(ANCHORS, bytes_max=500)


@pytest.mark.parametrize("on_device", [False, True])
def test_each_pool_manages_what_stands_in_it(on_device: bool) -> None:
    history = History(anchors=ANCHORS)
    engine = history.engine
    pools = pools_of(engine, host=memory(), device=memory() if on_device else None)

    manage_caches(pools, engine, history.scheduler)

    names = [list(stats.caches) for stats in pools.stats()]
    assert names == (
        [["body_anchors", "end_anchors"], []] if on_device else [["body_anchors", "end_anchors"]]
    )
