"""A server process under budgets that are too small for what it is asked.

One that was just started tells what model and tiers take by themselves. Then one that may have
little more than that, for rows, caches and workspace together, is asked for thousands of prompts
that have nothing in common, by more clients than it has places for, some of which go away. Its
ceiling is its peak as well: at no moment may it hold more.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import httpx
from memory_load import Load, Traffic
from memory_watch import STATS_PATH, Body, Figures, Look, ProcessWatch, figures_of
from report import ROOT, Figure, Options
from served import settings_of

from anchorline.adapters.gpu.model_store import ModelStore
from anchorline.domain.byte_size import MIB, size

WINDOW: Final = 2048
SLOTS: Final = 2
QUEUE_MAX: Final = 4
ROOM: Final = 40 * MIB
"""Of the ceiling, above what is held at the start, when the rows of both slots have no memory yet:
8 of them are these rows, 14 the workspace of a long prompt, and 6 what is compressed meanwhile."""

TIER_BYTES: Final = 16 * MIB
DISK_BYTES: Final = 8 * MIB
TIERS: Final = (
    f"--ram-bytes-max={TIER_BYTES}",
    f"--disk-heads-bytes-max={DISK_BYTES // 4}",
    f"--disk-conversations-bytes-max={DISK_BYTES - DISK_BYTES // 4}",
    "--disk-free-min=0",
)

LOAD: Final = Load(
    small=5000,
    long=200,
    clients=8,
    small_tokens=(24, 96),
    long_tokens=(WINDOW - 256, WINDOW - 8),
    answer_tokens=4,
    vocabulary=1000,
)
LOAD_QUICK: Final = Load(150, 8, 8, LOAD.small_tokens, LOAD.long_tokens, 4, LOAD.vocabulary)

PROGRESS_EVERY: Final = 500
START_S: Final = 300.0
SETTLE_S: Final = 60.0
_READY: Final = re.compile(rb" serves \S+ on (http://\S+)")


def figures(options: Options) -> Iterator[Figure]:
    """Of toy, whatever models are asked for: what is measured is the server, not a model."""
    load = LOAD_QUICK if options.quick else LOAD
    settings = settings_of("toy")
    ModelStore(settings.models_path).get("toy", lambda _: None)
    options.progress("memory: what a server holds at the start")
    bare = _bare_bytes()
    ceiling = bare + ROOM
    options.progress(f"memory: {size(bare)}; the ceiling is {size(ceiling)}")
    yield from _rows(_observed(load, ceiling, options), ceiling, bare)


@dataclass(frozen=True, slots=True)
class Observed:
    """What came of a run.

    Attributes:
        cleared: the figures once everything that can be forgotten was.
        stats: the server's, before that.
    """

    load: Load
    traffic: Traffic
    looks: Sequence[Look]
    figures: Sequence[Figures]
    idle: tuple[Look, Look]
    cleared: Figures
    stats: Body
    seconds: float


def _bare_bytes() -> int:
    """Resident bytes of a server that was asked nothing yet."""
    with _served(*TIERS) as (url, pid), _client(url) as client:
        return ProcessWatch(pid, client).look().rss_bytes


def _observed(load: Load, ceiling: int, options: Options) -> Observed:
    def shown(done: int) -> None:
        if done % PROGRESS_EVERY == 0:
            options.progress(f"memory: {done} of {load.total} requests")

    limits = (f"--mem-ceiling={ceiling}", f"--mem-peak={ceiling}")
    with _served(*limits, *TIERS) as (url, pid), _client(url) as client:
        traffic, watch = Traffic(url, load, shown), ProcessWatch(pid, client)
        before = watch.look()
        began_s = time.monotonic()
        with watch.watching():
            traffic.run()
        seconds = time.monotonic() - began_s
        assert not watch.failed, watch.failed
        stats = _wait_until_idle(client)
        after = watch.look()
        assert client.post("/v1/cache/clear?tier=all").status_code == 200
        cleared = figures_of(client.get(STATS_PATH).json())
        looks, found = watch.looks, watch.figures
    return Observed(load, traffic, looks, found, (before, after), cleared, stats, seconds)


def _rows(seen: Observed, ceiling: int, bare: int) -> Iterator[Figure]:
    done, refused = seen.traffic.done, seen.traffic.refused
    total, served, left = seen.load.total, done["served"], done["left"]
    highest = max(look.highest_bytes for look in seen.looks)
    before, after = seen.idle
    yield _figure(
        f"highest RSS / ceiling, {total:,} requests",
        highest,
        ceiling,
        f"{size(highest)} of {size(ceiling)}, of which {size(bare)} at the start; "
        f"{len(seen.looks):,} looks in {seen.seconds:.0f} s",
        "below 1",
    )
    tenth = max(1, len(seen.looks) // 10)
    early, late = (
        median(look.rss_bytes for look in looks)
        for looks in (seen.looks[tenth : 2 * tenth], seen.looks[-tenth:])
    )
    yield _figure(
        "RSS in the last tenth of the time / in the second",
        late,
        early,
        f"{size(int(late))} against {size(int(early))}",
        "at most 1.02",
    )
    yield _figure(
        "descriptors after / before",
        after.descriptors,
        before.descriptors,
        f"{after.descriptors} against {before.descriptors}; "
        f"at most {max(look.descriptors for look in seen.looks)}, "
        f"threads at most {max(look.threads for look in seen.looks)}",
        "about 1",
    )
    most = max(figures.tier_bytes for figures in seen.figures)
    yield _figure(
        "highest tier in memory / its budget",
        most,
        TIER_BYTES,
        f"at most {size(most)} of {size(TIER_BYTES)}; {seen.stats['ram']['evicted']:,} evicted, "
        f"{seen.stats['ram']['kept']:,} kept; {size(seen.cleared.tier_bytes)} once cleared",
        "at most 1",
    )
    disk = max(figures.disk_bytes for figures in seen.figures)
    yield _figure(
        "highest disk tier / its budget",
        disk,
        DISK_BYTES,
        f"{size(disk)} of {size(DISK_BYTES)}; {seen.stats['disk']['evicted']:,} evicted",
        "at most 1",
    )
    queued = max(figures.queued for figures in seen.figures)
    yield _figure(
        "longest queue / its limit and the slots, to which the next step hands it",
        queued,
        QUEUE_MAX + SLOTS,
        f"{queued} of {QUEUE_MAX} and {SLOTS}, {seen.load.clients} clients",
        "at most 1",
    )
    short = sum(pool["short"] for pool in seen.stats["memory"])
    yield _figure(
        "requests that ended as they should / all",
        served + left,
        total,
        f"{served:,} served, {left:,} given up by their clients, "
        f"{total - served - left} refused for good; 503s on the way: {dict(refused)}, "
        f"of which short of memory {short}",
        "1",
    )
    given = {
        f"{one['cache']} for {one['reason']}": one["times"]
        for pool in seen.stats["memory"]
        for one in pool["given_back"]
    }
    yield _figure(
        "times that something was given back / requests",
        sum(given.values()),
        total,
        json.dumps(given).replace('"', ""),
    )


def _figure(name: str, ours: float, other: float, medians: str, target: str = "") -> Figure:
    return Figure("toy", name, [ours], [other], medians, target)


@contextlib.contextmanager
def _served(*flags: str) -> Generator[tuple[str, int]]:
    """A server in another process until the end of the block: where it is, and its number."""
    with tempfile.TemporaryDirectory(prefix="anchorline-memory-") as directory:
        command = [sys.executable, "-m", "anchorline", "serve", "toy", "--port=0"]
        limits = [f"--window={WINDOW}", f"--slots={SLOTS}", f"--queue-max={QUEUE_MAX}"]
        log = Path(directory) / "log"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / ".path")}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *limits, f"--cache-dir={directory}/cache", "--disk-codec=on", *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        try:
            yield _url(log, process), process.pid
        finally:
            process.terminate()
            process.wait(START_S)


def _url(log: Path, process: "subprocess.Popen[bytes]") -> str:
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        said = log.read_bytes()
        if found := _READY.search(said):
            return found[1].decode()
        assert process.poll() is None, said.decode()
        time.sleep(0.05)
    raise AssertionError(f"the server did not start within {START_S:g} s")


def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=START_S)


def _wait_until_idle(client: httpx.Client) -> Body:
    """The figures once nothing runs, waits or is being written."""
    end_s = time.monotonic() + SETTLE_S
    while time.monotonic() < end_s:
        stats: Body = client.get(STATS_PATH).json()
        writes = 0 if stats["disk"] is None else stats["disk"]["pending_writes"]
        if not stats["running"] and not stats["queued"] and not writes:
            return stats
        time.sleep(0.1)
    raise AssertionError("the server did not come to rest")
