"""The verdict on a run, and the tables it is shown in."""

import datetime
import os
import platform
import shlex
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from soak.samples import Sample, slope

WARM_UP_S: Final = 300.0
"""Of the long life; until then its parts are being loaded and its buffers filled."""

JUDGED_S: Final = 600.0
"""A life that is shorter after its warm-up says nothing about an hour."""

ROWS: Final = 12
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Bound:
    """How fast a figure may grow in an hour."""

    name: str
    unit: str
    of: Callable[[Sample], float]
    per_hour_max: float


BOUNDS: Final = (
    Bound("memory (RSS)", "MiB", lambda sample: sample.rss_bytes / _MIB, 16.0),
    Bound("descriptors", "", lambda sample: sample.descriptors, 1.0),
    Bound("threads", "", lambda sample: sample.threads, 1.0),
    Bound("queue", "", lambda sample: sample.queued, 1.0),
)


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run.

    Attributes:
        counts: figures by name, in the order they are shown in.
        must: of the counts, those that must not be 0: a run that never met a thing proves nothing
            about it.
    """

    minutes: float
    samples: Sequence[Sample]
    counts: Mapping[str, object]
    must: Mapping[str, int]
    faults: Sequence[str]


def growth_faults(samples: Sequence[Sample]) -> list[str]:
    """The figures that grow faster than they may."""
    grown = [(bound, _per_hour(bound, samples)) for bound in BOUNDS]
    return [
        f"{bound.name} grows by {rate:.3g} {bound.unit} in an hour, more than "
        f"{bound.per_hour_max:g}"
        for bound, rate in grown
        if rate is not None and rate > bound.per_hour_max
    ]


def never_met(must: Mapping[str, int]) -> list[str]:
    """What a run was made to meet and did not."""
    return [f"never met: {name}" for name, count in must.items() if not count]


def document(run: Run) -> str:
    """The whole report, in Markdown."""
    return "\n".join([*_head(run), "", *_counts(run), "", *_growth(run), "", *_course(run), ""])


def _head(run: Run) -> Generator[str]:
    yield f"`{shlex.join(['python', '-m', 'soak', *sys.argv[1:]])}`"
    yield f"until {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {_machine()};"
    yield f"{run.minutes:g} minutes, faults: {len(run.faults)}."
    if run.faults:
        yield ""
        yield from (f"- {fault}" for fault in run.faults)


def _counts(run: Run) -> Generator[str]:
    yield "| what | count |"
    yield "|-|-|"
    yield from (f"| {name} | {value} |" for name, value in run.counts.items())


def _growth(run: Run) -> Generator[str]:
    yield ("| of the long life, after 5 minutes | median | from, to | growth an hour | bound |")
    yield "|-|-|-|-|-|"
    judged = _judged(run.samples)
    for bound in BOUNDS:
        values = [bound.of(sample) for sample in judged]
        rate = _per_hour(bound, run.samples)
        if not values or rate is None:
            yield f"| {bound.name} | | | too short to say | {bound.per_hour_max:g} |"
            continue
        unit = f" {bound.unit}".rstrip()
        yield (
            f"| {bound.name} | {median(values):.4g}{unit} | {min(values):.4g} to "
            f"{max(values):.4g} | {rate:+.2g} | {bound.per_hour_max:g}{unit} |"
        )


def _course(run: Run) -> Generator[str]:
    yield (
        "| minute | life | RSS, MiB | descriptors | threads | disk, MiB | entries | evicted | "
        "queue | requests | restores | hit rate |"
    )
    yield "|-|-|-|-|-|-|-|-|-|-|-|-|"
    step = max(1, len(run.samples) // ROWS)
    for sample in run.samples[step - 1 :: step]:
        cells = (
            f"{sample.at_s / 60:.0f}",
            sample.life,
            f"{sample.rss_bytes / _MIB:.0f}",
            sample.descriptors,
            sample.threads,
            f"{sample.disk_bytes / _MIB:.1f}",
            sample.entries,
            sample.evicted,
            sample.queued,
            sample.requests,
            sample.restores,
            f"{sample.hit_rate:.3f}",
        )
        yield f"| {' | '.join(map(str, cells))} |"


def _judged(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of the last life, once it is warm."""
    last = samples[-1].life if samples else 0
    return [sample for sample in samples if sample.life == last and sample.age_s >= WARM_UP_S]


def _per_hour(bound: Bound, samples: Sequence[Sample]) -> float | None:
    """None where the long life was not long enough."""
    judged = _judged(samples)
    if not judged or judged[-1].age_s - judged[0].age_s < JUDGED_S:
        return None
    return 3600 * slope([(sample.age_s, bound.of(sample)) for sample in judged])


def _machine() -> str:
    with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        name = next(
            (line.partition(":")[2].strip() for line in lines if "model name" in line),
            platform.machine(),
        )
    return f"{name}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
