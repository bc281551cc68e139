"""The bare drive: a loop around the page cache, which all rates of the store are held to.

One thread, one file, calls of 16 MiB, a sync at the end: more threads or longer calls gain nothing
on the drives that were tried. In pages as the system gives them, as `dd` and `fio` have them; or in
large ones, with which virtual drives move up to twice as much: the drive at its best.
"""

import contextlib
import mmap
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from anchorline.adapters.nvme.nvme_storage import NvmeStorage
from anchorline.adapters.nvme.vectored import aligned_buffer
from anchorline.domain.stored_entry import ObjectName
from anchorline.ports.block_storage import ByteArray, ByteRange

CALL_BYTES: Final = 16 << 20
ROOM: Final = 1 << 50
"""Bytes that no limit of the store ever holds back."""

DIRECTORY: Final = "ANCHORLINE_BENCH_DIR"
"""Names the directory to measure in; by default where the server would keep its state."""


@contextmanager
def scratch() -> Generator[Path]:
    """A directory on the drive in question, gone with all that is in it afterwards."""
    above = Path(os.environ.get(DIRECTORY, Path.home() / ".cache" / "anchorline"))
    above.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="bench-", dir=above))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class RawDrive:
    """One file that is written and read by a loop."""

    def __init__(self, directory: Path, *, large_pages: bool = True) -> None:
        self._path = directory / "raw"
        # A drive may make less of zeros, and pages that nobody has written are not there yet.
        self._content = np.random.default_rng(0).integers(0, 256, CALL_BYTES, dtype=np.uint8)
        self._large_pages = large_pages
        self._renew_buffer()

    def write_s(self, nbytes: int) -> float:
        """Seconds to write a new file of whole calls, and sync it."""
        self.delete()
        self._renew_buffer()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT
        began_s = time.perf_counter()
        fd = os.open(self._path, flags, 0o600)
        at = 0
        while at < nbytes:
            at += os.pwritev(fd, [self._buffer[: nbytes - at].data], at)
        os.fsync(fd)
        os.close(fd)
        return time.perf_counter() - began_s

    def read_s(self, nbytes: int) -> float:
        """Seconds to read what was written."""
        began_s = time.perf_counter()
        self._read(self._path, nbytes)
        return time.perf_counter() - began_s

    def read_files_s(self, paths: Sequence[Path]) -> float:
        """Seconds to read files of whole pages that somebody else has written, one by one."""
        began_s = time.perf_counter()
        for path in paths:
            self._read(path, path.stat().st_size)
        return time.perf_counter() - began_s

    def _renew_buffer(self) -> None:
        """Where small pages stand is luck, and luck is not kept."""
        if self._large_pages:
            self._buffer = aligned_buffer(CALL_BYTES)
        else:
            self._buffer = np.frombuffer(mmap.mmap(-1, CALL_BYTES), dtype=np.uint8)
        self._buffer[:] = self._content

    def _read(self, path: Path, nbytes: int) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        at = 0
        while at < nbytes:
            at += os.preadv(fd, [self._buffer[: nbytes - at].data], at)
        os.close(fd)

    def delete(self) -> None:
        """Let the file go."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()


class SlowStorage(NvmeStorage):
    """The drive, slowed down: reads take as long as one of `bytes_per_s` would.

    A call waits until what it read is due, behind the calls before it on any thread: as from one
    drive, not from one a thread. Zero slows nothing.
    """

    bytes_per_s: float = 0.0

    def __init__(self, path: Path) -> None:
        super().__init__(path, bytes_max=ROOM)
        self._lock = threading.Lock()
        self._due_s = 0.0

    def read_into(
        self, name: ObjectName, ranges: Sequence[ByteRange], buffers: Sequence[ByteArray]
    ) -> None:
        """As of the port."""
        began_s = time.perf_counter()
        super().read_into(name, ranges, buffers)
        if self.bytes_per_s:
            with self._lock:
                self._due_s = max(self._due_s, began_s) + sum(map(len, buffers)) / self.bytes_per_s
                due_s = self._due_s
            time.sleep(max(due_s - time.perf_counter(), 0))
