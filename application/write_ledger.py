"""Whether something may be written now, what was written, and what was not."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from ..domain.budget_day import BudgetDay
from ..domain.entry import Role
from ..domain.write_guard import WriteCause, WriteGuard
from ..ports import telemetry as names
from ..ports.catalog import Catalog
from ..ports.clock import Clock
from ..ports.telemetry import Telemetry
from .disk_counters import Skip

BACKOFF_S_MIN: Final = 5.0
BACKOFF_S_MAX: Final = 600.0

DAYS_SHOWN: Final = 14
"""Days of written bytes that the figures show."""

DAYS_KEPT: Final = 400
"""Days of written bytes that are remembered: the clock may go back to any of them."""


class WriteLedger:
    """The day's bytes against their budget, and a pause for a medium that fails.

    The bytes stand in memory: whether something may be written is answered, and rightly, while the
    catalog fails. What it could not take down is told it again.
    """

    def __init__(
        self,
        guard: WriteGuard,
        catalog: Catalog,
        clock: Clock,
        telemetry: Telemetry,
        local_day: Callable[[], str],
    ) -> None:
        """Takes a medium that is thought to work.

        Args:
            catalog: keeps the bytes of each day.
            local_day: today's ISO date.

        Raises:
            StorageError: the catalog cannot be read.
        """
        self._guard = guard
        self._catalog = catalog
        self._clock = clock
        self._telemetry = telemetry
        self._local_day = local_day
        self._pause_s = 0.0
        self._paused_until_s = clock.monotonic()
        self._by_day = {day: Counter(kinds) for day, kinds in catalog.written(DAYS_KEPT).items()}
        self._day = BudgetDay(max(self._by_day, default=""))
        self._unrecorded: Counter[tuple[str, str]] = Counter()

    @property
    def today(self) -> int:
        """Bytes written on this local day, and on those that a clock set back has yet to reach."""
        by_day = {day: kinds.total() for day, kinds in self._by_day.items()}
        return self._day.counted(by_day, self._local_day(), self._clock.monotonic())

    @property
    def level(self) -> str:
        """What the guard lets through at this hour of the day's budget."""
        return self._guard.level(self.today).value

    def by_day(self) -> dict[str, dict[str, int]]:
        """Bytes by kind on each of the last `DAYS_SHOWN` days that have any, newest first."""
        newest = sorted(self._by_day, reverse=True)[:DAYS_SHOWN]
        return {day: dict(self._by_day[day]) for day in newest}

    def refuses(self, cause: WriteCause, tokens: int) -> Skip | None:
        """Why a write may not begin; None if it may."""
        if cause is not WriteCause.STOP and self._clock.monotonic() < self._paused_until_s:
            return Skip.BACKOFF
        if self._guard.allows(cause, tokens, self.today):
            return None
        return Skip.GUARD

    def ended(self, *, failed: bool) -> None:
        """A medium that failed is left alone for a while, longer each time until it works again."""
        if failed == (self._pause_s == 0.0):
            event = "disk_writes_fail" if failed else "disk_writes_work_again"
            self._telemetry.journal({"event": event})
        if not failed:
            self._pause_s = 0.0
            return
        self._pause_s = min(max(2 * self._pause_s, BACKOFF_S_MIN), BACKOFF_S_MAX)
        self._paused_until_s = self._clock.monotonic() + self._pause_s

    def wrote(self, role: Role, nbytes: int) -> None:
        """Bytes went to the medium.

        Raises:
            StorageError: the catalog could not take them down; they are counted all the same.
        """
        self._telemetry.count(names.DISK_BYTES_WRITTEN, nbytes, {"role": role.value})
        if nbytes:
            day = self._local_day()
            self._day.follow(day, self._clock.monotonic())
            self._by_day.setdefault(day, Counter())[role.value] += nbytes
            self._unrecorded[day, role.value] += nbytes
            self._forget_days(day)
            self.record()

    def record(self) -> None:
        """Let the catalog take down what it could not before.

        Raises:
            StorageError: it still cannot.
        """
        for (day, kind), nbytes in list(self._unrecorded.items()):
            # Of a day that is forgotten nobody asks.
            if day in self._by_day:
                self._catalog.add_written(day, kind, nbytes)
            del self._unrecorded[day, kind]

    def skipped(self, why: Skip, role: Role) -> None:
        """Something was not written."""
        labels = {"reason": why.value, "role": role.value}
        self._telemetry.count(names.WRITES_SKIPPED, labels=labels)

    def changed(self, why: str) -> None:
        """Rows were not what they had been, while a write was copying them: people should know."""
        self._telemetry.journal({"event": "rows_changed", "reason": why})

    def _forget_days(self, today: str) -> None:
        while len(self._by_day) > DAYS_KEPT:
            del self._by_day[min(day for day in self._by_day if day != today)]
