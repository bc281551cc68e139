"""Every storage against the block storage contract, and what each adds."""

import dataclasses
import errno
import hashlib
import os
import random
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from anchorline.adapters.memory.crashable_storage import (
    PUT_STEPS,
    SYNC_STEPS,
    CrashableStorage,
    CrashedHere,
)
from anchorline.adapters.nvme.buffered_storage import BufferedStorage
from anchorline.adapters.nvme.nvme_storage import NvmeStorage
from anchorline.adapters.simulation.faulty_storage import SLOW_S, Fault, FaultyStorage
from anchorline.domain.errors import (
    ObjectCorrupt,
    ObjectMissing,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)
from anchorline.domain.object_format import place_parts
from anchorline.domain.object_name import key_prefix, parse_name
from anchorline.domain.prefix_key import PrefixKey
from anchorline.domain.stored_entry import ObjectName
from anchorline.domain.tokens import token_ids
from anchorline.ports.block_storage import BlockStorage
from contract.block_storage_contract import (
    QUARANTINED_MAX,
    ROOM,
    BlockStorageContract,
)
from contract.file_storage_contract import FileStorageContract
from support.stored_objects import (
    check_object,
    make_header,
    make_object,
    object_parts,
    random_parts,
)

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a tmpfs, wherever there is one


class TestCrashableStorage(BlockStorageContract):
    def make_storage(self, *, bytes_max: int = ROOM) -> CrashableStorage:
        return CrashableStorage(bytes_max=bytes_max, quarantined_max=QUARANTINED_MAX)

    def reopen(self, storage: BlockStorage, *, bytes_max: int = ROOM) -> CrashableStorage:
        assert isinstance(storage, CrashableStorage)
        return storage.kill(bytes_max=bytes_max)

    def content(self, storage: BlockStorage, name: ObjectName) -> bytes:
        assert isinstance(storage, CrashableStorage)
        return storage.content(name)

    def overwrite(self, storage: BlockStorage, name: ObjectName, content: bytes) -> None:
        assert isinstance(storage, CrashableStorage)
        storage.overwrite(name, content)


def test_prompts_whose_keys_collide_are_told_apart_by_their_ids() -> None:
    storage = CrashableStorage()
    chance = random.Random(17)
    made: dict[tuple[int, ...], ObjectName] = {}
    for number in range(500):
        ids = tuple(chance.randrange(1000) for _ in range(8))
        raws = random_parts(number, (100,))
        header = dataclasses.replace(
            make_header(raws),
            token_ids=token_ids(ids),
            key_ids=token_ids(ids),
            key=PrefixKey(hashlib.sha256(str(ids).encode()).digest()[:1]),  # 8 bits
        )
        made[ids], parts = object_parts(place_parts(header), raws)
        storage.put(made[ids], parts)
    shared = 0

    for ids, name in made.items():
        identity = parse_name(name)
        assert identity is not None
        prefix = key_prefix(identity.fingerprint, identity.kind, identity.key)
        candidates = {found.name for found in storage.names(prefix)}
        shared += len(candidates) > 1
        same_ids = {
            candidate
            for candidate in candidates
            if tuple(check_object(storage, candidate).key_ids.tolist()) == ids
        }
        assert same_ids == {name}
    assert shared > 250


def crashed_at(step: str) -> tuple[CrashableStorage, ObjectName]:
    """A storage whose second put or its sync stopped before a step, and that put's name."""

    def stop(reached: str) -> None:
        if reached == step:
            raise CrashedHere

    storage = CrashableStorage()
    storage.put(*make_object(1))
    storage.sync()
    storage.on_step = stop
    name, parts = make_object(2)

    def put_and_sync() -> None:
        storage.put(name, parts)
        storage.sync()

    with pytest.raises(CrashedHere):
        put_and_sync()
    return storage, name


def is_whole(storage: CrashableStorage, name: ObjectName) -> bool:
    try:
        check_object(storage, name)
    except ObjectMissing:
        return False
    return True


