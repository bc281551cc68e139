"""How much of a pool of memory this process may take, and why.

    |  model, rows  |      caches       |slack|   workspace   |              |  floor  |
    0            engine                   ceiling           peak                     total

Between requests the process stays under the ceiling, during a prefill under the peak. The slack
below the ceiling is the allocator's, for blocks that were freed and are about to be used again.
The floor is nobody's: the system lives on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from .byte_size import GIB, size
from .errors import RequestError

FLOOR_BYTES_MAX: Final = 15 * GIB
FLOOR_PART: Final = 8
"""The system keeps an eighth of the host's memory, and of a large one no more than that."""

DEVICE_FLOOR_PART: Final = 32
"""Of a device's memory, in which no system lives."""

CACHES_PART: Final = 2
"""Half of what is free is for caches; the rest is for a prefill's workspace, and for others."""

CROWDED_PART: Final = 4
"""Where others have taken the floor a prefill may still take a quarter of what they have left."""

SLACK_BYTES_MAX: Final = 2 * GIB
SLACK_PART: Final = 8

ANCHORS_PART: Final = 2
"""The slots' anchors take half of the caches' room at most."""

RAM_SHARES: Final[Mapping[str, int]] = {"snapshots": 2, "stash": 1, "parked": 4, "pinned": 4}
"""GiB of the tier in memory on a large machine; a smaller one divides what it has alike."""

GIVE_BACK_ORDER: Final = (
    "responses",
    "snapshots",
    "body_anchors",
    "end_anchors",
    "stash",
    "parked",
    "pinned",
)
"""Caches by what they are worth, the cheapest first."""

LIMITS: Final = ("ceiling", "peak", "slack", "ram_bytes_max")
"""What can be set, at the start and later."""


@dataclass(frozen=True, slots=True)
class MemoryFound:
    """A pool when the model was loaded and nothing was cached.

    Attributes:
        available: what could still be taken without hurting others.
        held: by this process.
        unwritten: what its slots have not touched of their rows yet, and will without asking.
        window: tokens that a slot holds.
        row_bytes: of one token's rows.
        workspace: of the longest prefill, as the engine estimates it.
        beside: what comes and goes with what is written, whatever else goes on.
        anchors: what the slots' anchors may take.
        floor: what the system keeps; see `system_floor`.
    """

    total: int
    available: int
    held: int
    unwritten: int
    window: int
    row_bytes: int
    workspace: int
    anchors: int
    floor: int
    beside: int = 0

    @property
    def engine(self) -> int:
        """Bytes that no limit can take back: the model, and its slots' rows in full."""
        return self.held + self.unwritten

    @property
    def spare(self) -> int:
        """Bytes that the engine leaves, beside the floor."""
        return spare(max(self.available - self.unwritten, 0), self.floor)


