"""The host's memory."""

import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Final

from ...ports.memory import MemoryUse

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class SystemMemory:
    """Implements `ports.memory.Memory` for the memory of this machine, or of its control group.

    `allocated` and `reserved` are both the resident bytes of this process: the C allocator does
    not say which of its blocks are free. Where there is no `/proc`, figures come from `sysconf`
    and `getrusage`: `reserved` is then the largest that it ever was.
    """

    def __init__(self, *, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")):
        """Takes where the kernel's figures are read."""
        self._proc = proc
        self._cgroup = cgroup

    def use(self) -> MemoryUse:
        resident = self._resident()
        total, available = self._machine(resident)
        limit, room = self._group(total)
        return MemoryUse(
            allocated=resident,
            reserved=resident,
            available=min(available, room),
            total=min(total, limit),
        )

    def give_back(self) -> int:
        before = self._resident()
        if not _trim():
            return 0
        return max(before - self._resident(), 0)

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

    def _group(self, total: int) -> tuple[int, int]:
        """The limit of the control group (version 2) and what is left of it.

        Page cache that nobody needs counts as left: the kernel drops it before it refuses memory.
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
        return limit, max(limit - used + cached, 0)


def _trim() -> bool:
    """Ask glibc to return free blocks to the system; False where there is no such call."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return False
    return bool(trim(0))
