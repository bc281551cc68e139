"""What every storage of files adds to the block storage contract."""

import errno
import os
import shutil
import stat
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from anchorline.adapters.nvme import file_storage
from anchorline.adapters.nvme.buffered_storage import BufferedStorage
from anchorline.adapters.nvme.file_storage import SHORT_BYTES, TRANSFERS_MAX, FileStorage
from anchorline.adapters.nvme.nvme_storage import NvmeStorage
from anchorline.adapters.nvme.vectored import read_ranges
from anchorline.domain.errors import (
    ObjectCorrupt,
    ObjectMissing,
    StorageFull,
    StorageUnavailable,
)
from anchorline.domain.stored_entry import ObjectName
from anchorline.ports.block_storage import BlockStorage, ByteArray, ByteRange
from contract.block_storage_contract import (
    FOLDER,
    PAGE,
    QUARANTINED_MAX,
    ROOM,
    A,
    B,
    BlockStorageContract,
    filled,
)
from support.stored_objects import check_object, make_object


class FileStorageContract(BlockStorageContract):
    """The contract over files, and what all of them add to it."""

    kind: type[NvmeStorage | BufferedStorage]

    @abstractmethod
    def make_directory(self) -> AbstractContextManager[str]:
        """An empty directory on the kind of file system in question."""

    @pytest.fixture(autouse=True)
    def _place(self) -> Iterator[None]:
        self.made: list[FileStorage] = []
        with self.make_directory() as directory:
            self.path = Path(directory) / "store"
            yield
            for storage in self.made:
                storage.close()

    def make_storage(self, *, bytes_max: int = ROOM) -> FileStorage:
        storage = self.kind(self.path, bytes_max=bytes_max, quarantined_max=QUARANTINED_MAX)
        self.made.append(storage)
        return storage

    def reopen(self, storage: BlockStorage, *, bytes_max: int = ROOM) -> FileStorage:
        storage.close()
        return self.make_storage(bytes_max=bytes_max)

    def content(self, storage: BlockStorage, name: ObjectName) -> bytes:
        return (self.path / name).read_bytes()

    def overwrite(self, storage: BlockStorage, name: ObjectName, content: bytes) -> None:
        (self.path / name).write_bytes(content)

    def files(self) -> set[str]:
        """Everything below the root but directories."""
        found = (path for path in self.path.rglob("*") if not path.is_dir() or path.is_symlink())
        return {str(path.relative_to(self.path)) for path in found}

    def test_nobody_else_can_look_into_it(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(1)])
        storage.put(B, [filled(1)])
        storage.quarantine(B, "bad")

        for path in [self.path, *self.path.rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path

    def test_an_object_is_one_file_of_whole_pages_under_its_name(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(1), filled(2)])

        assert self.files() == {"lock", A}
        assert (self.path / A).stat().st_size == 3 * PAGE

    def test_what_is_short_is_read_while_all_transfers_are_taken(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of headers the rows are waited for that they tell of."""
        long = SHORT_BYTES // PAGE + 1
        storage = self.make_storage()
        storage.put(A, [filled(long)])
        entered, gate = threading.Semaphore(0), threading.Event()

        def held(
            fd: int, ranges: Sequence[ByteRange], arrays: Sequence[ByteArray], *, aligned: bool
        ) -> None:
            if len(arrays[0]) > SHORT_BYTES:
                entered.release()
                assert gate.wait(30)
            read_ranges(fd, ranges, arrays, aligned=aligned)

        monkeypatch.setattr(file_storage, "read_ranges", held)
        with ThreadPoolExecutor(TRANSFERS_MAX + 1) as threads:
            reads = [threads.submit(read, storage, A, long) for _ in range(TRANSFERS_MAX + 1)]
            try:
                for _ in range(TRANSFERS_MAX):
                    assert entered.acquire(timeout=30)
                short = read(storage, A, 1)
                one_more = entered.acquire(timeout=0.1)
            finally:
                gate.set()

            assert short == filled(long).tobytes()[:PAGE]
            assert not one_more
            assert [one.result() for one in reads] == [filled(long).tobytes()] * len(reads)

    def test_unfinished_files_are_deleted_at_the_start_and_told_once(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(1)])
        storage.close()
        (self.path / f"{A}.tmp-77-1").write_bytes(bytes(5 * PAGE))
        (self.path / FOLDER / "odd.tmp-77-2").write_bytes(b"x")

        storage = self.make_storage()

        assert self.files() == {"lock", A}
        assert storage.space().used == PAGE
        assert storage.notices[0] == "2 unfinished files of a killed server were deleted"

    def test_what_is_not_ours_is_neither_listed_nor_touched(self) -> None:
        self.path.mkdir(mode=0o700)
        (self.path / "photos").mkdir()
        (self.path / "photos/holiday.tmp-1").write_bytes(b"dear")
        (self.path / "catalog.db").write_bytes(bytes(3 * PAGE))

        storage = self.make_storage(bytes_max=10 * PAGE)

        assert list(storage.names()) == []
        assert (storage.space().used, storage.space().free) == (3 * PAGE, 7 * PAGE)
        assert (self.path / "photos/holiday.tmp-1").read_bytes() == b"dear"

    def test_a_second_server_on_the_root_is_told_who_uses_it(self) -> None:
        storage = self.make_storage()

        with pytest.raises(StorageUnavailable, match=f"in use by another.*process {os.getpid()}"):
            self.make_storage()

        storage.put(A, [filled(1)])  # the first one goes on
        storage.close()
        assert [found.name for found in self.make_storage().names()] == [A]

    def test_a_root_that_is_a_link_is_refused(self) -> None:
        target = self.path.with_name("elsewhere")
        target.mkdir(mode=0o700)
        self.path.symlink_to(target)

        with pytest.raises(StorageUnavailable, match=r"symbolic link; name .*elsewhere itself"):
            self.make_storage()
        assert list(target.iterdir()) == []

    def test_a_root_that_is_a_file_is_refused(self) -> None:
        self.path.write_bytes(b"dear")

        with pytest.raises(StorageUnavailable, match="Not a directory"):
            self.make_storage()
        assert self.path.read_bytes() == b"dear"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
    def test_a_root_of_another_user_is_refused(self) -> None:
        self.path.mkdir(mode=0o700)
        os.chown(self.path, 12345, 12345)

        with pytest.raises(StorageUnavailable, match="belongs to the user 12345"):
            self.make_storage()

    def test_a_root_that_others_may_write_into_is_refused(self) -> None:
        self.path.mkdir()
        self.path.chmod(0o777)

        with pytest.raises(StorageUnavailable, match="others may write"):
            self.make_storage()

    def test_parents_that_are_missing_are_made(self) -> None:
        self.path = self.path / "a/b"

        storage = self.make_storage()

        assert storage.put(A, [filled(1)]) == PAGE

    def test_a_link_in_an_objects_place_is_not_followed(self) -> None:
        storage = self.make_storage()
        secret = self.path.with_name("secret")
        secret.write_bytes(bytes(PAGE))
        storage.put(A, [filled(1)])
        (self.path / A).unlink()
        (self.path / A).symlink_to(secret)

        with pytest.raises(ObjectCorrupt, match="a link stands"):
            storage.header(A, 10)
        assert list(storage.names()) == []
        storage.quarantine(A, "a link")
        assert secret.read_bytes() == bytes(PAGE)
        assert storage.put(A, [filled(1)]) == PAGE
        assert self.content(storage, A) == filled(1).tobytes()

    def test_a_put_replaces_a_link_and_leaves_what_it_leads_to(self) -> None:
        storage = self.make_storage()
        storage.put(B, [filled(1)])
        secret = self.path.with_name("secret")
        secret.write_bytes(b"dear")
        (self.path / A).parent.mkdir(mode=0o700)
        (self.path / A).symlink_to(secret)

        assert storage.put(A, [filled(1)]) == PAGE

        assert secret.read_bytes() == b"dear"
        assert not (self.path / A).is_symlink()

    def test_a_link_among_the_directories_is_not_followed(self) -> None:
        storage = self.make_storage()
        elsewhere = self.path.with_name("elsewhere")
        elsewhere.mkdir()
        (elsewhere / "a.blk").write_bytes(bytes(PAGE))
        (self.path / FOLDER / "blocks").mkdir(parents=True)
        (self.path / A).parent.symlink_to(elsewhere)

        for call in (
            lambda: storage.put(A, [filled(1)]),
            lambda: storage.header(A, 10),
            lambda: storage.delete(A),
            lambda: storage.quarantine(A, "bad"),
        ):
            with pytest.raises((StorageUnavailable, ObjectCorrupt)):
                call()
        assert list(storage.names()) == []
        assert (elsewhere / "a.blk").read_bytes() == bytes(PAGE)
        assert storage.space().used == 0

    def test_an_object_with_a_second_name_is_not_ours(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(1)])
        os.link(self.path / A, self.path.with_name("second"))

        with pytest.raises(ObjectCorrupt, match="has another name"):
            storage.header(A, 10)

        storage.quarantine(A, "has a second name")
        assert storage.put(A, [filled(1)]) == PAGE

    def test_a_directory_or_a_pipe_in_an_objects_place_is_not_read(self) -> None:
        storage = self.make_storage()
        (self.path / A).mkdir(parents=True)
        (self.path / B).parent.mkdir()
        os.mkfifo(self.path / B)

        for name in (A, B):
            with pytest.raises((ObjectCorrupt, StorageUnavailable)):
                storage.header(name, 10)
        assert list(storage.names()) == []

    def test_the_quarantine_keeps_the_object_and_the_reason(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(1)])

        storage.quarantine(A, "part k.0 has another checksum")

        kept = self.path / "quarantine/0000000001-a.blk"
        assert kept.read_bytes() == filled(1).tobytes()
        reason = self.path / "quarantine/0000000001.reason"
        assert reason.read_text() == f"{A}\npart k.0 has another checksum\n"

    def test_what_is_kept_aside_stands_in_the_quarantine_and_counts(self) -> None:
        storage = self.make_storage()
        before = storage.space().used

        name = storage.keep_aside("verify.json", b"{}")

        assert name == "0000000001-verify.json"
        kept = self.path / "quarantine" / name
        assert kept.read_bytes() == b"{}"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert storage.space().used == before + PAGE
        assert self.reopen(storage).space().used == before + PAGE

    def test_what_is_kept_aside_goes_when_newer_things_need_its_place(self) -> None:
        storage = self.make_storage()

        names = [storage.keep_aside("verify.json", b"{}") for _ in range(QUARANTINED_MAX + 1)]

        left = sorted(path.name for path in (self.path / "quarantine").iterdir())
        assert left == names[1:]

    def test_what_finds_no_room_is_not_kept_aside(self) -> None:
        storage = self.make_storage(bytes_max=2 * PAGE)

        assert storage.keep_aside("verify.json", bytes(4 * PAGE)) is None
        assert list((self.path / "quarantine").iterdir()) == []

    def test_the_quarantine_is_bounded_in_bytes_too(self) -> None:
        self.kind(self.path, bytes_max=ROOM).close()
        storage = self.kind(self.path, bytes_max=ROOM, quarantine_bytes_max=8 * PAGE)
        self.made.append(storage)
        for number in range(4):
            storage.put(A, [filled(3)])
            storage.quarantine(A, str(number))

        assert {path for path in self.files() if path.endswith(".blk")} == {
            "quarantine/0000000003-a.blk",
            "quarantine/0000000004-a.blk",
        }

    def test_space_that_must_stay_free_stays_free(self) -> None:
        free = os.statvfs(self.path.parent).f_bavail * os.statvfs(self.path.parent).f_frsize
        storage = self.kind(self.path, bytes_max=1 << 60, free_min=free + (1 << 30))
        self.made.append(storage)

        with pytest.raises(StorageFull, match="must stay so"):
            storage.put(A, [filled(1)])
        assert storage.space().free == 0
        assert self.files() == {"lock"}

    def test_an_error_at_any_step_leaves_nothing(self) -> None:
        made = [make_object(seed) for seed in range(20)]
        reached: list[str] = []
        stop_at = 0

        def stop(step: str) -> None:
            reached.append(step)
            if len(reached) == stop_at:
                raise OSError(errno.EIO, "the drive failed")

        storage = self.kind(self.path, bytes_max=ROOM, on_step=stop)
        self.made.append(storage)
        for name, parts in made:
            stop_at += 1
            reached.clear()
            try:
                storage.put(name, parts)
            except StorageUnavailable:
                assert list(storage.names()) == []
                assert storage.space().used == 0
                assert self.files() == {"lock"}
            else:
                break
        assert reached[-5:] == [
            "write",
            "write on",
            "sync file",
            "rename",
            "done",
        ]
        assert [found.name for found in storage.names()] == [made[stop_at - 1][0]]

    def test_a_sync_takes_each_directory_once_in_which_something_appeared(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(1)])
        storage.put(B, [filled(1)])
        synced = self.directories_synced(monkeypatch)
        ways = ["", FOLDER, f"{FOLDER}/blocks", f"{FOLDER}/blocks/aa", f"{FOLDER}/blocks/bb"]

        storage.sync()
        assert sorted(synced) == ways

        synced.clear()
        storage.sync()
        assert synced == []

        storage.put(ObjectName(f"{FOLDER}/blocks/aa/b.blk"), [filled(1)])
        assert storage.put(B, [filled(1)]) == 0  # found there: it is no matter who put it
        storage.sync()
        assert sorted(synced) == ways[3:]

    def test_what_a_process_left_that_was_killed_is_synced_by_the_next_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(1)])
        storage = self.reopen(storage)
        synced = self.directories_synced(monkeypatch)

        storage.sync()

        assert {FOLDER, f"{FOLDER}/blocks", f"{FOLDER}/blocks/aa"} <= set(synced)

    def test_a_directory_that_cannot_be_synced_is_synced_the_next_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps: list[str] = []

        def fail(step: str) -> None:
            steps.append(step)
            if steps.count("sync directory") == 4:
                raise OSError(errno.EIO, "the drive failed")

        storage = self.kind(self.path, bytes_max=ROOM, on_step=fail)
        self.made.append(storage)
        storage.put(A, [filled(1)])
        storage.put(B, [filled(1)])
        with pytest.raises(StorageUnavailable, match=f"{FOLDER}/blocks/aa: the drive failed"):
            storage.sync()
        assert steps.count("sync directory") == 5  # all others were synced
        synced = self.directories_synced(monkeypatch)

        storage.sync()

        assert synced == [f"{FOLDER}/blocks/aa"]

    def test_a_directory_that_somebody_took_away_is_no_matter(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(1)])
        shutil.rmtree(self.path / FOLDER)

        storage.sync()

    def test_who_has_nothing_to_sync_waits_for_the_one_who_has(self) -> None:
        begun, goes_on = threading.Event(), threading.Event()

        def hold(step: str) -> None:
            if step == "sync directory":
                begun.set()
                assert goes_on.wait(30)

        storage = self.kind(self.path, bytes_max=ROOM, on_step=hold)
        self.made.append(storage)
        storage.put(A, [filled(1)])
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(storage.sync)
            assert begun.wait(30)
            second = threads.submit(storage.sync)
            done, _ = wait([second], timeout=0.2)
            assert not done
            goes_on.set()
            first.result()
            second.result()

    def directories_synced(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The ways from the root to the directories that are synced from now on."""
        real, synced = os.fsync, list[str]()

        def fsync(fd: int) -> None:
            at = Path(f"/proc/self/fd/{fd}").readlink()
            if at.is_dir():
                synced.append(str(at.relative_to(self.path)).removeprefix("."))
            real(fd)

        monkeypatch.setattr(os, "fsync", fsync)
        return synced

    def test_memory_that_is_aligned_is_not_copied(self) -> None:
        storage = self.make_storage()
        buffer = storage.buffer(1 << 20)

        assert buffer.ctypes.data % PAGE == 0
        assert buffer.flags.c_contiguous
        assert buffer.flags.writeable

    def test_descriptors_are_given_back(self) -> None:
        storage = self.make_storage()
        made = [make_object(seed) for seed in range(5)]
        before = open_files()

        for name, parts in made:
            storage.put(name, parts)
            check_object(storage, name)
            with pytest.raises(ObjectMissing):
                storage.header(A, 1)
        storage.quarantine(made[0][0], "bad")
        storage.delete(made[1][0])
        next(iter(storage.names()))

        assert open_files() == before

    def test_a_closed_storage_touches_nothing(self) -> None:
        storage = self.make_storage()
        storage.close()
        storage.close()

        for call in (lambda: storage.put(A, [filled(1)]), storage.space, lambda: storage.delete(A)):
            with pytest.raises(StorageUnavailable, match="has been closed"):
                call()


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def read(storage: FileStorage, name: ObjectName, pages: int) -> bytes:
    """An object's first pages."""
    buffer = storage.buffer(pages * PAGE)
    storage.read_into(name, [ByteRange(0, pages * PAGE)], [buffer])
    return buffer.tobytes()
