"""The files below a root: which objects there are, and what a killed process left behind."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...domain.stored_entry import ObjectName
from ...ports.block_storage import ALIGNMENT, StoredObject
from .root_directory import RootDirectory

TEMPORARY: Final = ".tmp-"
DEPTH_MAX: Final = 6

_TOP: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What a walk at the start found.

    Attributes:
        used: bytes of the objects.
        objects: how many there are.
        temporary: unfinished files that were deleted.
        strange: links and other things that are no plain files or directories; left alone.
    """

    used: int
    objects: int
    temporary: int
    strange: int


def padded(nbytes: int) -> int:
    """What a file of that length takes."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def objects(root: RootDirectory, prefix: str) -> Iterator[StoredObject]:
    """The objects whose names start with `prefix`; opens no directory that cannot hold one.

    Raises:
        OSError: as the system says.
    """
    *way, start = prefix.split("/")
    yield from _objects(root, way, start)


def reclaim(root: RootDirectory) -> Reclaimed:
    """Delete temporary files and count what is there; for a root that nobody writes to.

    Raises:
        OSError: as the system says.
    """
    used = count = temporary = strange = 0
    waiting: list[list[str]] = [[]]
    while waiting:
        way = waiting.pop()
        listing = _list(root, way)
        strange += listing.strange
        waiting.extend([*way, name] for name in listing.directories)
        used += sum(padded(nbytes) for _, nbytes in listing.files)
        count += len(listing.files)
        temporary += len(listing.temporary)
        _delete(root, way, listing.temporary)
    return Reclaimed(used=used, objects=count, temporary=temporary, strange=strange)


@dataclass(slots=True)
class _Listing:
    directories: list[str]
    files: list[tuple[str, int]]
    temporary: list[str]
    strange: int = 0


def _objects(root: RootDirectory, way: list[str], start: str) -> Iterator[StoredObject]:
    try:
        listing = _list(root, way)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, nbytes in listing.files:
        if name.startswith(start):
            yield StoredObject(ObjectName("/".join([*way, name])), padded(nbytes))
    for name in listing.directories:
        if name.startswith(start):
            yield from _objects(root, [*way, name], "")


def _list(root: RootDirectory, way: Sequence[str]) -> _Listing:
    """A directory's entries. In the root itself only the trees of objects count.

    Read to its end at once: the descriptor is not held while a caller thinks.
    """
    listing = _Listing([], [], [])
    fd = root.open(way)
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                if not way and not _TOP.fullmatch(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if len(way) < DEPTH_MAX:
                        listing.directories.append(entry.name)
                elif not entry.is_file(follow_symlinks=False):
                    listing.strange += 1
                elif TEMPORARY in entry.name:
                    listing.temporary.append(entry.name)
                elif way:
                    try:
                        nbytes = entry.stat(follow_symlinks=False).st_size
                    except FileNotFoundError:
                        continue  # deleted meanwhile
                    listing.files.append((entry.name, nbytes))
    finally:
        os.close(fd)
    return listing


def _delete(root: RootDirectory, way: Sequence[str], names: Sequence[str]) -> None:
    if not names:
        return
    fd = root.open(way)
    try:
        for name in names:
            os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
