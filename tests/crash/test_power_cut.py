"""A power cut at any moment leaves every object absent or exact, and every commit in place.

The cut is ext4's own: from one moment on nothing more reaches the device, and what was neither
written nor committed to the journal is lost. Each case has a fresh file system and is cut right
after the step in question: any later sync would commit the journal and hide that one was missing.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anchorline.adapters.nvme.file_storage import FileStorage
from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.domain.entry import EntryId
from anchorline.domain.errors import ObjectMissing, StorageError
from anchorline.domain.stored_entry import ObjectName
from contract.catalog_contract import ids, make_entry
from support.crash_process import KINDS, LENGTHS, ROOM
from support.disk_use import disk_use
from support.loop_mount import LoopMount, mounted, why_no_loop_mounts
from support.stored_objects import check_object, make_object

pytestmark = pytest.mark.skipif(
    why_no_loop_mounts() is not None, reason=f"no power can be cut: {why_no_loop_mounts()}"
)

STEPS_MAX = 40
MIB = 32
FIRST, SECOND = 1, 2


class PowerCut(BaseException):
    """Ends the work that was under way."""


class Cutter:
    """A step hook that cuts the power before the step number `at`."""

    def __init__(self, disk: LoopMount):
        self._disk = disk
        self.at = 0
        self.steps: list[str] = []

    def __call__(self, step: str) -> None:
        if self.at:
            self.steps.append(step)
        if self.at and len(self.steps) == self.at:
            self._disk.cut_power()
            raise PowerCut


@contextmanager
def put_and_cut(
    directory: Path, kind: str, before: list[int], at: int
) -> Generator[tuple[FileStorage, list[str]]]:
    """Put objects, cut before a step of the last one's put and sync, and open what is left."""
    directory.mkdir()
    with mounted(directory, MIB) as disk:
        root = disk.path / "root"
        cutter = Cutter(disk)
        storage = KINDS[kind](root, bytes_max=ROOM, on_step=cutter)
        for seed in before:
            storage.put(*make_object(seed, LENGTHS))
        storage.sync()
        cutter.at = at
        try:
            storage.put(*make_object(SECOND, LENGTHS))
            storage.sync()
            disk.cut_power()
        except PowerCut:
            pass
        storage.close()
        disk.power_on()
        storage = KINDS[kind](root, bytes_max=ROOM)
        try:
            yield storage, cutter.steps
        finally:
            storage.close()


def is_exact(storage: FileStorage, name: ObjectName) -> bool:
    """False if it is absent.

    Raises:
        ObjectCorrupt: it is neither.
    """
    try:
        check_object(storage, name)
    except ObjectMissing:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [[], [FIRST]], ids=["in a new root", "beside another"])
def test_a_cut_before_any_step_of_a_put_leaves_the_object_absent_or_exact(
    tmp_path: Path, kind: str, before: list[int]
) -> None:
    name = make_object(SECOND, LENGTHS)[0]
    outcomes: list[bool] = []
    reached: list[str] = []
    for at in range(1, STEPS_MAX):
        with put_and_cut(tmp_path / str(at), kind, before, at) as (storage, steps):
            outcomes.append(is_exact(storage, name))
            for seed in before:
                assert is_exact(storage, make_object(seed, LENGTHS)[0])
            used = sum(found.nbytes for found in storage.names())
            assert storage.space().used == used == disk_use(storage.path)
            assert storage.put(*make_object(SECOND, LENGTHS)) == 0 or not outcomes[-1]
            assert is_exact(storage, name)
            reached = steps
            if len(steps) < at:
                break

    # Nothing is promised before the directories are synced; everything is from there on. (The first
    # of them that is synced commits the journal for all.)
    first = reached.index("sync directory")
    assert outcomes[: first + 1] == [False] * (first + 1)
    assert reached[-1] == "synced"
    assert outcomes[-2:] == [True] * 2
    assert len(outcomes) == len(reached) + 1 >= 9


@pytest.mark.parametrize("forgotten", ["file", "directory"])
def test_a_put_that_forgot_a_sync_would_be_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    real = os.fsync

    def forgetful(fd: int) -> None:
        target = Path(f"/proc/self/fd/{fd}").readlink()
        if "root" in target.parts and target.is_dir() == (forgotten == "directory"):
            return
        real(fd)

    monkeypatch.setattr(os, "fsync", forgetful)
    # Asking the page cache to forget dirty pages begins to write them, which would hide it too.
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    name = make_object(SECOND, LENGTHS)[0]

    with put_and_cut(tmp_path / "disk", "buffered", [], 99) as (storage, _):
        try:
            survived = is_exact(storage, name)
        except StorageError:
            survived = False
        assert not survived


