"""An object that decayed is refused, never read as something else, and can be written again."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anchorline.adapters.nvme.nvme_storage import NvmeStorage
from anchorline.domain.errors import ObjectCorrupt, ObjectMissing
from anchorline.domain.object_format import decode_header
from anchorline.domain.stored_entry import ObjectName
from support.crash_process import ROOM
from support.disk_use import disk_use
from support.stored_objects import check_object, crc32, make_object

LENGTHS = (9000, 9000, 4096, 1)
PAGE = 4096
FLIPS = 400


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[NvmeStorage]:
    storage = NvmeStorage(tmp_path / "root", bytes_max=ROOM)
    yield storage
    storage.close()


def damaged(storage: NvmeStorage, name: ObjectName, change: Callable[[bytearray], object]) -> None:
    """Change an object's file behind the storage's back."""
    path = storage.path / name
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def check_refused_and_replaced(storage: NvmeStorage, seed: int) -> None:
    """A damaged object is seen to be one, goes to the quarantine, and its place is free."""
    name, parts = make_object(seed, LENGTHS)
    with pytest.raises(ObjectCorrupt) as caught:
        check_object(storage, name)

    storage.quarantine(name, str(caught.value))
    with pytest.raises(ObjectMissing):
        check_object(storage, name)
    assert storage.put(name, parts) > 0
    check_object(storage, name)
    assert storage.space().used >= disk_use(storage.path)


@pytest.mark.parametrize("cut", [1, PAGE, PAGE + 1, 17_000, 20 * PAGE - 1, 20 * PAGE])
def test_a_truncated_object_is_refused(storage: NvmeStorage, cut: int) -> None:
    name, parts = make_object(1, LENGTHS)
    storage.put(name, parts)

    damaged(storage, name, lambda data: data.__delitem__(slice(max(len(data) - cut, 0), None)))

    check_refused_and_replaced(storage, 1)


def test_an_object_cut_in_half_is_refused(storage: NvmeStorage) -> None:
    name, parts = make_object(1, LENGTHS)
    storage.put(name, parts)

    damaged(storage, name, lambda data: data.__delitem__(slice(len(data) // 2, None)))

    check_refused_and_replaced(storage, 1)


def test_any_zeroed_page_is_refused(storage: NvmeStorage) -> None:
    name, parts = make_object(1, LENGTHS)
    pages = sum(map(len, parts)) // PAGE

    for page in range(pages):
        storage.put(name, parts)
        damaged(
            storage,
            name,
            lambda data, at=page * PAGE: data.__setitem__(slice(at, at + PAGE), bytes(PAGE)),
        )
        check_refused_and_replaced(storage, 1)


def test_any_flipped_bit_is_refused(storage: NvmeStorage) -> None:
    chance = random.Random(1)
    name, parts = make_object(1, LENGTHS)
    storage.put(name, parts)
    nbytes = sum(map(len, parts))

    for _ in range(FLIPS):
        bit = chance.randrange(8 * nbytes)

        def flip(data: bytearray, bit: int = bit) -> None:
            data[bit // 8] ^= 1 << bit % 8

        damaged(storage, name, flip)
        with pytest.raises(ObjectCorrupt):
            check_object(storage, name)
        damaged(storage, name, flip)
    check_object(storage, name)


def test_swapped_payloads_are_refused(storage: NvmeStorage) -> None:
    name, parts = make_object(1, LENGTHS)
    storage.put(name, parts)
    header = decode_header(storage.header(name, PAGE), crc32)
    first, second = header.parts[0], header.parts[1]
    assert first.padded_bytes == second.padded_bytes

    def swap(data: bytearray) -> None:
        a = slice(first.offset, first.offset + first.padded_bytes)
        b = slice(second.offset, second.offset + second.padded_bytes)
        data[a], data[b] = data[b], data[a]

    damaged(storage, name, swap)

    check_refused_and_replaced(storage, 1)


def test_payloads_swapped_between_two_objects_are_refused(storage: NvmeStorage) -> None:
    made = [make_object(seed, LENGTHS) for seed in (1, 2)]
    for name, parts in made:
        storage.put(name, parts)
    paths = [storage.path / name for name, _ in made]
    files = [path.read_bytes() for path in paths]
    paths[0].write_bytes(files[0][:PAGE] + files[1][PAGE:])
    paths[1].write_bytes(files[1][:PAGE] + files[0][PAGE:])

    check_refused_and_replaced(storage, 1)
    check_refused_and_replaced(storage, 2)


def test_two_objects_under_each_others_names_are_refused(storage: NvmeStorage) -> None:
    made = [make_object(seed, LENGTHS) for seed in (1, 2)]
    for name, parts in made:
        storage.put(name, parts)
    paths = [storage.path / name for name, _ in made]
    files = [path.read_bytes() for path in paths]
    paths[0].write_bytes(files[1])
    paths[1].write_bytes(files[0])

    check_refused_and_replaced(storage, 1)
    check_refused_and_replaced(storage, 2)


def test_a_file_that_grew_is_refused_by_its_length(storage: NvmeStorage) -> None:
    name, parts = make_object(1, LENGTHS)
    storage.put(name, parts)
    header = check_object(storage, name)

    damaged(storage, name, lambda data: data.extend(bytes(PAGE)))

    (found,) = storage.names()
    assert found.nbytes == header.object_bytes + PAGE
