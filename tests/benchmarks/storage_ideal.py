"""The same passes over memory as a save and a restore make, with nothing else around them.

What this loop does not reach on a machine, no cache can reach there that checks what it reads: a
few threads, each with one small buffer, which read or write pieces and look at them in between. No
tokens, no headers, no names, no renames, no catalog, one large array in place of a slot.
"""

import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import crc32c
import numpy as np

from anchorline.adapters.gpu.kernels.sums import host_sums
from anchorline.adapters.nvme.file_storage import TRANSFERS_MAX
from anchorline.adapters.nvme.vectored import aligned_buffer
from anchorline.ports.block_storage import ByteArray

PIECE_BYTES: Final = 4 << 20
LOOK_BYTES: Final = 1 << 20
THREADS: Final = 4


class TightLoop:
    """One file a `file_bytes`, written from an array and read back into it."""

    def __init__(self, directory: Path, nbytes: int, file_bytes: int) -> None:
        self._directory = directory
        directory.mkdir()
        self._nbytes = nbytes // PIECE_BYTES * PIECE_BYTES
        self._file_bytes = max(file_bytes // PIECE_BYTES, 1) * PIECE_BYTES
        self._rows = aligned_buffer(self._nbytes)
        self._rows[:] = 1
        self._buffers = [aligned_buffer(PIECE_BYTES) for _ in range(THREADS)]
        self._transfers = threading.Semaphore(TRANSFERS_MAX)

    def write_s(self) -> float:
        """Seconds to copy, check, sum up and write all of it, each file synced."""
        self.delete()
        starts = iter(range(0, self._nbytes, self._file_bytes))
        lock = threading.Lock()

        def work(buffer: ByteArray) -> None:
            while True:
                with lock:
                    start = next(starts, None)
                if start is None:
                    return
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT
                fd = os.open(self._directory / str(start), flags, 0o600)
                for at in range(start, min(start + self._file_bytes, self._nbytes), PIECE_BYTES):
                    _look(self._rows[at : at + PIECE_BYTES], buffer, looked_at=buffer)
                    with self._transfers:
                        os.pwritev(fd, [buffer.data], at - start)
                os.fsync(fd)
                os.close(fd)

        return self._timed(work)

    def read_s(self) -> float:
        """Seconds to read all of it, check it, copy it into the array and sum it up there."""
        numbers = itertools.count()

        def work(buffer: ByteArray) -> None:
            opened: dict[int, int] = {}
            while (at := next(numbers) * PIECE_BYTES) < self._nbytes:
                start = at // self._file_bytes * self._file_bytes
                if start not in opened:
                    path = self._directory / str(start)
                    opened[start] = os.open(path, os.O_RDONLY | os.O_DIRECT)
                with self._transfers:
                    os.preadv(opened[start], [buffer.data], at - start)
                place = self._rows[at : at + PIECE_BYTES]
                _look(buffer, place, looked_at=place)
            for fd in opened.values():
                os.close(fd)

        return self._timed(work)

    def delete(self) -> None:
        """Let the files go."""
        for path in self._directory.iterdir():
            path.unlink()

    def _timed(self, work: Callable[[ByteArray], None]) -> float:
        threads = [threading.Thread(target=work, args=(buffer,)) for buffer in self._buffers]
        began_s = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began_s


def _look(source: ByteArray, target: ByteArray, *, looked_at: ByteArray) -> None:
    """Checksum and copy a piece; the sums of one end of the copy."""
    for at in range(0, len(source), LOOK_BYTES):
        some = source[at : at + LOOK_BYTES]
        crc32c.crc32c(some.data)
        np.copyto(target[at : at + LOOK_BYTES], some)
        host_sums(looked_at[at : at + LOOK_BYTES], at // 8)
