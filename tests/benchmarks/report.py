"""What a benchmark finds, and the table it is shown in."""

import datetime
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import torch
import transformers

from anchorline import __version__

ROOT: Final = Path(__file__).parents[2]

_HEADER: Final = "| model | figure | ratio | lowest to highest | target | medians | repetitions |"


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure, and how thoroughly.

    Attributes:
        models: built-in names.
        quick: few repetitions of short runs, to see that a benchmark works.
        progress: shows a line on the way.
    """

    models: tuple[str, ...]
    quick: bool
    progress: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: something against something else that was measured in the same run.

    Attributes:
        ours: one value per repetition.
        other: what each is divided by, measured just before or after it.
        medians: says both in their own unit.
        target: what the ratio should be; "" where nothing was promised.
    """

    model: str
    name: str
    ours: Sequence[float]
    other: Sequence[float]
    medians: str
    target: str = ""

    @property
    def ratios(self) -> list[float]:
        """One ratio per repetition: what changes on a machine between two of them cancels out."""
        return [our / other for our, other in zip(self.ours, self.other, strict=True)]

    def row(self) -> str:
        """The figure as a line of a Markdown table."""
        ratios = self.ratios
        cells = (
            self.model,
            self.name,
            _shown(median(ratios)),
            f"{_shown(min(ratios))} to {_shown(max(ratios))}",
            self.target,
            self.medians,
            str(len(ratios)),
        )
        return f"| {' | '.join(cells)} |"


def against(ours: Sequence[float], other: Sequence[float], *, what: str = "") -> str:
    """Both medians, from seconds, in a unit that suits each."""
    return f"{seconds(median(ours))} against {seconds(median(other))}{what}"


def seconds(value: float) -> str:
    """A time in a unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e6:.3g} \N{MICRO SIGN}s"


def print_table(figures: Iterable[Figure]) -> None:
    """What was measured, where and by which command; rows come out as they are found."""
    load_before = os.getloadavg()[0]
    print(f"`{shlex.join([Path(sys.executable).name, *sys.argv])}`")
    print(f"on {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine()};")
    print(f"{versions()}.\n")
    print(_HEADER)
    print("|" + "-|" * (_HEADER.count("|") - 1), flush=True)
    for figure in figures:
        print(figure.row(), flush=True)
    load_after = os.getloadavg()[0]
    print(f"\nLoad average (1 minute): {load_before:.2f} before, {load_after:.2f} after.")


def machine() -> str:
    """The processor, how much of it is used, and the memory."""
    name = platform.processor() or platform.machine()
    with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        name = next(
            (line.partition(":")[2].strip() for line in lines if "model name" in line), name
        )
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    return (
        f"{name} ({platform.machine()}), {os.cpu_count()} cores of which torch uses "
        f"{torch.get_num_threads()}, {gib:.0f} GiB, {platform.system()} {platform.release()}"
    )


def versions() -> str:
    """Of what computes here."""
    revision = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return (
        f"anchorline {__version__} ({revision or 'no checkout'}), Python "
        f"{platform.python_version()}, torch {torch.__version__}, transformers "
        f"{transformers.__version__}"
    )


def _shown(ratio: float) -> str:
    return f"{ratio:.3g}" if ratio < 100 else f"{ratio:.0f}"
