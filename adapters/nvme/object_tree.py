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
    for above, listing in _walk(root, way, start, sized=True):
        for name, nbytes in listing.files.items():
            yield StoredObject(ObjectName(above + name), nbytes)


def object_names(root: RootDirectory) -> Iterator[ObjectName]:
    """The names of all objects: what a directory says of itself, without a look at any file.

    Raises:
        OSError: as the system says.
    """
    for above, listing in _walk(root, [], "", sized=False):
        for name in listing.files:
            yield ObjectName(above + name)


def reclaim(root: RootDirectory) -> Reclaimed:
    """Delete temporary files and count what is there; for a root that nobody writes to.

    A process that was killed before a sync left names that are to be seen and may yet be lost: all
    directories count as changed.

    Raises:
        OSError: as the system says.
    """
    used = count = temporary = strange = 0
    waiting: list[list[str]] = [[]]
    while waiting:
        way = waiting.pop()
        listing = _list(root, way, sized=True)
        strange += listing.strange
        waiting.extend([*way, name] for name in listing.directories)
        used += sum(listing.files.values())
        count += len(listing.files)
        temporary += len(listing.temporary)
        _delete(root, way, listing.temporary)
        root.changed(way)
    return Reclaimed(used=used, objects=count, temporary=temporary, strange=strange)


@dataclass(slots=True)
class _Listing:
    """What stands in a directory.

    Attributes:
        files: with the bytes that each takes; 0 where sizes were not asked for.
    """

    directories: list[str]
    files: dict[str, int]
    temporary: list[str]
    strange: int = 0


def _walk(
    root: RootDirectory, way: list[str], start: str, *, sized: bool
) -> Iterator[tuple[str, _Listing]]:
    """A directory, of which only what starts with `start` counts, and all below it.

    Each comes with its way from the root, up to the last `/`.
    """
    waiting = [way]
    while waiting:
        at = waiting.pop()
        try:
            listing = _list(root, at, sized=sized)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if at is way and start:
            listing.directories = [name for name in listing.directories if name.startswith(start)]
            listing.files = {k: v for k, v in listing.files.items() if k.startswith(start)}
        waiting.extend([*at, name] for name in listing.directories)
        yield "".join(f"{part}/" for part in at), listing


def _list(root: RootDirectory, way: Sequence[str], *, sized: bool) -> _Listing:
    """A directory's entries. In the root itself only the trees of objects count.

    Read to its end at once: the descriptor is not held while a caller thinks.
    """
    listing = _Listing([], {}, [])
    fd = root.open(way)
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                if not way and not _TOP.fullmatch(entry.name):
                    continue
                if entry.is_file(follow_symlinks=False):
                    if TEMPORARY in entry.name:
                        listing.temporary.append(entry.name)
                    elif way:
                        try:
                            listing.files[entry.name] = _bytes_of(entry) if sized else 0
                        except FileNotFoundError:
                            continue  # deleted meanwhile
                elif entry.is_dir(follow_symlinks=False):
                    if len(way) < DEPTH_MAX:
                        listing.directories.append(entry.name)
                else:
                    listing.strange += 1
    finally:
        os.close(fd)
    return listing


def _bytes_of(entry: os.DirEntry[str]) -> int:
    """What a file takes. Three quarters of a walk's time go into asking for it."""
    return padded(entry.stat(follow_symlinks=False).st_size)


def _delete(root: RootDirectory, way: Sequence[str], names: Sequence[str]) -> None:
    if not names:
        return
    fd = root.open(way)
    try:
        for name in names:
            os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
