"""Both pools of memory against the memory contract, and what each adds."""

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from anchorline.adapters.memory.fixed_memory import FixedMemory
from anchorline.adapters.system.memory import SystemMemory
from anchorline.ports.memory import Memory
from contract.memory_contract import MemoryContract

ROOT: Final = Path(__file__).resolve().parents[2]
MIB = 1 << 20
CLEAR_REFS = Path("/proc/self/clear_refs")


@contextmanager
def taken(nbytes: int) -> Generator[None]:
    """Pages of the kernel's: an allocator may have as many left over from before, and keep them."""
    with mmap.mmap(-1, nbytes) as pages:
        np.frombuffer(pages, np.uint8)[:] = 1
        yield


class TestFixedMemory(MemoryContract):
    def make_memory(self) -> Memory:
        return FixedMemory(total=100, allocated=20)

    def test_freed_blocks_stay_reserved_until_they_are_given_back(self) -> None:
        memory = FixedMemory(total=100, allocated=60)

        memory.allocated = 10
        assert (memory.use().reserved, memory.use().available) == (60, 40)
        assert memory.give_back() == 50
        assert (memory.use().reserved, memory.use().available) == (10, 90)
        assert memory.give_back() == 0

    def test_what_others_take_is_not_available(self) -> None:
        memory = FixedMemory(total=100, allocated=20, taken=70)

        assert memory.use().available == 10
        memory.taken = 95
        assert memory.use().available == 0

    def test_what_was_allocated_for_a_while_is_told_once(self) -> None:
        memory = FixedMemory(total=100, allocated=20)

        memory.allocated = 70
        memory.allocated = 30

        assert memory.rose() == 50
        assert memory.rose() == 0


class TestSystemMemory(MemoryContract):
    def make_memory(self) -> Memory:
        return SystemMemory()

    def test_it_sees_what_this_process_takes(self) -> None:
        memory = SystemMemory()
        before = memory.use().allocated

        with taken(64 * MIB):
            assert memory.use().allocated - before > 32 * MIB

    @pytest.mark.skipif(not CLEAR_REFS.exists(), reason="the kernel does not say")
    def test_it_sees_what_came_and_went(self) -> None:
        memory = SystemMemory()
        memory.rose()

        with taken(64 * MIB):
            pass
        told = memory.rose()

        assert 32 * MIB < told < 128 * MIB
        assert memory.rose() < 32 * MIB

    @pytest.mark.skipif(not CLEAR_REFS.exists(), reason="the kernel does not say")
    def test_it_remembers_the_most_that_was_held_since_the_first_look(self) -> None:
        memory = SystemMemory()
        with taken(256 * MIB):
            pass
        memory.rose()
        start = memory.use().reserved

        with taken(64 * MIB):
            memory.rose()
        memory.rose()
        memory.rose()

        assert 32 * MIB < memory.use().highest - start < 128 * MIB

    @pytest.mark.skipif(not CLEAR_REFS.exists(), reason="the kernel does not say")
    def test_it_sees_what_came_and_stayed(self) -> None:
        memory = SystemMemory()
        memory.rose()

        with taken(64 * MIB):
            assert 32 * MIB < memory.rose() < 128 * MIB
            assert memory.rose() < 32 * MIB

    def test_without_a_mark_that_can_be_reset_nothing_is_said_to_have_come(
        self, tmp_path: Path
    ) -> None:
        proc = tmp_path / "proc"
        write_proc(proc, total_kib=1000 * 1024, available_kib=900 * 1024)
        (proc / "self/status").write_text("VmHWM:\t  9000 kB\nVmRSS:\t 4000 kB\n")
        (proc / "self/clear_refs").mkdir()

        assert SystemMemory(proc=proc, cgroup=tmp_path).rose() == 0

    def test_files_that_this_process_has_mapped_are_not_available(self, tmp_path: Path) -> None:
        proc, group = tmp_path / "proc", tmp_path / "cgroup"
        write_proc(proc, total_kib=1000 * 1024, available_kib=900 * 1024)
        (proc / "self/status").write_text(f"Name:\tserver\nRssFile:\t{200 * 1024} kB\n")

        alone = SystemMemory(proc=proc, cgroup=tmp_path / "none").use()
        write_group(group, limit=str(500 * MIB), used=350 * MIB, cached=250 * MIB)
        grouped = SystemMemory(proc=proc, cgroup=group).use()

        assert alone.available == 700 * MIB
        # Of the group's cache 50 MiB are nobody's.
        assert grouped.available == 200 * MIB

    def test_the_limit_of_a_control_group_is_the_total(self, tmp_path: Path) -> None:
        proc, group = tmp_path / "proc", tmp_path / "cgroup"
        write_proc(proc, total_kib=1000 * 1024, available_kib=900 * 1024)
        write_group(group, limit=str(300 * MIB), used=250 * MIB, cached=30 * MIB)

        use = SystemMemory(proc=proc, cgroup=group).use()

        assert (use.total, use.available) == (300 * MIB, 80 * MIB)

    @pytest.mark.parametrize("limit", ["max", str(2000 * MIB)])
    def test_a_group_without_a_tighter_limit_changes_nothing(
        self, tmp_path: Path, limit: str
    ) -> None:
        proc, group = tmp_path / "proc", tmp_path / "cgroup"
        write_proc(proc, total_kib=1000 * 1024, available_kib=900 * 1024)
        write_group(group, limit=limit, used=250 * MIB, cached=0)

        use = SystemMemory(proc=proc, cgroup=group).use()

        assert (use.total, use.available) == (1000 * MIB, 900 * MIB)

    def test_without_proc_there_are_figures_all_the_same(self, tmp_path: Path) -> None:
        use = SystemMemory(proc=tmp_path / "none", cgroup=tmp_path / "none").use()

        assert 0 < use.allocated <= use.reserved <= use.total
        assert 0 <= use.available <= use.total


