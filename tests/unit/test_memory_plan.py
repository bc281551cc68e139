"""How much memory is taken of what was found, and where each figure comes from."""

from dataclasses import replace

import pytest

from anchorline.domain.byte_size import GIB, MIB
from anchorline.domain.errors import RequestError
from anchorline.domain.memory_plan import (
    DEVICE_FLOOR_PART,
    LimitsWanted,
    MemoryFound,
    memory_plan,
    system_floor,
)

LARGE = MemoryFound(
    total=119 * GIB,
    available=62 * GIB,
    held=27 * GIB,
    unwritten=30 * GIB,
    window=262_144,
    row_bytes=120_000,
    workspace=11 * GIB,
    anchors=3 * GIB,
    floor=system_floor(119 * GIB),
)
SMALL = MemoryFound(
    total=8 * GIB,
    available=6 * GIB,
    held=GIB,
    unwritten=GIB,
    window=8192,
    row_bytes=131_072,
    workspace=GIB // 2,
    anchors=GIB // 8,
    floor=system_floor(8 * GIB),
)


def gib(found: MemoryFound, **wanted: int | None) -> dict[str, float]:
    plan = memory_plan(found, LimitsWanted().changed(wanted))
    return {name: round(figure.bytes / GIB, 3) for name, figure in plan.figures().items()}


def test_a_large_machine_is_shared_and_its_system_keeps_its_part() -> None:
    # 62 GiB are available; 30 of them are the slots' own, and about 15 the system's.
    plan = gib(LARGE)

    assert plan["floor"] == pytest.approx(14.875)
    assert plan["ceiling"] == pytest.approx(57 + 17.125 / 2, abs=0.001)
    assert plan["peak"] == pytest.approx(57 + 17.125, abs=0.001)
    assert plan["slack"] == pytest.approx(17.125 / 16, abs=0.001)


def test_the_tier_in_memory_gets_what_is_left_under_the_ceiling_and_no_more_than_is_good() -> None:
    left = gib(LARGE)
    assert left["ram_bytes_max"] == pytest.approx(
        left["ceiling"] - 57 - left["slack"] - left["anchors"], abs=0.002
    )
    wide = replace(LARGE, available=LARGE.available + 60 * GIB, total=200 * GIB)
    assert gib(wide)["ram_bytes_max"] == 11


def test_a_small_machine_has_small_caches_and_not_none() -> None:
    plan = gib(SMALL)

    assert plan["floor"] == 1
    assert plan["ceiling"] == 2 + 2
    assert plan["peak"] == 2 + 2 + 0.5
    assert plan["slack"] == 0.25
    assert plan["anchors"] == 0.125
    assert plan["ram_bytes_max"] == 2 - 0.25 - 0.125


def test_where_others_have_taken_the_floor_a_quarter_of_the_rest_is_still_used() -> None:
    plan = gib(replace(SMALL, available=GIB, unwritten=0))

    assert plan["ceiling"] == 1 + 0.125
    assert plan["peak"] == 1 + 0.25


def test_rows_that_do_not_fit_leave_nothing_for_caches() -> None:
    plan = gib(replace(SMALL, unwritten=20 * GIB))

    assert (plan["ceiling"], plan["peak"]) == (21, 21)
    assert (plan["ram_bytes_max"], plan["anchors"], plan["slack"]) == (0, 0, 0)


def test_anchors_take_half_of_the_caches_room_at_most() -> None:
    assert gib(replace(SMALL, anchors=10 * GIB))["anchors"] == (2 - 0.25) / 2


def test_a_device_keeps_less_for_a_system_that_does_not_live_in_it() -> None:
    assert system_floor(64 * GIB, DEVICE_FLOOR_PART) == 2 * GIB


def test_limits_that_are_set_stand_and_the_others_follow_them() -> None:
    plan = memory_plan(SMALL, LimitsWanted(ceiling=5 * GIB, ram_bytes_max=256 * MIB))

    assert (plan.ceiling.bytes, plan.ceiling.why) == (5 * GIB, "as set")
    assert plan.peak.bytes == 5 * GIB + GIB // 2
    assert (plan.ram_bytes_max.bytes, plan.ram_bytes_max.why) == (256 * MIB, "as set")
    assert plan.slack.bytes == 3 * GIB // 8


def test_a_peak_alone_bounds_the_ceiling_too() -> None:
    plan = memory_plan(SMALL, LimitsWanted(peak=3 * GIB))

    assert (plan.ceiling.bytes, plan.peak.bytes) == (3 * GIB, 3 * GIB)


def test_a_ceiling_below_the_model_leaves_requests_their_workspace_and_caches_nothing() -> None:
    plan = memory_plan(SMALL, LimitsWanted(ceiling=GIB))

    assert plan.peak.bytes == 2 * GIB + GIB // 2
    assert (plan.anchors.bytes, plan.ram_bytes_max.bytes) == (0, 0)


def test_a_ceiling_beyond_what_is_free_is_the_operators_own_and_has_nothing_on_top() -> None:
    plan = memory_plan(SMALL, LimitsWanted(ceiling=7 * GIB))

    assert plan.peak.bytes == 7 * GIB


def test_a_ceiling_or_peak_of_zero_is_computed_and_zero_of_the_others_is_none() -> None:
    plan = memory_plan(SMALL, LimitsWanted(ceiling=0, peak=0, slack=0, ram_bytes_max=0))

    assert (plan.ceiling, plan.peak) == (
        memory_plan(SMALL, LimitsWanted()).ceiling,
        memory_plan(SMALL, LimitsWanted()).peak,
    )
    assert (plan.slack.bytes, plan.ram_bytes_max.bytes) == (0, 0)


@pytest.mark.parametrize(
    ("wanted", "field", "says"),
    [
        ({"ceiling": 9 * GIB}, "ceiling", f"not between 0 and the {8 * GIB} bytes there are"),
        ({"peak": 9 * GIB}, "peak", "not between 0"),
        ({"slack": -1}, "slack", "-1 is not between 0"),
        ({"ram_bytes_max": 9 * GIB}, "ram_bytes_max", "not between 0"),
        ({"ceiling": 4 * GIB, "peak": 3 * GIB}, "peak", "3.0 GiB is less than the ceiling of 4.0"),
        ({"ceiling": 2 * GIB, "slack": 3 * GIB}, "slack", "more than the ceiling of 2.0 GiB"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_name_and_number(
    wanted: dict[str, int], field: str, says: str
) -> None:
    with pytest.raises(RequestError, match=says) as refused:
        memory_plan(SMALL, LimitsWanted().changed(wanted))

    assert refused.value.field == field


def test_each_figure_says_where_it_comes_from() -> None:
    why = {
        name: figure.why for name, figure in memory_plan(SMALL, LimitsWanted()).figures().items()
    }

    assert why["ceiling"] == (
        "2.0 GiB for model and slots, and half of the 4.0 GiB that were free beside 1.0 GiB for "
        "the system"
    )
    assert why["peak"] == "the ceiling, and 512.0 MiB of workspace for the longest prompt"
    assert why["floor"] == "of 8.0 GiB, for the system"


def test_shares_divide_the_tier_as_a_large_machine_does() -> None:
    plan = memory_plan(SMALL, LimitsWanted(ram_bytes_max=11 * MIB))

    assert plan.shares() == {
        "responses": 0,
        "snapshots": 2 * MIB,
        "stash": MIB,
        "parked": 4 * MIB,
        "pinned": 4 * MIB,
        "body_anchors": plan.anchors.bytes,
        "end_anchors": plan.anchors.bytes,
    }
