"""What `ports/block_storage.py` promises, as tests over any storage."""

import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from anchorline.domain.errors import ObjectCorrupt, ObjectMissing, StorageFull
from anchorline.domain.stored_entry import ObjectName
from anchorline.ports.block_storage import (
    ALIGNMENT,
    BlockStorage,
    ByteArray,
    ByteRange,
)
from support.stored_objects import check_object, make_object

FOLDER = "ab" * 32
A = ObjectName(f"{FOLDER}/blocks/aa/a.blk")
B = ObjectName(f"{FOLDER}/blocks/bb/b.blk")
C = ObjectName(f"{'cd' * 32}/anchors/aa/c-end.anc")
PAGE = ALIGNMENT
ROOM = 1 << 30
QUARANTINED_MAX = 3

BAD_NAMES = [
    *f"a {FOLDER} {FOLDER}/ /{FOLDER}/a {FOLDER}/../a {FOLDER}/./a {FOLDER}//a".split(),
    *f"../{FOLDER}/a {FOLDER}/.hidden {FOLDER}/A {FOLDER}/a.tmp-1 {FOLDER[:-1]}/a".split(),
    *f"{FOLDER}/{'a' * 161} {FOLDER}/a/b/c/d/e/f catalog.db quarantine/a".split(),
    *("", f"{FOLDER}/a\0b", f"{FOLDER}/a\n"),
]


def filled(pages: int, seed: int = 0) -> ByteArray:
    return np.random.default_rng(seed).integers(0, 256, pages * PAGE, dtype=np.uint8)


def read(storage: BlockStorage, name: ObjectName, start: int, end: int) -> bytes:
    buffer = np.full(end - start, 0xEE, dtype=np.uint8)
    storage.read_into(name, [ByteRange(start, end)], [buffer])
    return buffer.tobytes()


def used(storage: BlockStorage) -> int:
    return storage.space().used


