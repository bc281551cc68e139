"""What a living server holds, looked at again and again, and whether that grows."""

import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

import httpx

from soak.lives import Faults, Lives
from soak.processes import ServerProcess
from soak.replies import Body
from support.disk_use import disk_use


@dataclass(frozen=True, slots=True)
class Sample:
    """One look.

    Attributes:
        at_s: since the start of the whole run.
        life: the number of the server's life.
        age_s: since this life was first seen.
        disk_bytes: what the store takes on its disk.
        requests: of this life.
        cached: prompt tokens of this life that needed no forward.
    """

    at_s: float
    life: int
    age_s: float
    rss_bytes: int
    descriptors: int
    threads: int
    disk_bytes: int
    entries: int
    queued: int
    requests: int
    cached: int
    reread: int
    evicted: int
    restores: int

    @property
    def hit_rate(self) -> float:
        """The share of this life's prompt tokens that needed no forward."""
        return self.cached / max(1, self.cached + self.reread)


class Sampler:
    """Takes a sample every some seconds, and holds each to the budgets."""

    def __init__(
        self, lives: Lives, faults: Faults, state: Path, *, bytes_max: int, interval_s: float
    ) -> None:
        self._lives = lives
        self._faults = faults
        self._state = state
        self._bytes_max = bytes_max
        self._interval_s = interval_s
        self._began_s = time.monotonic()
        self.samples: list[Sample] = []
        self.skipped: dict[int, Counter[str]] = {}
        """Writes that were not made, by life and reason."""

    def thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="sampler")

    def _run(self) -> None:
        while (server := self._lives.current()) is not None:
            born_s = time.monotonic()
            with server.client() as client:
                while self._lives.is_current(server):
                    try:
                        self._sample(server, client, born_s)
                    except (OSError, httpx.HTTPError) as error:
                        if self._lives.is_current(server):
                            self._faults.add(f"no sample was to be had: {error!r}")
                        break
                    time.sleep(self._interval_s)

    def _sample(self, server: ServerProcess, client: httpx.Client, born_s: float) -> None:
        process = Path("/proc") / str(server.pid)
        stats: Body = client.get("/v1/cache/stats").json()
        disk: Body | None = stats["disk"]
        if disk is None:
            self._faults.add("the server serves without its disk")
            return
        disk_bytes = self._disk_bytes()
        if disk_bytes > self._bytes_max or disk["bytes_used"] > self._bytes_max:
            self._faults.add(f"{disk_bytes} bytes on disk, of {self._bytes_max}", disk=disk)
        if disk["quarantined"]:
            self._faults.add("an object was quarantined", disk=disk)
        metrics = client.get("/metrics").text
        self.skipped[self._lives.number] = _by_reason(metrics, "disk_writes_skipped_total")
        cached: dict[str, int] = stats["tokens_cached"]
        now_s = time.monotonic()
        self.samples.append(
            Sample(
                at_s=now_s - self._began_s,
                life=self._lives.number,
                age_s=now_s - born_s,
                rss_bytes=_rss_bytes(process),
                descriptors=_count(process / "fd"),
                threads=_count(process / "task"),
                disk_bytes=disk_bytes,
                entries=sum(disk["entries"].values()),
                queued=stats["queued"],
                requests=stats["requests"],
                cached=sum(cached.values()),
                reread=stats["tokens_reread"],
                evicted=disk["evicted"],
                restores=disk["restores"],
            )
        )

    def _disk_bytes(self) -> int:
        """The least of three walks: one that meets a renaming may count a file twice."""
        found: list[int] = []
        while len(found) < 3:
            try:
                found.append(disk_use(self._state))
            except FileNotFoundError:
                continue  # a file went between its listing and its turn
            if found[-1] <= self._bytes_max:
                break
        return min(found)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """How fast a value grows, per unit of time: the median of the slopes between all points.

    Theil's estimator: outliers, of which a server under load has many, do not move it. 0 for less
    than two points.
    """
    slopes = [
        (late - early) / (after - before)
        for (before, early), (after, late) in combinations(points, 2)
        if after != before
    ]
    return median(slopes) if slopes else 0.0


def _by_reason(metrics: str, name: str) -> Counter[str]:
    """A counter's values by its label `reason`, in Prometheus' text format."""
    counts: Counter[str] = Counter()
    pattern = rf'^anchorline_{name}{{.*reason="(\w+)".*}} (\S+)$'
    for reason, value in re.findall(pattern, metrics, re.MULTILINE):
        counts[reason] += int(float(value))
    return counts


def _count(directory: Path) -> int:
    return sum(1 for _ in directory.iterdir())


def _rss_bytes(process: Path) -> int:
    for line in (process / "status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise ProcessLookupError(f"{process} has ended")
