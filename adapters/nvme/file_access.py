"""Two ways for a file's bytes to get to the medium and back."""

import contextlib
import errno
import os
from typing import Final, Protocol

from ...ports.block_storage import ALIGNMENT
from .root_directory import FILE_MODE, RootDirectory
from .vectored import aligned_buffer

_PROBE_NAME: Final = "direct-io-probe"
_REFUSALS: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP})


class FileAccess(Protocol):
    """How files are opened, and what is done when one is no longer needed.

    Attributes:
        flags: for `os.open`, beside the usual ones.
        aligned: whether memory has to start at multiples of `ALIGNMENT`.
        direct: whether the page cache is gone around.
    """

    @property
    def flags(self) -> int: ...

    @property
    def aligned(self) -> bool: ...

    @property
    def direct(self) -> bool: ...

    def let_go(self, fd: int) -> None:
        """The file was read, or written and synced: nobody needs it in memory."""
        ...


class DirectAccess:
    """Between the caller's memory and the drive, nothing in between."""

    flags = os.O_DIRECT
    aligned = True
    direct = True

    def let_go(self, fd: int) -> None:
        """Nothing of it is in the page cache."""


class BufferedAccess:
    """Through the page cache, which is asked to forget it: state is read once, and large."""

    flags = 0
    aligned = False
    direct = False

    def let_go(self, fd: int) -> None:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def takes_direct(root: RootDirectory) -> bool:
    """Whether the root's file system takes direct I/O; writes a page and reads it back.

    Raises:
        OSError: it takes nothing at all.
    """
    page = aligned_buffer(ALIGNMENT)
    page[:] = 0xA5
    try:
        fd = _probe_file(root)
    except OSError as error:
        if error.errno in _REFUSALS:
            _forget(root)
            return False
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True  # there is no room to try; what is there can be read all the same
        raise
    try:
        written = os.pwritev(fd, [page.data], 0)
        back = aligned_buffer(ALIGNMENT)
        return written == os.preadv(fd, [back.data], 0) == ALIGNMENT and bool((back == page).all())
    except OSError as error:
        if error.errno in _REFUSALS:
            return False
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        raise
    finally:
        os.close(fd)
        _forget(root)


def _probe_file(root: RootDirectory) -> int:
    """A new file; one that is there is never opened: it may be another file's second name."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_DIRECT
    try:
        return os.open(_PROBE_NAME, flags, FILE_MODE, dir_fd=root.fd)
    except FileExistsError:  # of a server that was killed
        _forget(root)
        return os.open(_PROBE_NAME, flags, FILE_MODE, dir_fd=root.fd)


def _forget(root: RootDirectory) -> None:
    """Some file systems create the file before they refuse the flag."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_PROBE_NAME, dir_fd=root.fd)
