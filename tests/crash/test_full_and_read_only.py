"""A file system that fills up, or that may no longer be written to, costs what is not stored yet.

Nothing that was stored is lost, the budget stays true, and writing goes on by itself when the cause
is gone.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anchorline.adapters.nvme.file_storage import FileStorage
from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.domain.errors import (
    ObjectMissing,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)
from contract.catalog_contract import ids, make_entry
from support.crash_process import KINDS
from support.disk_use import disk_use
from support.loop_mount import LoopMount, mounted, why_no_loop_mounts
from support.stored_objects import check_object, make_object

pytestmark = pytest.mark.skipif(
    why_no_loop_mounts() is not None, reason=f"no disk can be filled: {why_no_loop_mounts()}"
)

LENGTHS = (1 << 20, 5000)
NBYTES = (1 << 20) + 8192 + 4096
ENDLESS = 1 << 50


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopMount]:
    with mounted(tmp_path, 24) as made:
        yield made


@pytest.fixture(params=KINDS)
def storage(disk: LoopMount, request: pytest.FixtureRequest) -> Iterator[FileStorage]:
    storage = KINDS[request.param](disk.path / "root", bytes_max=ENDLESS)
    yield storage
    storage.close()


def check_all(storage: FileStorage) -> int:
    """How many objects there are, each exact, and all that is used."""
    found = list(storage.names())
    for stored in found:
        check_object(storage, stored.name)
    assert storage.space().used == sum(stored.nbytes for stored in found) == disk_use(storage.path)
    return len(found)


def test_a_full_disk_takes_no_more_and_loses_nothing(storage: FileStorage) -> None:
    made = [make_object(seed, LENGTHS) for seed in range(40)]
    stored = 0
    while storage.space().free >= NBYTES:
        storage.put(*made[stored])
        stored += 1

    with pytest.raises(StorageFull, match="free on the file system"):
        storage.put(*made[stored])

    assert check_all(storage) == stored > 5
    storage.delete(made[0][0])
    storage.delete(made[1][0])
    assert storage.put(*made[stored]) == NBYTES
    assert check_all(storage) == stored - 1


@pytest.mark.parametrize(
    "step", ["make directory", "create", "write", "sync file", "rename", "sync directory"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_somebody_else_fills_during_a_put_leaves_nothing_of_it(
    disk: LoopMount, kind: str, step: str
) -> None:
    ballast: list[Path] = []

    def fill(reached: str) -> None:
        if reached == step and not ballast:
            ballast.append(disk.fill())

    storage = KINDS[kind](disk.path / "root", bytes_max=ENDLESS)
    storage.put(*make_object(1, LENGTHS))
    storage.sync()
    storage.close()
    storage = KINDS[kind](disk.path / "root", bytes_max=ENDLESS, on_step=fill)
    name, parts = make_object(2, LENGTHS)

    try:
        stored = storage.put(name, parts) == NBYTES
        storage.sync()
    except StorageFull:
        stored = False

    assert check_all(storage) == 1 + stored
    assert stored or step in ("make directory", "create", "write", "sync file")
    ballast[0].unlink()
    storage.put(name, parts)
    assert check_all(storage) == 2
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_on_a_full_disk_serves_what_is_there(disk: LoopMount, kind: str) -> None:
    storage = KINDS[kind](disk.path / "root", bytes_max=ENDLESS)
    made = [make_object(seed, LENGTHS) for seed in range(3)]
    for name, parts in made:
        storage.put(name, parts)
    storage.close()
    ballast = disk.fill()

    storage = KINDS[kind](disk.path / "root", bytes_max=ENDLESS)

    assert check_all(storage) == 3
    with pytest.raises(StorageFull):
        storage.put(*make_object(9, LENGTHS))
    storage.quarantine(made[0][0], "found bad on a full disk")
    with pytest.raises(ObjectMissing):
        check_object(storage, made[0][0])
    ballast.unlink()
    assert storage.put(*made[0]) == NBYTES
    storage.close()


def test_a_first_start_on_a_full_disk_says_so(disk: LoopMount) -> None:
    ballast = disk.fill()

    with pytest.raises(StorageFull, match="/root: No space left on device"):
        KINDS["direct"](disk.path / "root", bytes_max=ENDLESS)

    ballast.unlink()
    storage = KINDS["direct"](disk.path / "root", bytes_max=ENDLESS)
    assert storage.put(*make_object(1, LENGTHS)) == NBYTES
    storage.close()


def test_space_that_must_stay_free_is_kept_while_others_write(disk: LoopMount) -> None:
    floor = 8 << 20

    def write_beside(step: str) -> None:
        if step == "write":
            with (disk.path / "beside").open("ab") as file:
                file.write(bytes(disk.free() - floor + 4096))

    storage = KINDS["direct"](
        disk.path / "root", bytes_max=ENDLESS, free_min=floor, on_step=write_beside
    )

    with pytest.raises(StorageFull, match="must stay so"):
        storage.put(*make_object(1, LENGTHS))

    assert check_all(storage) == 0
    (disk.path / "beside").unlink()
    storage.close()


def test_room_that_one_put_was_promised_is_not_given_to_another(disk: LoopMount) -> None:
    refused: list[str] = []

    def put_another(step: str) -> None:
        if step == "write" and not refused:
            refused.append(step)
            with pytest.raises(StorageFull, match="must stay so"):
                storage.put(*make_object(2, LENGTHS))

    storage = KINDS["direct"](disk.path / "root", bytes_max=ENDLESS)
    storage.put(*make_object(1, (1,)))
    storage.close()
    floor = disk.free() - NBYTES * 3 // 2  # room for one of the two
    storage = KINDS["direct"](
        disk.path / "root", bytes_max=ENDLESS, free_min=floor, on_step=put_another
    )

    assert storage.put(*make_object(3, LENGTHS)) == NBYTES

    assert refused == ["write"]
    assert check_all(storage) == 2
    storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_becomes_read_only_is_read_on_and_written_again_after_a_mount(
    disk: LoopMount, kind: str
) -> None:
    storage = KINDS[kind](disk.path / "root", bytes_max=ENDLESS)
    first, second = make_object(1, LENGTHS), make_object(2, LENGTHS)
    storage.put(*first)
    storage.sync()
    disk.fail()

    for call in (
        lambda: storage.put(*second),
        lambda: storage.delete(first[0]),
        lambda: storage.quarantine(first[0], "bad"),
    ):
        with pytest.raises(StorageReadOnly, match="Read-only file system"):
            call()
    assert check_all(storage) == 1
    storage.close()
    disk.power_on()
    storage = KINDS[kind](disk.path / "root", bytes_max=ENDLESS)

    assert storage.put(*second) == NBYTES
    assert check_all(storage) == 2
    storage.close()


@pytest.mark.parametrize("there", [True, False])
def test_a_read_only_root_is_told_clearly(disk: LoopMount, there: bool) -> None:
    if there:
        KINDS["direct"](disk.path / "root", bytes_max=ENDLESS).close()
    disk.make_read_only()

    with pytest.raises(StorageReadOnly, match=r"/root.*Read-only file system"):
        KINDS["direct"](disk.path / "root", bytes_max=ENDLESS)


def test_a_drive_that_is_gone_is_unavailable_and_not_a_miss(
    disk: LoopMount, storage: FileStorage
) -> None:
    name, parts = make_object(1, LENGTHS)
    storage.put(name, parts)
    disk.cut_power()

    with pytest.raises(StorageError) as caught:
        storage.put(*make_object(2, LENGTHS))
    assert isinstance(caught.value, StorageUnavailable | StorageReadOnly)
    with pytest.raises(StorageUnavailable):
        check_object(storage, name)


class TestCatalog:
    def test_a_commit_on_a_full_disk_changes_nothing_and_works_later(self, disk: LoopMount) -> None:
        path = disk.path / "catalog.db"
        catalog = SqliteCatalog(path)
        catalog.put(make_entry("small"))
        ballast = disk.fill()
        large = make_entry("large", range(1, 4000))

        with pytest.raises(StorageFull):
            catalog.put(large)

        assert ids(catalog) == ["small"]
        ballast.unlink()
        catalog.put(large)
        catalog.close()
        catalog = SqliteCatalog(path)
        assert ids(catalog) == ["large", "small"]
        catalog.close()

    def test_a_catalog_that_cannot_be_made_on_a_full_disk_says_so(self, disk: LoopMount) -> None:
        ballast = disk.fill()

        with pytest.raises(StorageError) as caught:
            SqliteCatalog(disk.path / "catalog.db")

        assert isinstance(caught.value, StorageFull)
        ballast.unlink()
        SqliteCatalog(disk.path / "catalog.db").close()

    def test_a_read_only_catalog_is_told_clearly(self, disk: LoopMount) -> None:
        SqliteCatalog(disk.path / "catalog.db").close()
        disk.make_read_only()

        with pytest.raises(StorageReadOnly):
            SqliteCatalog(disk.path / "catalog.db")
