"""Objects as files: what all storages on a file system share."""

import contextlib
import errno
import itertools
import os
import stat
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...domain.errors import ObjectCorrupt, ObjectMissing, StorageUnavailable
from ...domain.stored_entry import ObjectName
from ...ports.block_storage import (
    ALIGNMENT,
    ByteArray,
    ByteRange,
    Space,
    StoredObject,
    object_name,
)
from .failures import failures_of
from .file_access import FileAccess
from .object_tree import TEMPORARY, object_names, objects, padded, reclaim
from .quarantine import Quarantine
from .root_directory import FILE_MODE, RootDirectory, is_plain
from .space_account import SpaceAccount
from .vectored import aligned_buffer, read_ranges, write_arrays

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

TRANSFERS_MAX: Final = 2
"""Reads at a time, and writes: one keeps the drive busy, and one stands ready behind it. More of
them would share the drive and end together, and it would idle while all are checked or synced."""

SHORT_BYTES: Final = 1 << 20
"""Reads up to here, of headers above all, are no transfers: one that waited for its turn would hold
up all rows that it tells of, and one that had it would leave the drive with one transfer."""


class FileStorage:
    """Implements `ports.block_storage.BlockStorage` in a directory of its own.

    An object is written to a temporary file beside its place, synced and renamed; `sync` syncs the
    directories in which something appeared. A process that is killed leaves the temporary file,
    which the next start deletes. Every method may wait for the drive; the interpreter lock is free
    meanwhile. Linux only.
    """

    def __init__(
        self,
        path: Path,
        *,
        bytes_max: int,
        free_min: int = 0,
        quarantined_max: int = 64,
        quarantine_bytes_max: int = 1 << 30,
        choose_access: Callable[[RootDirectory], FileAccess],
        on_step: Callable[[str], None] = lambda _: None,
    ):
        """Open the directory for this process alone, and walk it once.

        Args:
            path: the root; made if it is not there. See `RootDirectory` for what is refused.
            bytes_max: for everything in the root, temporary and quarantined files included.
            free_min: bytes that must stay free on the file system, whoever fills it.
            quarantined_max: objects.
            quarantine_bytes_max: of those objects.
            choose_access: looks at the root once.
            on_step: called before each step of a `put` or a `sync`, with its name, for tests that
                stop there.

        Raises:
            StorageUnavailable, StorageReadOnly: the directory cannot be used; says why.
        """
        self._on_step = on_step
        self._root = RootDirectory(path, on_step)
        try:
            with failures_of(f"opening the cache directory {path}"):
                self._account = SpaceAccount(self._root.fd, bytes_max=bytes_max, free_min=free_min)
                self._reclaimed = reclaim(self._root)
                self._account.found(self._reclaimed.used)
                self._access = choose_access(self._root)
                self._quarantine = Quarantine(
                    self._root,
                    self._account,
                    count_max=quarantined_max,
                    bytes_max=quarantine_bytes_max,
                )
        except BaseException:
            self._root.close()
            raise
        self._bytes_max = bytes_max
        self._numbers = itertools.count(1)
        self._reads = threading.Semaphore(TRANSFERS_MAX)
        self._writes = threading.Semaphore(TRANSFERS_MAX)
        self._changed = threading.Condition()
        self._putting: set[str] = set()
        self._closed = False

    @property
    def path(self) -> Path:
        """The root."""
        return self._root.path

    @property
    def direct(self) -> bool:
        """Whether the drive is written and read around the page cache."""
        return self._access.direct

    @property
    def notices(self) -> list[str]:
        """What a person should be told once, at the start."""
        found, path = self._reclaimed, self._root.path
        notices: list[str] = []
        if found.temporary:
            notices.append(f"{found.temporary} unfinished files of a killed server were deleted")
        if found.strange:
            notices.append(f"{found.strange} things in {path} are no plain files; they are ignored")
        if self.space().used > self._bytes_max:
            notices.append(
                f"{path} holds {self.space().used} bytes, over the limit of {self._bytes_max}; "
                "nothing is written until enough is evicted"
            )
        return notices

    def bound(self, *, bytes_max: int, free_min: int) -> None:
        """Set other limits than it was opened with, once `space` has told what is there."""
        self._bytes_max = bytes_max
        self._account.bound(bytes_max=bytes_max, free_min=free_min)

    def buffer(self, nbytes: int) -> ByteArray:
        return aligned_buffer(nbytes)

    def put(self, name: ObjectName, parts: Sequence[ByteArray]) -> int:
        *way, leaf = self._parts(name)
        assert parts
        assert not any(len(part) % ALIGNMENT for part in parts)
        with self._alone(name), failures_of(f"writing {name}"):
            directory = self._root.make(way)
            try:
                there = _is_ours(directory, leaf)
                nbytes = 0 if there else sum(map(len, parts))
                if not there:
                    self._account.admit(nbytes)
                    self._write(directory, leaf, parts)
                # Behind the renaming: a sync that came between would not know of it.
                self._root.changed(way)
                return nbytes
            finally:
                os.close(directory)

    def sync(self) -> None:
        self._check_open()
        with failures_of(f"syncing {self._root.path}"):
            self._root.sync()
        self._on_step("synced")

    def read_into(
        self, name: ObjectName, ranges: Sequence[ByteRange], buffers: Sequence[ByteArray]
    ) -> None:
        for span, buffer in zip(ranges, buffers, strict=True):
            assert span.start % ALIGNMENT == 0 == span.end % ALIGNMENT
            assert len(buffer) == span.end - span.start
        with self._opened(name, self._access.flags) as fd:
            size = os.fstat(fd).st_size
            end = max((span.end for span in ranges), default=0)
            if end > size:
                raise ObjectCorrupt(f"{name} has {size} bytes and should reach to {end}")
            with self._turn_to_read(sum(map(len, buffers))):
                read_ranges(fd, ranges, buffers, aligned=self._access.aligned)
            self._access.let_go(fd)

    def header(self, name: ObjectName, nbytes: int) -> bytes:
        with self._opened(name, 0) as fd:
            # One page is wanted, and not the 128 KiB that the kernel would read ahead.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            return os.pread(fd, nbytes, 0)

    def delete(self, name: ObjectName) -> int:
        *way, leaf = self._parts(name)
        with failures_of(f"deleting {name}"), self._standing(way, leaf) as found:
            if found is None:
                return 0
            try:
                os.unlink(leaf, dir_fd=found.directory)
            except FileNotFoundError:
                return 0  # another thread deleted it since
            self._account.freed(found.nbytes)
            return found.nbytes

    def quarantine(self, name: ObjectName, reason: str) -> None:
        *way, leaf = self._parts(name)
        with failures_of(f"quarantining {name}"), self._standing(way, leaf) as found:
            if found is not None:
                with contextlib.suppress(FileNotFoundError):  # another thread took it since
                    self._quarantine.take(found.directory, leaf, name, reason, found.nbytes)

    def keep_aside(self, leaf: str, data: bytes) -> str | None:
        """Keep something for a person to look at, in the quarantine and within its bounds.

        Args:
            leaf: the end of the file's name.

        Returns:
            The file's name in `quarantine/`; None if there was no room.

        Raises:
            StorageReadOnly, StorageUnavailable.
        """
        self._check_open()
        with failures_of(f"keeping {leaf} in the quarantine"):
            return self._quarantine.keep(leaf, data)

    def names(self, prefix: str = "") -> Iterator[StoredObject]:
        self._check_open()
        with failures_of(f"listing {self._root.path}"):
            yield from objects(self._root, prefix)

    def all_names(self) -> Iterator[ObjectName]:
        self._check_open()
        with failures_of(f"listing {self._root.path}"):
            yield from object_names(self._root)

    def space(self) -> Space:
        self._check_open()
        return self._account.space()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._quarantine.close()
            self._root.close()

    def _turn_to_read(self, nbytes: int) -> AbstractContextManager[object]:
        """Held while so much is read; what is short waits for nobody, and keeps nobody waiting."""
        return self._reads if nbytes > SHORT_BYTES else contextlib.nullcontext()

    def _parts(self, name: ObjectName) -> list[str]:
        object_name(name)
        self._check_open()
        return name.split("/")

    def _check_open(self) -> None:
        # A closed descriptor's number may be another file's by now.
        if self._closed:
            raise StorageUnavailable("the storage has been closed")

    @contextmanager
    def _alone(self, name: ObjectName) -> Generator[None]:
        """While the context is open no other thread puts this object."""
        with self._changed:
            self._changed.wait_for(lambda: name not in self._putting)
            self._putting.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._putting.remove(name)
                self._changed.notify_all()

    def _write(self, directory: int, leaf: str, parts: Sequence[ByteArray]) -> None:
        """Bring an admitted object to its place; on any error there is nothing of it."""
        temporary = f"{leaf}{TEMPORARY}{os.getpid()}-{next(self._numbers)}"
        nbytes = sum(map(len, parts))
        unwritten = nbytes
        renamed = False

        def between(count: int) -> None:
            nonlocal unwritten
            unwritten -= count
            self._account.written(count)
            self._account.check_floor()
            self._on_step("write on")

        try:
            self._write_temporary(directory, temporary, parts, between)
            self._on_step("rename")
            os.rename(temporary, leaf, src_dir_fd=directory, dst_dir_fd=directory)
            renamed = True
            self._on_step("done")
        except BaseException:
            self._account.written(unwritten)
            # What cannot be deleted goes on counting, until a start walks over it.
            with contextlib.suppress(OSError):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(leaf if renamed else temporary, dir_fd=directory)
                self._account.freed(nbytes)
            raise

    def _write_temporary(
        self,
        directory: int,
        temporary: str,
        parts: Sequence[ByteArray],
        between: Callable[[int], None],
    ) -> None:
        """Write a durable file under a name that nobody looks for."""
        self._on_step("create")
        fd = os.open(temporary, _CREATE | self._access.flags, FILE_MODE, dir_fd=directory)
        try:
            self._on_step("write")
            with self._writes:
                write_arrays(fd, parts, aligned=self._access.aligned, between=between)
            self._on_step("sync file")
            os.fsync(fd)
            self._access.let_go(fd)
        finally:
            os.close(fd)

    @contextmanager
    def _opened(self, name: ObjectName, flags: int) -> Generator[int]:
        """An object's descriptor, once it is seen to be a file that only stands here."""
        *way, leaf = self._parts(name)
        with failures_of(f"reading {name}"):
            try:
                directory = self._root.open(way)
                try:
                    fd = os.open(leaf, _READ | flags, dir_fd=directory)
                finally:
                    os.close(directory)
            except FileNotFoundError as error:
                raise ObjectMissing(f"there is no object {name}") from error
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise ObjectCorrupt(f"a link stands where {name} should be") from error
                raise
            try:
                if not is_plain(os.fstat(fd)):
                    raise ObjectCorrupt(f"{name} is no plain file, or has another name too")
                yield fd
            finally:
                os.close(fd)

    @contextmanager
    def _standing(self, way: Sequence[str], leaf: str) -> Generator["_Standing | None"]:
        """What stands under a name, whatever it is; None if nothing does."""
        try:
            directory = self._root.open(way)
        except FileNotFoundError:
            yield None
            return
        try:
            try:
                found = os.stat(leaf, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                yield None
                return
            # Only files were counted.
            nbytes = padded(found.st_size) if stat.S_ISREG(found.st_mode) else 0
            yield _Standing(directory, nbytes)
        finally:
            os.close(directory)


@dataclass(frozen=True, slots=True)
class _Standing:
    directory: int
    nbytes: int


def _is_ours(directory: int, leaf: str) -> bool:
    try:
        return is_plain(os.stat(leaf, dir_fd=directory, follow_symlinks=False))
    except FileNotFoundError:
        return False