class TestTheMethodCanFail:
    """What the steps are for: each result was seen before the storage was written."""

    @staticmethod
    def left_after(directory: Path, work: Callable[[Path], None]) -> dict[str, int]:
        """The names and sizes that a cut right after some work leaves."""
        with mounted(directory, MIB) as disk:
            folder = disk.path / "folder"
            folder.mkdir()
            sync(disk.path)
            sync(folder)
            work(folder)
            disk.cut_power()
            disk.power_on()
            return {path.name: path.stat().st_size for path in folder.iterdir()}

    def test_without_a_sync_of_the_file_its_name_stands_over_nothing(self, tmp_path: Path) -> None:
        def work(folder: Path) -> None:
            (folder / "a.tmp").write_bytes(bytes(50_000))
            (folder / "a.tmp").rename(folder / "a")
            sync(folder)

        assert self.left_after(tmp_path, work) == {"a": 0}

    def test_without_a_sync_of_the_directory_the_file_keeps_its_old_name(
        self, tmp_path: Path
    ) -> None:
        def work(folder: Path) -> None:
            (folder / "a.tmp").write_bytes(bytes(50_000))
            sync(folder / "a.tmp")
            (folder / "a.tmp").rename(folder / "a")

        assert self.left_after(tmp_path, work) == {"a.tmp": 50_000}

    def test_with_both_it_is_there(self, tmp_path: Path) -> None:
        def work(folder: Path) -> None:
            (folder / "a.tmp").write_bytes(bytes(50_000))
            sync(folder / "a.tmp")
            (folder / "a.tmp").rename(folder / "a")
            sync(folder)

        assert self.left_after(tmp_path, work) == {"a": 50_000}


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class TestCatalog:
    def test_what_was_committed_is_there(self, tmp_path: Path) -> None:
        with mounted(tmp_path, MIB) as disk:
            path = disk.path / "catalog.db"
            catalog = SqliteCatalog(path)
            catalog.finish_rebuild()
            for number in range(5):
                catalog.put(make_entry(str(number)), replaces=[EntryId(str(number - 2))])
            catalog.add_written("2026-11-29", "head", 7)
            disk.cut_power()
            catalog.close()
            disk.power_on()

            catalog = SqliteCatalog(path)

            assert ids(catalog) == ["3", "4"]
            assert catalog.written(1) == {"2026-11-29": {"head": 7}}
            assert (catalog.needs_rebuild, catalog.damage) == (False, None)
            catalog.close()

    def test_a_catalog_that_was_just_made_is_there(self, tmp_path: Path) -> None:
        with mounted(tmp_path, MIB) as disk:
            path = disk.path / "catalog.db"
            catalog = SqliteCatalog(path)
            disk.cut_power()
            catalog.close()
            disk.power_on()

            catalog = SqliteCatalog(path)

            assert (catalog.needs_rebuild, catalog.damage) == (True, None)
            catalog.close()

    def test_a_commit_on_a_dead_drive_is_refused_and_changes_nothing(self, tmp_path: Path) -> None:
        with mounted(tmp_path, MIB) as disk:
            path = disk.path / "catalog.db"
            catalog = SqliteCatalog(path)
            catalog.put(make_entry("a"))
            disk.cut_power()

            with pytest.raises(StorageError):
                catalog.put(make_entry("b"), replaces=[EntryId("a")])

            assert ids(catalog) == ["a"]
            catalog.close()
            disk.power_on()
            catalog = SqliteCatalog(path)
            assert ids(catalog) == ["a"]
            catalog.close()

    def test_an_object_is_durable_before_the_entry_that_needs_it(self, tmp_path: Path) -> None:
        with mounted(tmp_path, MIB) as disk:
            storage = KINDS["direct"](disk.path / "root", bytes_max=ROOM)
            catalog = SqliteCatalog(disk.path / "root/catalog.db")
            names: list[ObjectName] = []
            for seed in range(4):
                name, parts = make_object(seed, LENGTHS)
                storage.put(name, parts)
                names.append(name)
                storage.sync()
                catalog.put(make_entry(str(seed)))
            disk.cut_power()
            catalog.close()
            storage.close()
            disk.power_on()

            storage = KINDS["direct"](disk.path / "root", bytes_max=ROOM)
            catalog = SqliteCatalog(disk.path / "root/catalog.db")

            assert ids(catalog) == ["0", "1", "2", "3"]
            assert all(is_exact(storage, name) for name in names)
            catalog.close()
            storage.close()
