"""Damaged objects, moved aside for a person to look at."""

import contextlib
import errno
import os
import threading
from typing import Final

from ...domain.errors import StorageFull
from .object_tree import padded
from .root_directory import FILE_MODE, RootDirectory
from .space_account import SpaceAccount

QUARANTINE_NAME: Final = "quarantine"
REASON_BYTES_MAX: Final = 4096

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Quarantine:
    """The newest damaged objects of a root, each with the reason in a file beside it.

        quarantine/0000000007-<last part of the name>      the object
        quarantine/0000000007.reason                       its whole name, and why
        quarantine/0000000008-verify.json                  what else is to be looked at

    Everything in here counts as used. Callable from any thread.
    """

    def __init__(
        self, root: RootDirectory, account: SpaceAccount, *, count_max: int, bytes_max: int
    ):
        """Finds what is there, and deletes what exceeds the bounds.

        Raises:
            OSError: as the system says.
        """
        self._account = account
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._root = root
        # Number -> files with that number and their bytes, oldest first.
        self._kept: dict[int, dict[str, int]] = {}
        self._fd: int | None = None
        self._settle()
        try:
            self._find()
        except BaseException:
            self.close()
            raise
        self._number = max(self._kept, default=0)
        self._prune()

    def take(self, directory: int, leaf: str, name: str, reason: str, nbytes: int) -> None:
        """Move an object here.

        Args:
            directory: a descriptor of where it stands.
            leaf: what it is called there.
            name: the object's whole name.
            nbytes: its size, which is counted already.

        Raises:
            FileNotFoundError: it is gone.
            OSError: as the system says; it stands where it stood.
        """
        with self._lock:
            fd = self._settle()
            self._number += 1
            kept = f"{self._number:010d}-{leaf}"
            if fd is None or not _moved(leaf, directory, kept, fd):
                os.unlink(leaf, dir_fd=directory)  # better gone than read again
                self._account.freed(nbytes)
                return
            self._kept[self._number] = {kept: nbytes}
            self._write_reason(fd, f"{name}\n{reason}\n")
            # It is out of the way. Should a power cut put it back, it is found to be bad again.
            with contextlib.suppress(OSError):
                os.fsync(fd)
                os.fsync(directory)
            self._prune()

    def keep(self, leaf: str, data: bytes) -> str | None:
        """Put a file of ours beside the objects; its name, or None if there is no room.

        Raises:
            OSError: as the system says.
        """
        with self._lock:
            fd = self._settle()
            if fd is None:
                return None
            self._number += 1
            name = f"{self._number:010d}-{leaf}"
            written = self._write(fd, name, data)
            self._prune()
            return name if written else None

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def _settle(self) -> int | None:
        """The directory; None on a full file system, which must not keep objects from reads."""
        if self._fd is None:
            try:
                fd = self._root.make([QUARANTINE_NAME])
                try:
                    os.fsync(self._root.fd)
                except BaseException:
                    os.close(fd)
                    raise
                self._fd = fd
            except OSError as error:
                if error.errno not in _FULL:
                    raise
        return self._fd

    def _find(self) -> None:
        if self._fd is None:
            return
        with os.scandir(self._fd) as entries:
            files = {
                entry.name: padded(entry.stat(follow_symlinks=False).st_size)
                for entry in entries
                if not entry.is_dir(follow_symlinks=False) and entry.name[:10].isdecimal()
            }
        for name in sorted(files):
            self._kept.setdefault(int(name[:10]), {})[name] = files[name]
            self._account.found(files[name])

    def _write_reason(self, fd: int, text: str) -> None:
        data = text.encode(errors="replace")[:REASON_BYTES_MAX]
        self._write(fd, f"{self._number:010d}.reason", data)

    def _write(self, fd: int, name: str, data: bytes) -> bool:
        """Best effort: the object is out of the way, and that is what matters."""
        nbytes = padded(len(data))
        with contextlib.suppress(OSError, StorageFull):
            self._account.admit(nbytes)
            self._account.written(nbytes)
            try:
                file = os.open(name, _CREATE, FILE_MODE, dir_fd=fd)
            except OSError:
                self._account.freed(nbytes)
                raise
            self._kept.setdefault(self._number, {})[name] = nbytes
            try:
                return os.write(file, data) == len(data)
            finally:
                os.close(file)
        return False

    def _prune(self) -> None:
        """Delete the oldest until the bounds hold, or one cannot be deleted."""
        while self._kept and (
            len(self._kept) > self._count_max
            or sum(sum(files.values()) for files in self._kept.values()) > self._bytes_max
        ):
            number, files = next(iter(self._kept.items()))
            for name in list(files):
                try:
                    os.unlink(name, dir_fd=self._fd)
                except OSError:
                    return  # it goes on counting, and the next one that is taken tries again
                self._account.freed(files.pop(name))
            del self._kept[number]


def _moved(leaf: str, directory: int, kept: str, quarantine: int) -> bool:
    """Move a file; False if there is no room for its new name."""
    try:
        os.rename(leaf, kept, src_dir_fd=directory, dst_dir_fd=quarantine)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        return False
    return True
