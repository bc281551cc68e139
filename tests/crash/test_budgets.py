"""The disk never holds more than it may, asked of the disk itself and at every step of a write."""

import os
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anchorline.domain.errors import StorageFull
from support.crash_process import KINDS, NOBODY, CrashProcess, crash_process
from support.disk_use import disk_use
from support.stored_objects import make_object

MB = 1_000_000
LENGTHS = (300_000, 200_000)


@pytest.fixture(scope="module")
def process() -> Iterator[CrashProcess]:
    with crash_process() as started:
        yield started


@pytest.mark.parametrize("kind", KINDS)
def test_disk_use_never_exceeds_the_cap_at_any_step_nor_after_a_restart_with_a_smaller_one(
    tmp_path: Path, kind: str
) -> None:
    root = tmp_path / "root"
    cap = 10 * MB
    most = 0

    def look(_: str) -> None:
        nonlocal most
        most = max(most, disk_use(root))

    storage = KINDS[kind](root, bytes_max=cap, on_step=look)
    made = [make_object(seed, LENGTHS) for seed in range(60)]  # 30 MB
    for name, parts in made:
        try:
            storage.put(name, parts)
        except StorageFull:
            storage.delete(next(iter(storage.names())).name)
    storage.close()
    assert 9 * MB < most <= cap

    cap = 5 * MB
    storage = KINDS[kind](root, bytes_max=cap, on_step=look)
    assert any("over the limit of 5000000" in notice for notice in storage.notices)
    while storage.space().used > cap:  # what an application does at its start
        storage.delete(next(iter(storage.names())).name)
    most = 0
    for name, parts in made:
        try:
            storage.put(name, parts)
        except StorageFull:
            storage.delete(next(iter(storage.names())).name)
    storage.close()
    assert 4 * MB < most <= cap


def test_threads_that_write_at_once_do_not_exceed_the_cap_together(tmp_path: Path) -> None:
    root = tmp_path / "root"
    cap = 5 * MB
    most: list[int] = []
    storage = KINDS["direct"](
        root, bytes_max=cap, on_step=lambda _: most.append(disk_use_while_it_changes(root))
    )
    chance = random.Random(1)
    made = [make_object(seed, LENGTHS) for seed in range(24)]
    chance.shuffle(made)

    def put(share: int) -> int:
        refused = 0
        for name, parts in made[share::4]:
            try:
                storage.put(name, parts)
            except StorageFull:
                refused += 1
        return refused

    with ThreadPoolExecutor(4) as threads:
        refused = sum(threads.map(put, range(4)))

    assert max(most) <= cap
    assert refused == 24 - len(list(storage.names())) > 10
    assert storage.space().used == disk_use(root)
    storage.close()


def disk_use_while_it_changes(root: Path) -> int:
    """As `disk_use`; a file that is renamed under its eyes counts once or not at all."""
    nbytes = 0
    for directory, _, names in os.walk(root):
        for name in names:
            try:
                nbytes += os.lstat(Path(directory) / name).st_size
            except FileNotFoundError:
                continue
    return nbytes


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
class TestAnotherUser:
    def test_a_root_that_belongs_to_somebody_else_is_told(
        self, process: CrashProcess, place: Path
    ) -> None:
        (place / "root").mkdir(mode=0o755)

        said = process.run("open", root=str(place / "root"), user=NOBODY)

        assert said.startswith("StorageUnavailable")
        assert "belongs to the user 0 and the server runs as 65534" in said

    def test_a_root_that_may_not_be_written_to_is_told(
        self, process: CrashProcess, place: Path
    ) -> None:
        (place / "root").mkdir(mode=0o500)
        os.chown(place / "root", NOBODY, NOBODY)

        said = process.run("open", root=str(place / "root"), user=NOBODY)

        assert said.startswith("StorageReadOnly")
        assert "cannot be written to (Permission denied); nothing is kept on disk" in said

    def test_a_root_that_cannot_be_made_is_told(self, process: CrashProcess, place: Path) -> None:
        said = process.run("open", root=str(place / "a/root"), user=NOBODY)

        assert said == f"StorageReadOnly: making the directory {place / 'a'}: Permission denied"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that anybody may go into."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)
