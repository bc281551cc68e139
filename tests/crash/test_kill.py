"""A process killed at any moment leaves every object absent or exact, and every commit whole."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.domain.stored_entry import ObjectName
from contract.catalog_contract import make_entry
from support.crash_process import KINDS, LENGTHS, ROOM, CrashProcess, crash_process
from support.disk_use import disk_use
from support.stored_objects import check_object, make_object

STEPS_MAX = 40
FIRST, SECOND = 1, 2


@pytest.fixture(scope="module")
def process() -> Iterator[CrashProcess]:
    with crash_process() as started:
        yield started


def survivors(kind: str, root: Path) -> set[ObjectName]:
    """The objects that a new process finds, each of which is exact; and the budget is true."""
    storage = KINDS[kind](root, bytes_max=ROOM)
    try:
        found = list(storage.names())
        for stored in found:
            check_object(storage, stored.name)
        assert storage.space().used == sum(stored.nbytes for stored in found) == disk_use(root)
        return {stored.name for stored in found}
    finally:
        storage.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [[], [FIRST]], ids=["in a new root", "beside another"])
def test_a_kill_before_any_step_of_a_put_leaves_the_object_absent_or_exact(
    process: CrashProcess, tmp_path: Path, kind: str, before: list[int]
) -> None:
    name = make_object(SECOND, LENGTHS)[0]
    kept = {make_object(seed, LENGTHS)[0] for seed in before}
    outcomes: list[bool] = []

    for step in range(1, STEPS_MAX):
        root = tmp_path / str(step)
        ended = process.run("put", kind=kind, root=str(root), seeds=[*before, SECOND], step=step)
        found = survivors(kind, root)
        assert found - {name} == kept
        outcomes.append(name in found)
        if ended == "done":
            break
        assert ended == "killed"

    # It is there from its renaming on, and never goes again.
    there = sum(outcomes)
    assert outcomes == [False] * (len(outcomes) - there) + [True] * there
    assert there >= 4  # the put's end, a directory, the sync's end, and the end of all
    assert len(outcomes) >= 9


@pytest.mark.parametrize("kind", KINDS)
def test_a_put_after_a_kill_makes_the_object_whole(
    process: CrashProcess, tmp_path: Path, kind: str
) -> None:
    root = str(tmp_path / "root")
    for step in ("make directory", "create", "write on", "rename", "done", "sync directory"):
        process.run("put", kind=kind, root=root, seeds=[SECOND], step=step)

    assert process.run("put", kind=kind, root=root, seeds=[SECOND]) == "done"

    assert survivors(kind, tmp_path / "root") == {make_object(SECOND, LENGTHS)[0]}


def test_after_many_saves_and_a_kill_all_are_there_and_orphans_are_reclaimed(
    process: CrashProcess, tmp_path: Path
) -> None:
    seeds = range(10, 30)
    made = [make_object(seed, LENGTHS) for seed in seeds]
    nbytes = sum(len(part) for part in made[0][1])

    ended = process.run("put", kind="direct", root=str(tmp_path), seeds=list(seeds), step="rename")

    assert ended == "killed"
    assert disk_use(tmp_path) == 20 * nbytes  # the last one as a temporary file
    assert survivors("direct", tmp_path) == {name for name, _ in made[:-1]}
    assert disk_use(tmp_path) == 19 * nbytes


def test_the_lock_of_a_killed_server_is_free(process: CrashProcess, tmp_path: Path) -> None:
    root = str(tmp_path / "root")

    assert process.run("put", kind="direct", root=root, seeds=[1], step="write") == "killed"

    assert process.run("open", root=root) == "done"


def test_a_second_server_in_another_process_is_refused_and_the_first_goes_on(
    process: CrashProcess, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    storage = KINDS["direct"](root, bytes_max=ROOM)

    refused = process.run("open", root=str(root))

    assert refused.startswith("StorageUnavailable: the cache directory")
    assert "in use by another server" in refused
    name, parts = make_object(1)
    storage.put(name, parts)
    check_object(storage, name)
    storage.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_kill_during_commits_loses_no_commit_and_leaves_none_by_half(
    process: CrashProcess, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    path, told = tmp_path / "catalog.db", tmp_path / "told"

    ended = process.run(
        "commit",
        catalog=str(path),
        told=str(told),
        kill_after=chance.randrange(1, 12),
        delay_s=chance.random() * 0.01,
    )

    assert ended == "killed"
    acknowledged = len(told.read_text().splitlines())
    catalog = SqliteCatalog(path)
    assert catalog.damage is None
    found = {entry.id: entry for entry in catalog.entries()}
    assert len(found) - acknowledged in (0, 1)
    for number in range(len(found)):
        expected = make_entry(str(number), range(number, number + 40))
        assert found[expected.id] == expected
    catalog.close()
