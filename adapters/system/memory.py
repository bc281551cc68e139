"""The host's memory."""

import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Final

from ...ports.memory import MemoryUse

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

# What mallopt(3) calls its parameters.
_M_ARENA_MAX: Final = -8
_M_MMAP_THRESHOLD: Final = -3
_M_TRIM_THRESHOLD: Final = -1

MAPPED_BYTES_MIN: Final = 32 << 20
"""The largest of blocks that come from the heap; as large as malloc allows."""

KEPT_BYTES_MAX: Final = 64 << 20
"""Free bytes at the heap's end that are not returned unasked."""

_RESET_HIGHEST: Final = "5"
"""What makes the kernel forget the most that was resident; see proc(5), clear_refs."""


def set_up_malloc() -> bool:
    """Suit malloc to a server; False where it cannot be told.

    One heap for all threads. glibc gives each thread a heap of its own, in which what others have
    freed cannot be used: with a dozen threads that each do something now and then, a process takes
    tens of megabytes that no budget foresees. To be called before there are other threads.

    And a heap that keeps what a forward frees for the next one. As it is, malloc returns the heap's
    end whenever twice the largest block is free there: an attention over thousands of rows then
    takes all of its scratch memory anew in each layer, page by page, for a third of its time.
    `Memory.give_back` returns it where it is missed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    settings = {
        _M_ARENA_MAX: 1,
        _M_MMAP_THRESHOLD: MAPPED_BYTES_MIN,
        _M_TRIM_THRESHOLD: KEPT_BYTES_MAX,
    }
    taken = [mallopt(name, value) for name, value in settings.items()]  # each, whatever others say
    return all(taken)


class SystemMemory:
    """Implements `ports.memory.Memory` for the memory of this machine, or of its control group.

    `allocated` and `reserved` are both the resident bytes of this process: the C allocator does
    not say which of its blocks are free. Where there is no `/proc`, figures come from `sysconf`
    and `getrusage`: `reserved` is then the largest that it ever was.

    The kernel counts page cache as available. Of that, files that this process has mapped are taken
    off: weights that are read in every forward, and libraries. What the disk tier reads and writes
    is no part of it: with O_DIRECT it leaves no page cache.
    """

    def __init__(self, *, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")):
        """Takes where the kernel's figures are read."""
        self._proc = proc
        self._cgroup = cgroup
        self._noted: int | None = None
        self._highest = 0

    def use(self) -> MemoryUse:
        status = self._status()
        resident, mapped = self._resident(), status.get("RssFile", 0)
        total, available = self._machine(resident)
        limit, room = self._group(total, mapped)
        return MemoryUse(
            allocated=resident,
            reserved=resident,
            available=min(max(available - mapped, 0), room),
            total=min(total, limit),
            highest=max(self._highest, status.get("VmHWM", 0), resident),
        )

    def give_back(self) -> int:
        before = self._resident()
        if not _trim():
            return 0
        return max(before - self._resident(), 0)

    def rose(self) -> int:
        status, before = self._status(), self._noted
        self._noted = status.get("VmRSS", 0)
        # What loading took before the first call is over.
        self._highest = max(self._highest, status.get("VmHWM", 0)) if before is not None else 0
        try:
            (self._proc / "self/clear_refs").write_text(_RESET_HIGHEST)
        except OSError:
            return 0  # the highest mark is an old one
        return 0 if before is None else max(status.get("VmHWM", 0) - before, 0)

    def _status(self) -> dict[str, int]:
        """Bytes of this process by the kernel's names; empty where it does not say."""
        try:
            lines = (self._proc / "self/status").read_text().splitlines()
        except OSError:
            return {}
        return {
            line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")
        }

    def _resident(self) -> int:
        try:
            return int((self._proc / "self/statm").read_text().split()[1]) * _PAGE_BYTES
        except OSError:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else peak * 1024

    def _machine(self, resident: int) -> tuple[int, int]:
        """Total and available bytes of the machine."""
        try:
            lines = (self._proc / "meminfo").read_text().splitlines()
        except OSError:
            total = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
            return total, max(total - resident, 0)
        figures = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
        return figures["MemTotal"], figures["MemAvailable"]

    def _group(self, total: int, mapped: int) -> tuple[int, int]:
        """The limit of the control group (version 2) and what is left of it.

        Page cache that nobody needs counts as left: the kernel drops it before it refuses memory.

        Args:
            mapped: page cache that this process needs.
        """
        try:
            limit = int((self._cgroup / "memory.max").read_text())
            used = int((self._cgroup / "memory.current").read_text())
            stat = (self._cgroup / "memory.stat").read_text()
        except (OSError, ValueError):  # no such group, or the limit reads "max"
            return total, total
        cached = sum(
            int(line.split()[1]) for line in stat.splitlines() if line.startswith("inactive_file ")
        )
        return limit, max(limit - used + max(cached - mapped, 0), 0)


def _trim() -> bool:
    """Ask glibc to return free blocks to the system; False where there is no such call."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return False
    return bool(trim(0))
