"""Metrics in Prometheus' format, and the request journal in the log."""

import logging
from collections.abc import Mapping
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from ...ports.telemetry import NO_LABELS, Labels
from .log_text import key_values, plain_values
from .metrics import METRICS, PREFIX, Kind, Metric

JOURNAL_LOGGER: Final = "anchorline.request"
JOURNAL_FIELDS: Final = "journal_fields"
"""The attribute of a log record that holds a journal record's values, for the JSON format."""

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""What `PrometheusTelemetry.exposition` returns."""

_log = logging.getLogger("anchorline.telemetry")

_Collector: TypeAlias = Counter | Gauge | Histogram


class PrometheusTelemetry:
    """Implements the `Telemetry` port; callable from any thread."""

    def __init__(self) -> None:
        """Makes a registry of its own, so that two servers in one process share no figures."""
        self._registry = CollectorRegistry()
        self._collectors = {
            name: _collector(name, metric, self._registry) for name, metric in METRICS.items()
        }
        self._journal = logging.getLogger(JOURNAL_LOGGER)
        self._refused: set[str] = set()

    def count(self, name: str, amount: int = 1, labels: Labels = NO_LABELS) -> None:
        collector = self._child(name, labels)
        if amount < 0:
            self._refuse(f"{name} was to fall, and counters never do")
        elif isinstance(collector, Counter):
            collector.inc(amount)
        else:
            self._refuse(f"{name} is no counter")

    def gauge(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        collector = self._child(name, labels)
        if isinstance(collector, Gauge):
            collector.set(value)
        else:
            self._refuse(f"{name} is no gauge")

    def observe(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        collector = self._child(name, labels)
        if isinstance(collector, Histogram):
            collector.observe(value)
        else:
            self._refuse(f"{name} is no histogram")

    def journal(self, record: Mapping[str, object]) -> None:
        if not self._journal.isEnabledFor(logging.INFO):
            return
        fields = {JOURNAL_FIELDS: plain_values(record)}
        self._journal.info("%s", key_values(record), extra=fields)

    def exposition(self) -> bytes:
        """All metrics as text, of the type `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    def _child(self, name: str, labels: Labels) -> _Collector | None:
        """The collector of a name under the labels its metric has; None for an unknown name."""
        collector = self._collectors.get(name)
        if collector is None or not METRICS[name].labels:
            return collector
        return collector.labels(*(labels.get(label, "") for label in METRICS[name].labels))

    def _refuse(self, why: str) -> None:
        """Say once what was not counted: the port promises never to raise for a figure."""
        if why not in self._refused:
            self._refused.add(why)
            _log.warning("a figure was dropped: %s", why)


def _collector(name: str, metric: Metric, registry: CollectorRegistry) -> _Collector:
    full_name = PREFIX + name
    match metric.kind:
        case Kind.COUNTER:
            return Counter(full_name, metric.help, metric.labels, registry=registry)
        case Kind.GAUGE:
            return Gauge(full_name, metric.help, metric.labels, registry=registry)
        case Kind.HISTOGRAM:
            return Histogram(
                full_name, metric.help, metric.labels, registry=registry, buckets=metric.buckets
            )
