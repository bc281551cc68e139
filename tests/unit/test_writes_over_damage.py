"""A write that counts on a stored object, and the object turns out to be damaged meanwhile."""

import pytest

from anchorline.application.durability import FlushReport
from anchorline.domain.disk_index import objects_of
from anchorline.simulation.box import Box


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_entry_is_not_committed_without_an_object_that_was_moved_aside(which: int) -> None:
    box = Box()
    box.server.ask(ids(0, 40))
    box.flush()
    stored = sorted(name for entry in box.disk.tier.entries() for name in objects_of(entry))
    box.server.ask([*ids(0, 40), *ids(50, 30)])
    reports: list[FlushReport] = []
    box.server.scheduler.flush(reports.append)
    box.server.step()
    (write,) = box.disk.writes.of_slot(0)
    while not write.work.copied:
        box.server.step()
        box.jobs.step()
    counted_on = sorted(set(write.work.names) & set(stored))

    box.disk.tier.distrust(counted_on[which], "found damaged by a reader")
    box.settle()

    assert not reports[0].durable
    needed = {name for entry in box.disk.tier.entries() for name in objects_of(entry)}
    assert needed <= set(box.names)
    assert box.flush().durable
