"""A state is read into memory that has its rows already: what lies below them is left alone."""

from anchorline.domain.entry import Tier
from anchorline.simulation.box import GRID, Box
from support.reading_ahead import (
    PLENTY,
    assert_nothing_is_held,
    busy,
    counts_of,
    decision_of,
    ids,
    pump,
    stored,
)


def test_an_anchor_below_rows_that_memory_has_is_not_taken_for_damage() -> None:
    """Held against the rows above it, it would be no anchor of those.

    Two requests wait for lines of one stored state, and its rows are in memory up to the higher.
    """
    box = Box(ram_bytes_max=PLENTY)
    head = ids(0, 10 * GRID)
    first, _ = stored(box, [*head, *ids(50, 2 * GRID)], [*head, *ids(80, 3)])
    box.server.ask([*first, 5])  # its only anchors are above the head
    busy(box)
    higher = box.server.submit([*head, 95, 94, 93])
    lower = box.server.submit([*head[: 9 * GRID + 2], 96, 95])
    pump(box, lambda: counts_of(box).arrived >= 1)

    decisions = [decision_of(box, request) for request in (higher, lower)]

    assert [one.quarantined for one in decisions] == [0, 0]
    assert box.disk.tier.counters.quarantined == 0
    assert [one.cached for one in decisions] == [10 * GRID, 9 * GRID]
    assert decisions[0].tier is Tier.RAM
    assert_nothing_is_held(box)