class TestCrashes:
    @pytest.mark.parametrize("step", [*PUT_STEPS, *SYNC_STEPS])
    def test_a_kill_before_any_step_leaves_the_object_whole_or_absent(self, step: str) -> None:
        storage, name = crashed_at(step)

        after = storage.kill()

        assert is_whole(after, name) == (step in ("done", *SYNC_STEPS))
        assert is_whole(after, make_object(1)[0])
        assert after.space().used == sum(found.nbytes for found in after.names())

    @pytest.mark.parametrize("step", [*PUT_STEPS, *SYNC_STEPS])
    def test_a_power_cut_before_any_step_leaves_the_object_whole_or_absent(self, step: str) -> None:
        storage, name = crashed_at(step)

        after = storage.crash()

        assert is_whole(after, name) == (step == "synced")
        assert is_whole(after, make_object(1)[0])

    @pytest.mark.parametrize("step", [*PUT_STEPS, *SYNC_STEPS])
    def test_a_medium_that_wrote_some_of_it_early_leaves_it_whole_or_absent(
        self, step: str
    ) -> None:
        seen: set[bool] = set()
        for seed in range(20):
            storage, name = crashed_at(step)
            seen.add(is_whole(storage.crash(random.Random(seed)), name))

        assert (
            seen
            == {
                "create": {False},
                "write": {False},
                "sync file": {False},
                "rename": {False},
                "done": {True, False},
                "sync directories": {True, False},
                "synced": {True},
            }[step]
        )

    def test_a_deleted_object_may_come_back_after_a_power_cut(self) -> None:
        storage = CrashableStorage()
        name, parts = make_object(1)
        storage.put(name, parts)
        storage.sync()
        storage.delete(name)

        assert is_whole(storage.crash(), name)

    def test_what_a_killed_process_had_not_synced_may_yet_be_lost(self) -> None:
        storage = CrashableStorage()
        name, parts = make_object(1)
        storage.put(name, parts)
        found = storage.kill()
        assert is_whole(found, name)

        assert not is_whole(found.crash(), name)

        storage = CrashableStorage()
        storage.put(name, parts)
        found = storage.kill()
        found.sync()
        assert is_whole(found.crash(), name)

    def test_a_put_that_forgets_to_sync_its_file_is_found_out(self) -> None:
        storage = CrashableStorage(forgets=["sync file"])
        name, parts = make_object(1)
        storage.put(name, parts)
        storage.sync()

        assert storage.crash().content(name) == b""

    def test_a_sync_that_forgets_the_directories_is_found_out(self) -> None:
        storage = CrashableStorage(forgets=["sync directories"])
        name, parts = make_object(1)
        storage.put(name, parts)
        storage.sync()

        assert not is_whole(storage.crash(), name)

    def test_a_storage_that_crashed_is_not_used_any_more(self) -> None:
        storage = CrashableStorage()
        storage.crash()

        with pytest.raises(StorageUnavailable):
            storage.put(*make_object(1))


class TestNvmeStorage(FileStorageContract):
    kind = NvmeStorage

    def make_directory(self) -> AbstractContextManager[str]:
        return tempfile.TemporaryDirectory()

    def test_the_page_cache_is_gone_around_where_the_file_system_lets_it(self) -> None:
        storage = self.make_storage()

        assert storage.direct == (storage.notices == []) == takes_direct_io(self.path.parent)


class TestBufferedStorage(FileStorageContract):
    kind = BufferedStorage

    def make_directory(self) -> AbstractContextManager[str]:
        return tempfile.TemporaryDirectory()

    def test_it_never_asks_for_direct_io(self) -> None:
        storage = self.make_storage()

        assert (storage.direct, storage.notices) == (False, [])


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="there is no tmpfs here")
class TestNvmeStorageOnTmpfs(FileStorageContract):
    """tmpfs has its own idea of alignment and of direct I/O."""

    kind = NvmeStorage

    def make_directory(self) -> AbstractContextManager[str]:
        return tempfile.TemporaryDirectory(dir=SHARED_MEMORY)


