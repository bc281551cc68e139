"""The directory a storage lives in: whose it is, who uses it, and the way down from it.

Everything below is opened part by part, relative to the directory above and without following
links: whoever can plant a link in the root leads nobody out of it.
"""

import contextlib
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ...domain.errors import StorageReadOnly, StorageUnavailable
from .failures import failures_of, storage_error

LOCK_NAME: Final = "lock"
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600

_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RootDirectory:
    """An open root that no other process uses.

    Callable from any thread; every call may wait for the drive.
    """

    def __init__(self, path: Path, on_step: Callable[[str], None] = lambda _: None):
        """Open the directory, made if it is not there, and lock it.

        Args:
            path: may lead over links, but must not be one.
            on_step: see `FileStorage`.

        Raises:
            StorageUnavailable: it cannot be used, or another process uses it; the message says
                why and what to do.
            StorageReadOnly: nothing may be written there.
        """
        self.path = path
        self._on_step = on_step
        # Held while a directory is made and the one above it noted: who finds it there relies on a
        # sync that knows of both.
        self._lock = threading.Lock()
        # Directories in which something may stand that a power cut would take.
        self._unsynced: set[tuple[str, ...]] = set()
        # Held while directories are synced: who finds nothing left to do waits until it is done.
        self._syncing = threading.Lock()
        _make_with_parents(path)
        self.fd = _open_own(path)
        try:
            self._lock_fd = _lock(self.fd, path)
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """Unlock it; another process may use it."""
        os.close(self._lock_fd)
        os.close(self.fd)

    def open(self, parts: Sequence[str]) -> int:
        """A descriptor of the directory below the root; the caller closes it.

        Raises:
            FileNotFoundError: it is not there.
            OSError: a part of the way is no directory, or the drive failed.
        """
        fd = os.dup(self.fd)
        try:
            for part in parts:
                inner = os.open(part, _OPEN_DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        return fd

    def make(self, parts: Sequence[str]) -> int:
        """As `open`, of a directory that is made if need be; durable with the next `sync`.

        Raises:
            OSError: as the system says.
        """
        fd = os.dup(self.fd)
        try:
            for depth, part in enumerate(parts):
                inner = self._make_one(fd, part, parts[:depth])
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        return fd

    def changed(self, parts: Sequence[str]) -> None:
        """Something stands in a directory that was not seen to be durable."""
        with self._lock:
            self._unsynced.add(tuple(parts))

    def sync(self) -> None:
        """Make durable what stood in any directory when that was `changed` before.

        Raises:
            OSError: a directory cannot be synced, and says which; all others are. The next call
                tries it again.
        """
        with self._syncing:
            with self._lock:
                waiting, self._unsynced = self._unsynced, set()
            failures: list[OSError] = []
            try:
                for way in sorted(waiting):
                    try:
                        self._sync_one(way)
                    except OSError as error:
                        where = "/".join(way) or "the root"
                        failures.append(OSError(error.errno, f"{where}: {error.strerror}"))
                    else:
                        waiting.remove(way)
            finally:
                with self._lock:
                    self._unsynced |= waiting
            if failures:
                raise failures[0]

    def _make_one(self, above: int, part: str, way: Sequence[str]) -> int:
        """The directory `part` in the one that `above` is a descriptor of and `way` leads to."""
        with self._lock:
            try:
                return os.open(part, _OPEN_DIRECTORY, dir_fd=above)
            except FileNotFoundError:
                self._on_step("make directory")
                os.mkdir(part, DIRECTORY_MODE, dir_fd=above)
                self._unsynced.add(tuple(way))
                return os.open(part, _OPEN_DIRECTORY, dir_fd=above)

    def _sync_one(self, way: tuple[str, ...]) -> None:
        self._on_step("sync directory")
        try:
            fd = self.open(way)
        except (FileNotFoundError, NotADirectoryError):
            return  # somebody took it away, with all that stood in it
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def is_plain(found: os.stat_result) -> bool:
    """Whether it is a file with one name: whoever has another one could change it behind us."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def _make_with_parents(path: Path) -> None:
    """Make the directory and those above it that are missing, each durable in its parent."""
    missing: list[Path] = []
    while not os.path.lexists(path):
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        with failures_of(f"making the directory {directory}"):
            directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
            fd = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _open_own(path: Path) -> int:
    """A descriptor of the root, once it is seen to be a directory of this user alone."""
    if path.is_symlink():
        target = path.readlink()
        raise StorageUnavailable(
            f"the cache directory {path} is a symbolic link; name {target} itself"
        )
    with failures_of(f"opening the cache directory {path}"):
        fd = os.open(path, _OPEN_DIRECTORY)
    try:
        _check_owner(os.fstat(fd), path)
        _close_to_others(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _close_to_others(fd: int) -> None:
    """Take from others what they may see of the root; the names in it tell of conversations.

    Best effort: some file systems know no modes, and what stands in it is closed by itself.
    """
    if stat.S_IMODE(os.fstat(fd).st_mode) & 0o077:
        with contextlib.suppress(OSError):
            os.fchmod(fd, DIRECTORY_MODE)


def _check_owner(found: os.stat_result, path: Path) -> None:
    if found.st_uid != os.geteuid():
        raise StorageUnavailable(
            f"the cache directory {path} belongs to the user {found.st_uid} and the server runs "
            f"as {os.geteuid()}; give it a directory of its own"
        )
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise StorageUnavailable(
            f"others may write into the cache directory {path} (mode "
            f"{stat.S_IMODE(found.st_mode):o}), which holds conversations; chmod go-w it"
        )


def _lock(root: int, path: Path) -> int:
    """Take the root's lock for as long as the descriptor is open; a killed process lets it go."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(LOCK_NAME, flags, FILE_MODE, dir_fd=root)
    except OSError as error:
        failure = storage_error(error, f"locking the cache directory {path}")
        if isinstance(failure, StorageReadOnly):
            raise StorageReadOnly(
                f"the cache directory {path} cannot be written to ({error.strerror}); "
                "nothing is kept on disk"
            ) from error
        raise failure from error
    if not is_plain(os.fstat(fd)):
        os.close(fd)
        raise StorageUnavailable(
            f"{path / LOCK_NAME} is no plain file, or has another name too; remove it"
        )
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 20, 0).decode(errors="replace").strip()
        os.close(fd)
        raise StorageUnavailable(
            f"the cache directory {path} is in use by another server (process {holder or '?'}); "
            "give this one another directory"
        ) from error
    except OSError as error:
        os.close(fd)
        raise storage_error(error, f"locking the cache directory {path}") from error
    # Who it is, for the message above; the lock itself is the descriptor's, and needs no room.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
