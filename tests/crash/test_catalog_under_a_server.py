"""A server whose catalog's file system fills up, fails or garbles the file while it is open.

The catalog is the real one on a real file system; engine and medium are fakes, so that only the
catalog fails.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.domain.disk_index import objects_of
from anchorline.domain.stored_entry import ObjectName
from anchorline.ports import telemetry as names
from anchorline.simulation.box import GRID, Box
from support.loop_mount import LoopMount, mounted, why_no_loop_mounts

needs_mounts = pytest.mark.skipif(
    why_no_loop_mounts() is not None, reason=f"no disk can be filled: {why_no_loop_mounts()}"
)

PAUSE_S = 3600.0
"""Longer than any pause after failures."""

ENTRY = 6 * GRID


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


@dataclass
class Catalogs:
    """Opens the catalog of each process at one path."""

    path: Path
    made: list[SqliteCatalog] = field(default_factory=list[SqliteCatalog])

    def __call__(self, _: MemoryCatalog) -> SqliteCatalog:
        if self.made:
            self.made[-1].close()
        self.made.append(SqliteCatalog(self.path))
        return self.made[-1]

    @property
    def now(self) -> SqliteCatalog:
        return self.made[-1]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopMount]:
    with mounted(tmp_path, 16) as made:
        yield made


def serve(box: Box) -> None:
    """What asks everything of the catalog: heads, resumes, saves, damage, what leaves."""
    head = ids(5, 10 * GRID)
    for start in range(40, 80, 10):
        prompt = [*head, *ids(start, 3 * GRID)]
        box.server.ask(prompt)
        box.settle()
        box.flush()
        box.server.scheduler.clear(ram=True, disk=False)
        box.server.ask([*prompt, 1, 2])
        box.clock.advance(60.0)
        box.settle()
    for name in box.names[:1]:
        box.storage.overwrite(ObjectName(name), bytes(4096))
    box.server.scheduler.clear(ram=True, disk=False)
    box.server.ask([*ids(0, ENTRY), 7])
    box.disk.tier.stats(0)
    box.disk.tier.tidy()


def check_agreed(box: Box, catalog: SqliteCatalog) -> None:
    entries = box.disk.tier.entries()
    assert {entry.id: entry for entry in catalog.entries()} == {
        entry.id: entry for entry in entries
    }
    assert set(box.names) == {name for entry in entries for name in objects_of(entry)}


@needs_mounts
def test_a_full_disk_costs_what_cannot_be_noted_and_all_goes_on_when_there_is_room(
    disk: LoopMount,
) -> None:
    catalogs = Catalogs(disk.path / "catalog.db")
    box = Box(index=catalogs)
    box.server.ask(ids(0, ENTRY))
    assert box.flush().durable
    ballast = disk.fill()

    serve(box)
    box.server.ask(ids(33, ENTRY))
    told = box.flush()
    errors = box.server.telemetry.counted_in_all(names.STORAGE_ERRORS)
    ballast.unlink()
    box.disk.tier.tidy()

    assert (told.durable, errors > 0) == (False, True)
    check_agreed(box, catalogs.now)
    box.clock.advance(PAUSE_S)
    assert box.flush().durable
    check_agreed(box, catalogs.now)
    box.disk.tier.close()
    box.kill()
    assert box.server.ask([*ids(33, ENTRY), 1]).decision.cached == ENTRY
    catalogs.now.close()


@needs_mounts
@pytest.mark.parametrize("how", ["becomes read-only", "is gone"])
def test_a_drive_that_fails_under_the_catalog_ends_no_request_and_the_next_start_goes_on(
    disk: LoopMount, how: str
) -> None:
    catalogs = Catalogs(disk.path / "catalog.db")
    box = Box(index=catalogs)
    box.server.ask(ids(0, ENTRY))
    assert box.flush().durable
    before = box.names
    if how == "is gone":
        disk.cut_power()
    else:
        disk.fail()

    box.server.ask(ids(33, ENTRY))
    told = box.flush()
    assert box.server.ask([*ids(33, ENTRY), 1]).decision.cached == ENTRY
    assert box.names == before
    box.disk.tier.tidy()
    box.disk.tier.stats(0)
    box.disk.tier.close()
    disk.power_on()
    box.kill()

    assert not told.durable
    assert box.server.ask([*ids(0, ENTRY), 1]).decision.cached == ENTRY
    assert box.flush().durable
    check_agreed(box, catalogs.now)
    catalogs.now.close()


def test_a_file_that_is_garbled_while_it_is_open_is_made_again_at_the_next_start(
    tmp_path: Path,
) -> None:
    catalogs = Catalogs(tmp_path / "catalog.db")
    box = Box(index=catalogs)
    box.server.ask(ids(0, ENTRY))
    assert box.flush().durable
    for suffix in ("", "-wal"):
        file = tmp_path / f"catalog.db{suffix}"
        with file.open("r+b") as writable:
            writable.write(b"\x55" * file.stat().st_size)

    serve(box)
    box.disk.tier.close()
    box.kill()

    assert catalogs.now.damage is not None
    assert not catalogs.now.needs_rebuild
    prompt = ids(3, ENTRY)
    box.server.ask(prompt)
    assert box.flush().durable
    check_agreed(box, catalogs.now)
    catalogs.now.close()