def write_proc(proc: Path, *, total_kib: int, available_kib: int) -> None:
    (proc / "self").mkdir(parents=True)
    (proc / "self/statm").write_text("5000 1000 300 1 0 900 0\n")
    (proc / "meminfo").write_text(
        f"MemTotal:       {total_kib} kB\n"
        f"MemFree:        {available_kib // 2} kB\n"
        f"MemAvailable:   {available_kib} kB\n"
        "HugePages_Total:       0\n"
    )


def write_group(group: Path, *, limit: str, used: int, cached: int) -> None:
    group.mkdir()
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon {used - cached}\ninactive_file {cached}\n")


def measured(script: str, *, told: bool) -> int:
    """What a script counts in a process of its own, whose malloc was told how to behave or not."""
    told_first = "from anchorline.adapters.system.memory import set_up_malloc as up; assert up()\n"
    return int(
        subprocess.run(
            [sys.executable, "-c", told_first * told + script],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / ".path")},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
    )


SPACE_OF_THREADS: Final = """
import threading
from pathlib import Path

def taken():
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096
before, hold, held = taken(), threading.Event(), []
def allocate():
    held.append(bytearray(10_000))
    hold.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
while len(held) < 8:
    pass
print(taken() - before)
hold.set()
"""

FAULTS_OF_SCRATCH_MEMORY: Final = """
import resource
import numpy as np

def layer():
    kept = [np.full(9 << 20, 1, np.uint8) for _ in range(4)]
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
layer()
before = faults()
for _ in range(10):
    layer()
print(faults() - before)
"""

glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="this is not glibc's malloc"
)


@glibc
def test_threads_have_no_heap_of_their_own_once_malloc_is_set_up() -> None:
    heaps = measured(SPACE_OF_THREADS, told=False) - measured(SPACE_OF_THREADS, told=True)
    assert heaps >= 4 * 64 * MIB


@glibc
def test_what_one_layer_frees_the_next_has_without_asking_the_system() -> None:
    pages = 10 * 4 * (9 << 20) // 4096
    assert measured(FAULTS_OF_SCRATCH_MEMORY, told=True) < pages // 100
