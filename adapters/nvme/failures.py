"""What the operating system's errors mean for a storage."""

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ...domain.errors import StorageError, StorageFull, StorageReadOnly, StorageUnavailable

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


def storage_error(error: OSError, doing: str) -> StorageError:
    """The port's error for the system's.

    Args:
        doing: what failed, as in "writing a.blk".
    """
    text = f"{doing}: {error.strerror or error}"
    if error.errno in _FULL:
        return StorageFull(text)
    if error.errno in _READ_ONLY:
        return StorageReadOnly(text)
    return StorageUnavailable(text)


@contextmanager
def failures_of(doing: str) -> Generator[None]:
    """Raises what `storage_error` makes of any OSError inside."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, doing) from error
