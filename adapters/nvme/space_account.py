"""How many bytes a storage has used, and whether more may be written."""

import os
import threading

from ...domain.errors import StorageFull
from ...ports.block_storage import Space
from .failures import failures_of
from .root_directory import LOCK_NAME


class SpaceAccount:
    """Counts bytes before they are written and until they are seen to be gone.

    So the sum is never under what is really there: temporary files count from their first byte,
    and what could not be deleted goes on counting. Callable from any thread.
    """

    def __init__(self, root: int, *, bytes_max: int, free_min: int):
        """Counts nothing yet.

        Args:
            root: a descriptor on the file system in question; stays the caller's.
            bytes_max: that may be used.
            free_min: bytes that must stay free on the file system, whoever fills it.
        """
        self._root = root
        self._bytes_max = bytes_max
        self._free_min = free_min
        self._lock = threading.Lock()
        self._used = 0
        self._unwritten = 0

    @property
    def used(self) -> int:
        with self._lock:
            return self._used

    def bound(self, *, bytes_max: int, free_min: int) -> None:
        """Other limits from now on; what is there already may exceed them."""
        with self._lock:
            self._bytes_max = bytes_max
            self._free_min = free_min

    def found(self, nbytes: int) -> None:
        """Count what was there already, whether it fits or not."""
        with self._lock:
            self._used += nbytes

    def freed(self, nbytes: int) -> None:
        """Bytes are gone."""
        with self._lock:
            self._used -= nbytes
            assert self._used >= 0

    def admit(self, nbytes: int) -> None:
        """Count bytes that are about to be written.

        Raises:
            StorageFull: they do not fit; nothing was counted.
        """
        left_beside = self._free()[0]
        beside = self.beside()
        with self._lock:
            left = self._bytes_max - self._used - beside
            if nbytes > left:
                raise StorageFull(
                    f"{nbytes} bytes do not fit beside {self._used + beside} of {self._bytes_max}"
                )
            # What others were admitted and have not written yet is still free, and not for us.
            if nbytes > left_beside - self._free_min - self._unwritten:
                raise StorageFull(
                    f"{nbytes} bytes do not fit: {left_beside} are free on the file system, of "
                    f"which {self._free_min} must stay so"
                )
            self._used += nbytes
            self._unwritten += nbytes

    def written(self, nbytes: int) -> None:
        """Admitted bytes are on the file system now, or will never be."""
        with self._lock:
            self._unwritten -= nbytes
            assert self._unwritten >= 0

    def check_floor(self) -> None:
        """Between two writes: is there still room for what was admitted?

        Raises:
            StorageFull: somebody else has filled the file system.
        """
        free = self._free()[0]
        if free < self._free_min:
            raise StorageFull(
                f"{free} bytes are free on the file system, of which {self._free_min} must stay so"
            )

    def space(self) -> Space:
        free, total = self._free()
        beside = self.beside()
        with self._lock:
            used = self._used + beside
            left = min(self._bytes_max - used, free - self._free_min - self._unwritten)
            return Space(used=used, free=max(left, 0), total=total)

    def beside(self) -> int:
        """Bytes of the files that stand in the root itself: an index, with its journal."""
        nbytes = 0
        with failures_of("looking at the cache directory"), os.scandir(self._root) as entries:
            for entry in entries:
                if entry.name != LOCK_NAME and entry.is_file(follow_symlinks=False):
                    try:
                        nbytes += entry.stat(follow_symlinks=False).st_size
                    except FileNotFoundError:
                        continue  # an index deletes its journal when it likes
        return nbytes

    def _free(self) -> tuple[int, int]:
        """Bytes that are free for this user, and all bytes, of the file system."""
        with failures_of("asking for free space"):
            found = os.fstatvfs(self._root)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