class BlockStorageContract(ABC):
    """Holds an adapter to its port."""

    @abstractmethod
    def make_storage(self, *, bytes_max: int = ROOM) -> BlockStorage:
        """An empty storage that keeps `QUARANTINED_MAX` quarantined objects."""

    @abstractmethod
    def reopen(self, storage: BlockStorage, *, bytes_max: int = ROOM) -> BlockStorage:
        """The same medium as another process finds it later; `storage` is not used any more."""

    @abstractmethod
    def content(self, storage: BlockStorage, name: ObjectName) -> bytes:
        """What stands on the medium, read behind the storage's back."""

    @abstractmethod
    def overwrite(self, storage: BlockStorage, name: ObjectName, content: bytes) -> None:
        """Change what stands on the medium behind the storage's back."""

    def test_an_object_is_read_as_it_was_written(self) -> None:
        storage = self.make_storage()
        parts = [filled(3, 1), filled(1, 2), filled(20, 3)]

        written = storage.put(A, parts)

        whole = b"".join(part.tobytes() for part in parts)
        assert written == len(whole)
        assert read(storage, A, 0, len(whole)) == whole
        assert self.content(storage, A) == whole

    def test_ranges_are_read_in_any_order_into_their_own_buffers(self) -> None:
        storage = self.make_storage()
        whole = filled(16)
        storage.put(A, [whole])
        spans = [(8, 12), (0, 1), (1, 2), (2, 5), (2, 2), (15, 16), (0, 16)]
        buffers = [np.zeros((end - start) * PAGE, dtype=np.uint8) for start, end in spans]

        storage.read_into(A, [ByteRange(a * PAGE, b * PAGE) for a, b in spans], buffers)

        for (start, end), buffer in zip(spans, buffers, strict=True):
            assert np.array_equal(buffer, whole[start * PAGE : end * PAGE]), (start, end)

    def test_what_has_no_alignment_in_memory_is_written_and_read_all_the_same(self) -> None:
        storage = self.make_storage()
        memory = filled(12)
        odd = memory[1 : 1 + 5 * PAGE]

        storage.put(A, [odd, memory[: 2 * PAGE], odd])
        back = np.zeros(13 * PAGE, dtype=np.uint8)[3 : 3 + 12 * PAGE]
        storage.read_into(A, [ByteRange(0, 12 * PAGE)], [back])

        assert np.array_equal(back, np.concatenate([odd, memory[: 2 * PAGE], odd]))

    def test_parts_are_not_modified_and_may_be_read_only(self) -> None:
        storage = self.make_storage()
        data = filled(2)
        part = np.frombuffer(data.tobytes(), dtype=np.uint8)

        storage.put(A, [part])

        assert np.array_equal(part, data)
        assert read(storage, A, 0, 2 * PAGE) == data.tobytes()

    def test_a_buffer_is_zeroed_whole_pages(self) -> None:
        storage = self.make_storage()

        for nbytes in (1, PAGE, PAGE + 1, 5 << 20):
            buffer = storage.buffer(nbytes)
            assert nbytes <= len(buffer) < nbytes + PAGE
            assert len(buffer) % PAGE == 0
            assert not buffer.any()
            buffer[:] = 1  # it is the caller's

    def test_a_header_is_the_start_of_an_object(self) -> None:
        storage = self.make_storage()
        data = filled(2)
        storage.put(A, [data])

        assert storage.header(A, 100) == data[:100].tobytes()
        assert storage.header(A, PAGE) == data[:PAGE].tobytes()
        assert storage.header(A, 5 * PAGE) == data.tobytes()

    def test_an_object_that_is_there_is_left_as_it_is(self) -> None:
        storage = self.make_storage()
        first, second = filled(2, 1), filled(3, 2)
        storage.put(A, [first])

        assert storage.put(A, [second]) == 0

        assert self.content(storage, A) == first.tobytes()
        assert used(storage) == len(first)

    def test_an_object_that_is_not_there_is_missing(self) -> None:
        storage = self.make_storage()
        storage.put(B, [filled(1)])
        buffer = np.zeros(PAGE, dtype=np.uint8)

        for name in (A, ObjectName(f"{FOLDER}/blocks/bb/c.blk"), C):
            with pytest.raises(ObjectMissing):
                storage.read_into(name, [ByteRange(0, PAGE)], [buffer])
            with pytest.raises(ObjectMissing):
                storage.header(name, 10)
            assert storage.delete(name) == 0
            storage.quarantine(name, "nothing is there")
        assert used(storage) == PAGE

    def test_what_ends_before_the_range_is_corrupt(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(2)])

        with pytest.raises(ObjectCorrupt):
            read(storage, A, PAGE, 3 * PAGE)
        with pytest.raises(ObjectCorrupt):
            read(storage, A, 4 * PAGE, 5 * PAGE)

    @pytest.mark.parametrize("cut", [1, PAGE, 2 * PAGE, 4 * PAGE - 1, 4 * PAGE])
    def test_a_truncated_object_is_never_read_as_zeros(self, cut: int) -> None:
        storage = self.make_storage()
        data = filled(4)
        storage.put(A, [data])
        self.overwrite(storage, A, data.tobytes()[:-cut])

        with pytest.raises(ObjectCorrupt):
            read(storage, A, 0, 4 * PAGE)

        assert storage.header(A, PAGE) == data.tobytes()[:-cut][:PAGE]

    def test_a_deleted_object_is_gone_and_its_bytes_are_free(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(3)])
        before = storage.space()

        assert storage.delete(A) == 3 * PAGE

        assert storage.delete(A) == 0
        assert list(storage.names()) == []
        assert used(storage) == before.used - 3 * PAGE
        with pytest.raises(ObjectMissing):
            storage.header(A, 1)
        assert storage.put(A, [filled(1)]) == PAGE

    def test_names_are_those_that_start_with_the_prefix(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(1)])
        storage.put(B, [filled(2)])
        storage.put(C, [filled(3)])

        def names(prefix: str) -> list[tuple[str, int]]:
            return sorted((found.name, found.nbytes // PAGE) for found in storage.names(prefix))

        assert names("") == [(A, 1), (B, 2), (C, 3)]
        assert (
            names(FOLDER)
            == names(f"{FOLDER}/bl")
            == names(f"{FOLDER}/blocks/")
            == [
                (A, 1),
                (B, 2),
            ]
        )
        assert names(f"{FOLDER}/blocks/a") == names(f"{FOLDER}/blocks/aa/a") == [(A, 1)]
        assert names(A) == [(A, 1)]
        assert names("cd") == [(C, 3)]
        assert names("x") == names(f"{A}x") == names(f"{FOLDER}/anchors/") == []

    def test_all_names_are_those_of_the_objects_that_are_there(self) -> None:
        storage = self.make_storage()
        for name in (A, B, C):
            storage.put(name, [filled(1)])
        assert sorted(storage.all_names()) == [A, B, C]
        storage.delete(A)
        storage.quarantine(B, "damaged")

        assert list(storage.all_names()) == [C]
        assert list(self.reopen(storage).all_names()) == [C]

    def test_a_quarantined_object_is_out_of_reach_and_counted(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(2)])

        storage.quarantine(A, "a checksum differs\n../../: \0")

        assert list(storage.names()) == []
        assert used(storage) >= 2 * PAGE
        with pytest.raises(ObjectMissing):
            storage.header(A, 1)
        assert used(self.reopen(storage)) >= 2 * PAGE

    def test_a_quarantined_object_can_be_put_again(self) -> None:
        storage = self.make_storage()
        storage.put(A, [filled(1, 1)])
        storage.quarantine(A, "bad")

        assert storage.put(A, [filled(1, 2)]) == PAGE

        assert self.content(storage, A) == filled(1, 2).tobytes()

    def test_the_quarantine_is_bounded(self) -> None:
        storage = self.make_storage()

        sizes: list[int] = []
        for number in range(4 * QUARANTINED_MAX):
            storage.put(A, [filled(16, number)])
            storage.quarantine(A, f"reason {number}")
            sizes.append(used(storage))
            if number == 2 * QUARANTINED_MAX:
                storage = self.reopen(storage)

        assert max(sizes) <= QUARANTINED_MAX * 18 * PAGE

    def test_space_counts_what_is_there(self) -> None:
        storage = self.make_storage(bytes_max=100 * PAGE)
        empty = storage.space()

        storage.put(A, [filled(10)])

        space = storage.space()
        assert (space.used - empty.used, empty.free - space.free) == (10 * PAGE, 10 * PAGE)
        assert 0 < space.free < space.total

    def test_the_limit_holds_and_what_does_not_fit_leaves_no_trace(self) -> None:
        storage = self.make_storage(bytes_max=10 * PAGE)
        storage.put(A, [filled(6)])
        before = storage.space()

        with pytest.raises(StorageFull, match=r"20480 .*"):
            storage.put(B, [filled(5)])

        assert storage.space() == before
        assert [found.name for found in storage.names()] == [A]
        assert storage.put(C, [filled(4)]) == 4 * PAGE
        assert storage.space().free == 0
        storage.delete(A)
        assert storage.put(B, [filled(5)]) == 5 * PAGE

    def test_use_never_exceeds_the_limit_whatever_is_tried(self) -> None:
        limit = 2560 * PAGE  # 10 MiB; three times as much is written
        storage = self.make_storage(bytes_max=limit)
        refused = 0

        for number in range(30):
            try:
                storage.put(ObjectName(f"{FOLDER}/blocks/00/{number}"), [filled(256)])
            except StorageFull:
                refused += 1
            assert used(storage) <= limit

        assert refused == 20

    def test_a_start_under_a_smaller_limit_takes_nothing_until_enough_is_deleted(self) -> None:
        storage = self.make_storage(bytes_max=10 * PAGE)
        storage.put(A, [filled(6)])
        storage.put(B, [filled(4)])

        storage = self.reopen(storage, bytes_max=5 * PAGE)

        assert (used(storage), storage.space().free) == (10 * PAGE, 0)
        with pytest.raises(StorageFull):
            storage.put(C, [filled(1)])
        assert read(storage, A, 0, PAGE) == filled(6)[:PAGE].tobytes()
        storage.delete(A)
        assert storage.space().free == PAGE
        assert storage.put(C, [filled(1)]) == PAGE

    def test_everything_is_there_after_a_restart(self) -> None:
        storage = self.make_storage()
        made = [make_object(seed) for seed in range(5)]
        for name, parts in made:
            storage.put(name, parts)
        before = used(storage)

        storage = self.reopen(storage)

        assert used(storage) == before
        assert {found.name for found in storage.names()} == {name for name, _ in made}
        for name, _ in made:
            check_object(storage, name)

    def test_an_object_put_again_after_a_restart_is_not_written_again(self) -> None:
        storage = self.make_storage()
        name, parts = make_object(1)
        storage.put(name, parts)

        assert self.reopen(storage).put(name, parts) == 0

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_a_name_that_leads_elsewhere_is_refused(self, name: str) -> None:
        storage = self.make_storage()
        bad = ObjectName(name)
        page = np.zeros(PAGE, dtype=np.uint8)

        for call in (
            lambda: storage.put(bad, [page]),
            lambda: storage.read_into(bad, [ByteRange(0, PAGE)], [page]),
            lambda: storage.header(bad, 1),
            lambda: storage.delete(bad),
            lambda: storage.quarantine(bad, "bad"),
        ):
            with pytest.raises(ValueError, match="cannot be an object's name"):
                call()
        assert used(storage) == 0

    def test_one_of_many_that_put_the_same_object_writes_it(self) -> None:
        storage = self.make_storage()
        name, parts = make_object(1, (40_000,))
        begin = threading.Barrier(6)

        def put() -> int:
            begin.wait()
            written = storage.put(name, parts)
            check_object(storage, name)
            return written

        with ThreadPoolExecutor(6) as threads:
            written = [future.result() for future in [threads.submit(put) for _ in range(6)]]

        assert sorted(written)[:5] == [0] * 5
        assert used(storage) == max(written) == len(self.content(storage, name))

    def test_of_many_that_delete_or_quarantine_an_object_one_does(self) -> None:
        storage = self.make_storage()
        for number in range(4):
            storage.put(A, [filled(2, number)])
            begin = threading.Barrier(4)

            def drop(share: int, begin: threading.Barrier = begin) -> int:
                begin.wait()
                if share == 0:
                    storage.quarantine(A, "bad")
                    return 0
                return storage.delete(A)

            with ThreadPoolExecutor(4) as threads:
                freed = sum(threads.map(drop, range(4)))

            assert freed in (0, 2 * PAGE)
            assert list(storage.names()) == []
        before = used(storage)
        assert used(self.reopen(storage)) == before

    def test_threads_that_put_read_and_delete_do_not_disturb_each_other(self) -> None:
        storage = self.make_storage()
        made = [make_object(seed, (9000, 5000)) for seed in range(16)]

        def work(share: int) -> None:
            for name, parts in made[share::4]:
                for _ in range(3):
                    storage.put(name, parts)
                    check_object(storage, name)
                    storage.delete(name)
                storage.put(name, parts)

        with ThreadPoolExecutor(4) as threads:
            for future in [threads.submit(work, share) for share in range(4)]:
                future.result()

        assert {found.name for found in storage.names()} == {name for name, _ in made}
        assert used(storage) == sum(found.nbytes for found in storage.names())
        assert used(self.reopen(storage)) == sum(len(part) for _, parts in made for part in parts)