class TestWhereDirectIoIsRefused(FileStorageContract):
    """What is promised does not depend on it."""

    kind = NvmeStorage

    def make_directory(self) -> AbstractContextManager[str]:
        return tempfile.TemporaryDirectory()

    @pytest.fixture(autouse=True)
    def _refuse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.open

        def refusing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if flags & os.O_DIRECT:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return real(path, flags, mode, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", refusing)

    def test_it_is_told_once_and_files_are_buffered(self) -> None:
        storage = self.make_storage()

        assert not storage.direct
        assert storage.notices == [
            f"the file system of {self.path} refuses direct I/O; its page cache is used"
        ]


def takes_direct_io(directory: Path) -> bool:
    """Asked otherwise than the storage asks."""
    path = directory / "asked"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)
    return True


class TestFaultyStorageWithoutFaults(BlockStorageContract):
    def make_storage(self, *, bytes_max: int = ROOM) -> FaultyStorage:
        self.inner = CrashableStorage(bytes_max=bytes_max, quarantined_max=QUARANTINED_MAX)
        return FaultyStorage(self.inner, seed=1)

    def reopen(self, storage: BlockStorage, *, bytes_max: int = ROOM) -> FaultyStorage:
        self.inner = self.inner.kill(bytes_max=bytes_max)
        return FaultyStorage(self.inner, seed=1)

    def content(self, storage: BlockStorage, name: ObjectName) -> bytes:
        return self.inner.content(name)

    def overwrite(self, storage: BlockStorage, name: ObjectName, content: bytes) -> None:
        self.inner.overwrite(name, content)


REFUSED_PUTS: dict[Fault, type[StorageError]] = {
    Fault.FULL: StorageFull,
    Fault.READ_ONLY: StorageReadOnly,
    Fault.FAILED_WRITE: StorageUnavailable,
}


class TestFaults:
    """Whatever happens, an object is refused, absent or exact."""

    @pytest.mark.parametrize("fault", REFUSED_PUTS)
    def test_a_put_that_fails_leaves_nothing(self, fault: Fault) -> None:
        inner = CrashableStorage()
        storage = FaultyStorage(inner, seed=1, rates={fault: 1.0})
        name, parts = make_object(1)

        with pytest.raises(REFUSED_PUTS[fault], match="simulated"):
            storage.put(name, parts)

        assert storage.space().used == 0
        storage.rates = {}
        assert storage.put(name, parts) > 0

    @pytest.mark.parametrize("fault", [Fault.BIT_FLIP, Fault.SHORT_READ, Fault.TORN_WRITE])
    def test_damage_is_always_seen(self, fault: Fault) -> None:
        for seed in range(40):
            storage = FaultyStorage(CrashableStorage(), seed=seed, rates={fault: 1.0})
            name, parts = make_object(seed)
            before = [part.copy() for part in parts]
            storage.put(name, parts)

            with pytest.raises(ObjectCorrupt):
                check_object(storage, name)
            assert storage.happened[fault] > 0
            assert all((part == old).all() for part, old in zip(parts, before, strict=True))

    def test_a_read_that_fails_is_no_miss(self) -> None:
        storage = FaultyStorage(CrashableStorage(), seed=1)
        name, parts = make_object(1)
        storage.put(name, parts)
        storage.rates = {Fault.FAILED_READ: 1.0}

        with pytest.raises(StorageUnavailable):
            check_object(storage, name)
        storage.rates = {}
        check_object(storage, name)

    def test_a_slow_call_takes_its_time_on_the_clock_it_was_given(self) -> None:
        slept: list[float] = []
        storage = FaultyStorage(
            CrashableStorage(), seed=1, rates={Fault.SLOW: 1.0}, delay=slept.append
        )

        storage.put(*make_object(1))

        assert slept == [SLOW_S]

    def test_the_same_seed_meets_the_same_faults(self) -> None:
        def outcomes(seed: int) -> list[str]:
            storage = FaultyStorage(CrashableStorage(), seed=seed, rates=dict.fromkeys(Fault, 0.15))
            seen: list[str] = []
            for number in range(60):
                name, parts = make_object(number % 7)
                try:
                    storage.put(name, parts)
                    check_object(storage, name)
                    seen.append("exact")
                except StorageError as error:
                    seen.append(type(error).__name__)
            return seen

        assert outcomes(1) == outcomes(1)
        assert outcomes(1) != outcomes(2)
        assert set(outcomes(1)) >= {"exact", "StorageFull", "ObjectCorrupt", "StorageUnavailable"}