@dataclass(frozen=True, slots=True)
class LimitsWanted:
    """Bytes as somebody has set them; None leaves the choice to the plan.

    A ceiling or peak of 0 is the plan's choice as well: with nothing there would be no server.
    """

    ceiling: int | None = None
    peak: int | None = None
    slack: int | None = None
    ram_bytes_max: int | None = None

    def changed(self, changes: Mapping[str, int | None]) -> "LimitsWanted":
        """With some of `LIMITS` set anew."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of bytes and where it comes from, for people."""

    bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The limits in force.

    Attributes:
        ceiling: of all that the process holds between requests.
        peak: of all that it holds during a prefill.
        slack: of free blocks that the allocator may keep between requests.
        floor: what the system keeps.
        anchors: of all slots' anchors together.
        ram_bytes_max: of the tier in memory.
    """

    found: MemoryFound
    wanted: LimitsWanted
    ceiling: Figure
    peak: Figure
    slack: Figure
    floor: Figure
    anchors: Figure
    ram_bytes_max: Figure

    def figures(self) -> dict[str, Figure]:
        """All of them by name."""
        names = ("ceiling", "peak", "slack", "floor", "anchors", "ram_bytes_max")
        return {name: getattr(self, name) for name in names}

    def shares(self) -> dict[str, int]:
        """By cache: what it may hold of its own, the room of cheaper ones not counted."""
        ram, parts = self.ram_bytes_max.bytes, sum(RAM_SHARES.values())
        shares = {name: ram * part // parts for name, part in RAM_SHARES.items()}
        anchors = self.anchors.bytes
        # Answers that are given again have a budget of their own, and leave nobody room in it.
        return {"responses": 0, **shares, "body_anchors": anchors, "end_anchors": anchors}


def system_floor(total: int, part: int = FLOOR_PART) -> int:
    """What the system keeps of a pool."""
    return min(FLOOR_BYTES_MAX, total // part)


def spare(available: int, floor: int) -> int:
    """What may be taken of what is available; a part of it even where others took the floor."""
    return max(available - floor, available // CROWDED_PART)


def memory_plan(found: MemoryFound, wanted: LimitsWanted) -> MemoryPlan:
    """The limits for what was found, with those that somebody has set as they are.

    Raises:
        RequestError: one of these makes no sense; names it as its field.
    """
    _check_each(wanted, found.total)
    ceiling = _ceiling(found, wanted)
    peak = _peak(found, wanted, ceiling.bytes)
    if peak.bytes < ceiling.bytes:
        raise RequestError(
            f"the peak of {size(peak.bytes)} is less than the ceiling of {size(ceiling.bytes)}",
            field="peak" if wanted.peak else "ceiling",
        )
    slack = _slack(found, wanted, ceiling.bytes)
    caches = max(ceiling.bytes - max(slack.bytes, found.beside) - found.engine, 0)
    anchors = _anchors(found, caches)
    return MemoryPlan(
        found=found,
        wanted=wanted,
        ceiling=ceiling,
        peak=peak,
        slack=slack,
        floor=Figure(found.floor, f"of {size(found.total)}, for the system"),
        anchors=anchors,
        ram_bytes_max=_ram(wanted, caches - anchors.bytes),
    )


def _check_each(wanted: LimitsWanted, total: int) -> None:
    for name in LIMITS:
        value: int | None = getattr(wanted, name)
        if value is not None and not 0 <= value <= total:
            raise RequestError(
                f"{value} is not between 0 and the {total} bytes there are", field=name
            )


def _ceiling(found: MemoryFound, wanted: LimitsWanted) -> Figure:
    if wanted.ceiling:
        return Figure(wanted.ceiling, "as set")
    computed = found.engine + found.spare // CACHES_PART
    why = (
        f"{size(found.engine)} for model and slots, and half of the {size(found.spare)} "
        f"that were free beside {size(found.floor)} for the system"
    )
    if wanted.peak and wanted.peak < computed:
        return Figure(wanted.peak, "the peak, as set")
    return Figure(computed, why)


def _peak(found: MemoryFound, wanted: LimitsWanted, ceiling: int) -> Figure:
    if wanted.peak:
        return Figure(wanted.peak, "as set")
    reach = max(found.engine + found.spare, ceiling)
    # A ceiling that is lower than the engine leaves caches nothing, and requests what they need.
    needed = max(ceiling, found.engine) + found.workspace + found.beside
    if needed <= reach:
        why = f"the ceiling, and {size(found.workspace)} of workspace for the longest prompt"
        return Figure(needed, why)
    return Figure(reach, "all that was free beside what the system keeps; caches make room")


def _slack(found: MemoryFound, wanted: LimitsWanted, ceiling: int) -> Figure:
    if wanted.slack is None:
        computed = min(SLACK_BYTES_MAX, max(ceiling - found.engine, 0) // SLACK_PART)
        return Figure(computed, "an eighth of what is above the model, at most 2 GiB")
    if wanted.slack > ceiling:
        raise RequestError(
            f"the slack of {size(wanted.slack)} is more than the ceiling of {size(ceiling)}",
            field="slack",
        )
    return Figure(wanted.slack, "as set")


def _anchors(found: MemoryFound, caches: int) -> Figure:
    if found.anchors <= caches // ANCHORS_PART:
        return Figure(found.anchors, "as many as the slots may have")
    return Figure(caches // ANCHORS_PART, f"half of the {size(caches)} that caches have")


def _ram(wanted: LimitsWanted, left: int) -> Figure:
    if wanted.ram_bytes_max is not None:
        return Figure(wanted.ram_bytes_max, "as set")
    most = sum(RAM_SHARES.values()) * GIB
    if most <= left:
        return Figure(most, f"what a large machine gives; {size(left)} were left")
    return Figure(left, "what the model, the slack and the anchors leave under the ceiling")
