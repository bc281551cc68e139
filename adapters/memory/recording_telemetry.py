"""Telemetry that remembers everything, for tests to look at."""

import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

from ...ports.telemetry import NO_LABELS, Labels

_Key: TypeAlias = tuple[str, frozenset[tuple[str, str]]]


class RecordingTelemetry:
    """Implements `ports.telemetry.Telemetry`.

    It keeps all samples and all journal records, and so is not for processes that run long.

    Attributes:
        records: the journal, oldest first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: defaultdict[_Key, int] = defaultdict(int)
        self._gauges: dict[_Key, float] = {}
        self._samples: defaultdict[_Key, list[float]] = defaultdict(list)
        self.records: list[Mapping[str, object]] = []

    def count(self, name: str, amount: int = 1, labels: Labels = NO_LABELS) -> None:
        assert amount >= 0, f"{name} cannot go back by {-amount}"
        with self._lock:
            self._counters[_key(name, labels)] += amount

    def gauge(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        with self._lock:
            self._gauges[_key(name, labels)] = value

    def observe(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        with self._lock:
            self._samples[_key(name, labels)].append(value)

    def journal(self, record: Mapping[str, object]) -> None:
        with self._lock:
            self.records.append(dict(record))

    def counted(self, name: str, labels: Labels = NO_LABELS) -> int:
        """What a counter stands at; 0 for one that was never added to."""
        return self._counters.get(_key(name, labels), 0)

    def counted_in_all(self, name: str) -> int:
        """The sum of a counter over all labels."""
        return sum(value for (counter, _), value in self._counters.items() if counter == name)

    def gauged(self, name: str, labels: Labels = NO_LABELS) -> float | None:
        """What a gauge was last set to; None for one that never was."""
        return self._gauges.get(_key(name, labels))

    def samples(self, name: str, labels: Labels = NO_LABELS) -> list[float]:
        """What a histogram was given, in order."""
        return list(self._samples.get(_key(name, labels), ()))


def _key(name: str, labels: Labels) -> _Key:
    return name, frozenset(labels.items())
