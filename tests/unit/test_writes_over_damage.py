"""Writes that counted on an object, or on rows, and these turn out to be others meanwhile."""

from collections.abc import Mapping

import pytest

from anchorline.adapters.memory.checkable_state import CheckableState
from anchorline.application.durability import FlushReport
from anchorline.domain.disk_index import objects_of
from anchorline.domain.grid import Span
from anchorline.domain.sums import Sums
from anchorline.ports import telemetry as names
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


def test_rows_that_are_not_what_was_summed_up_are_not_stored_and_people_are_told() -> None:
    """Where the tier is thought to have them rows are summed up, and copied only if it has not."""
    box = Box()
    box.server.ask(ids(0, 40))
    assert box.flush().durable
    box.server.ask([*ids(0, 40), *ids(50, 30)])
    before = box.names
    right, once = CheckableState.row_sums, {Span(0, 8)}

    def wrong(state: CheckableState, span: Span) -> Mapping[str, Sums]:
        change = 1 if span in once else 0
        once.discard(span)
        sums = right(state, span).items()
        return {name: Sums(one.plain ^ change, one.weighted) for name, one in sums}

    with pytest.MonkeyPatch.context() as memory_that_forgets:
        memory_that_forgets.setattr(CheckableState, "row_sums", wrong)
        report = box.flush()

    skipped = {"reason": "rows_changed", "role": "conversation"}
    assert (report.durable, report.failed) == (False, 1)
    assert box.names == before
    assert box.server.telemetry.counted(names.WRITES_SKIPPED, skipped) == 1
    assert box.server.telemetry.records[-1]["event"] == "rows_changed"
    assert box.flush().durable, "the medium is not to blame, and is not left alone"
