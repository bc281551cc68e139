"""Small real ext4 file systems that can be filled, made read-only, and cut from their power."""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
"""What has not been committed to the journal, or written to the device, is lost."""


@cache
def why_no_loop_mounts() -> str | None:
    """Why this machine cannot mount images; None if it can."""
    if os.geteuid() != 0:
        return "mounting an image takes root"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    probe = subprocess.run(["losetup", "--find"], capture_output=True, text=True, check=False)
    return None if probe.returncode == 0 else f"no loop device is free: {probe.stderr.strip()}"


class LoopMount:
    """An ext4 file system in an image file, mounted at `path`."""

    def __init__(self, directory: Path, mib: int):
        """Makes the image; it is not mounted yet."""
        self.image = directory / "image"
        self.path = directory / "mounted"
        self.path.mkdir()
        with self.image.open("wb") as file:
            file.truncate(mib << 20)
        features = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
        run("mkfs.ext4", "-q", "-b", "4096", "-m", "0", "-E", features, str(self.image))

    def mount(self) -> None:
        run("mount", "-o", "loop,nodiscard,errors=remount-ro", str(self.image), str(self.path))

    def unmount(self) -> None:
        run("umount", str(self.path))

    def make_read_only(self) -> None:
        """For everyone who has nothing open for writing."""
        run("mount", "-o", "remount,ro", str(self.path))

    def fail(self) -> None:
        """An error is found in the file system, which makes itself read-only until the next mount.

        Files that are open stay so: this is how a file system becomes read-only under a server.
        """
        device = run("findmnt", "-n", "-o", "SOURCE", str(self.path)).strip()
        trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
        trigger.write_text("a test")

    def cut_power(self) -> None:
        """From here on nothing reaches the device; every call on the file system fails."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH.to_bytes(4, "little"))
        finally:
            os.close(fd)

    def power_on(self) -> None:
        """Mount again what is left; nothing on it may be open."""
        self.unmount()
        self.mount()

    def free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self) -> Path:
        """A file that takes all that is free."""
        ballast = self.path / "ballast"
        fd = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            at = 0
            for size in (1 << 20, 1 << 16, 1 << 12):
                with contextlib.suppress(OSError):  # no space is left for another one
                    while True:
                        os.posix_fallocate(fd, at, size)
                        at += size
            os.fsync(fd)
        finally:
            os.close(fd)
        return ballast


@contextmanager
def mounted(directory: Path, mib: int) -> Generator[LoopMount]:
    """A fresh file system of that size, gone after the context."""
    disk = LoopMount(directory, mib)
    disk.mount()
    try:
        yield disk
    finally:
        # A test that failed may have left files open; its mount must not stay for that.
        with contextlib.suppress(AssertionError):
            run("umount", "--lazy", str(disk.path))
        disk.image.unlink()


def run(*command: str) -> str:
    """What a command says.

    Raises:
        AssertionError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
