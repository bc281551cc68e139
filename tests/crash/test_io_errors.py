"""System calls that strace makes fail: what was not stored is refused, and the next try works.

Which call of a kind fails is counted from the start of the process, so each case names the call it
means and the outcome tells whether it was that one.
"""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from contract.catalog_contract import ids
from support.crash_process import KINDS, LENGTHS, ROOM, once_command
from support.disk_use import disk_use
from support.stored_objects import check_object, make_object


@cache
def why_no_faults() -> str | None:
    """Why system calls cannot be made to fail here; None if they can."""
    if shutil.which("strace") is None:
        return "there is no strace"
    tried = subprocess.run(
        ["strace", "-qq", "-o", "/dev/null", "-e", "inject=sync:error=EIO", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return None if tried.returncode == 0 else tried.stderr.strip()


pytestmark = pytest.mark.skipif(
    why_no_faults() is not None, reason=f"no system call can be made to fail: {why_no_faults()}"
)

FINE = "done done done done"
REFUSED_FIRST = "StorageUnavailable done done done"


def outcome(faults: list[str], action: str, **work: str) -> str:
    """What the process says that does the work while system calls fail."""
    calls = ",".join(fault.partition(":")[0] for fault in faults)
    command = ["strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={calls}"]
    for fault in faults:
        command += ["-e", f"inject={fault}"]
    done = subprocess.run(
        [*command, *once_command(action, **work)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def check_next_start(root: Path) -> None:
    """A process that meets no fault finds the object exact, or can put it; the budget is true."""
    storage = KINDS["direct"](root, bytes_max=ROOM)
    name, parts = make_object(1, LENGTHS)
    storage.put(name, parts)
    check_object(storage, name)
    assert storage.space().used == sum(map(len, parts)) == disk_use(root)
    storage.close()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("fsync:error=EIO:when=1", "StorageUnavailable: making the directory"),  # the root's parent
        ("fsync:error=EIO:when=2", "StorageUnavailable: opening the cache directory"),  # the root
        ("fsync:error=EIO:when=3", REFUSED_FIRST),  # the file
        (
            "fsync:error=EIO:when=4",
            REFUSED_FIRST,
        ),  # the directories on the way to it, with the sync
        ("fsync:error=EIO:when=5", REFUSED_FIRST),
        ("fsync:error=EIO:when=6", REFUSED_FIRST),
        ("fsync:error=EIO:when=7", REFUSED_FIRST),  # the one it stands in
        ("fsync:error=EIO:when=8", "done StorageUnavailable done done"),  # the same, found there
        ("fsync:error=EIO:when=9", FINE),  # there is none
        ("pwritev,pwritev2:error=EIO:when=2", REFUSED_FIRST),  # the first one probes for direct I/O
        ("pwritev,pwritev2:error=ENOSPC:when=2", "StorageFull done done done"),
        ("pwritev,pwritev2:error=EDQUOT:when=2", "StorageFull done done done"),
        ("pwritev,pwritev2:error=EINVAL:when=1", FINE),  # direct I/O is refused: buffered
        ("renameat:error=EIO:when=1", REFUSED_FIRST),
        ("mkdirat:error=EROFS:when=3", "StorageReadOnly done done done"),
        ("preadv,preadv2:error=EIO:when=2", "done done StorageUnavailable done"),
        ("preadv,preadv2:retval=0:when=2", "done done ObjectCorrupt done"),
        (
            "preadv,preadv2:retval=8192:when=2",
            "done done ObjectCorrupt done",
        ),  # it lies: nothing was read
    ],
)
def test_a_call_that_fails_costs_this_try_and_no_more(
    tmp_path: Path, fault: str, expected: str
) -> None:
    root = tmp_path / "root"

    said = outcome([fault], "put twice", kind="direct", root=str(root))

    assert said.startswith(expected)
    check_next_start(root)


def test_what_cannot_be_deleted_goes_on_counting_until_the_next_start(tmp_path: Path) -> None:
    root = tmp_path / "root"
    # The fsync of the file fails, and then the deletion of the temporary file does. The first
    # unlinkat is the probe's.
    faults = ["fsync:error=EIO:when=3", "unlinkat:error=EIO:when=2"]

    said = outcome(faults, "put twice", kind="direct", root=str(root))

    assert said == REFUSED_FIRST
    assert disk_use(root) == 2 * sum(len(part) for part in make_object(1, LENGTHS)[1])
    check_next_start(root)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("fdatasync:error=EIO:when=1..99", "StorageUnavailable StorageUnavailable"),
        ("fdatasync:error=EIO:when=1", "StorageUnavailable done"),
        ("pwrite64:error=ENOSPC:when=3", "StorageFull done"),
        ("pwrite64:error=EIO:when=4", "StorageUnavailable done"),
    ],
)
def test_a_commit_that_fails_is_refused_and_the_next_one_works(
    tmp_path: Path, fault: str, expected: str
) -> None:
    path = tmp_path / "catalog.db"
    SqliteCatalog(path).close()

    said = outcome([fault], "commit twice", catalog=str(path))

    assert said == expected
    catalog = SqliteCatalog(path)
    assert catalog.damage is None
    # A commit that was refused may be there all the same after a crash: its record reached the
    # journal, and only the sync failed. What it needs was durable before.
    assert ids(catalog) == ["a"] or "done" not in said
    catalog.close()
