"""What the kernel and the server say of a server's process, looked at again and again."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx

Body: TypeAlias = dict[str, Any]

INTERVAL_S: Final = 0.05
STATS_EVERY: Final = 10
"""Figures of the server are asked for this much more seldom: each measures its pool again."""

STATS_PATH: Final = "/v1/cache/stats"
_RESET_HIGHEST: Final = "5"
"""What makes the kernel forget the most that was resident; see proc(5), clear_refs."""


@dataclass(frozen=True, slots=True)
class Look:
    """The process at one moment.

    Attributes:
        rss_bytes: resident.
        highest_bytes: the most that was, since the kernel last forgot it.
    """

    rss_bytes: int
    highest_bytes: int
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What the server says of itself at one moment.

    Attributes:
        tier_bytes: that the tier in memory counts.
        queued: requests that wait.
        disk_bytes: that the store counts.
    """

    tier_bytes: int
    queued: int
    disk_bytes: int


class ProcessWatch:
    """Looks at a process from a thread of its own, between `with` and its end.

    The kernel's highest mark is read with each look, so that nothing between two looks is missed.
    The server lets the kernel forget it around the few chunks whose workspace it measures.
    """

    def __init__(self, pid: int, client: httpx.Client) -> None:
        """Takes a client that nobody else uses meanwhile."""
        self._proc = Path("/proc") / str(pid)
        self._client = client
        self._over = threading.Event()
        self.looks: list[Look] = []
        self.figures: list[Figures] = []
        self.failed: list[Exception] = []

    @contextmanager
    def watching(self) -> Generator[None]:
        """Look until the end of the block."""
        (self._proc / "clear_refs").write_text(_RESET_HIGHEST)
        thread = threading.Thread(target=self._run, name="watch")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def look(self) -> Look:
        """Look now."""
        lines = (self._proc / "status").read_text(encoding="ascii").splitlines()
        status = {line.partition(":")[0]: line.partition(":")[2] for line in lines}
        return Look(
            rss_bytes=int(status["VmRSS"].split()[0]) << 10,
            highest_bytes=int(status["VmHWM"].split()[0]) << 10,
            descriptors=sum(1 for _ in (self._proc / "fd").iterdir()),
            threads=int(status["Threads"]),
        )

    def _run(self) -> None:
        number = 0
        try:
            while not self._over.is_set():
                self.looks.append(self.look())
                if number % STATS_EVERY == 0:
                    self.figures.append(figures_of(self._client.get(STATS_PATH).json()))
                number += 1
                time.sleep(INTERVAL_S)
        except (OSError, httpx.HTTPError) as error:
            self.failed.append(error)


def figures_of(stats: Body) -> Figures:
    """Of what `/v1/cache/stats` answers."""
    return Figures(
        tier_bytes=stats["ram"]["bytes_used"],
        queued=stats["queued"],
        disk_bytes=stats["disk"]["bytes_used"],
    )
