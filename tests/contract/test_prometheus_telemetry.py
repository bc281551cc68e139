"""Prometheus' metrics and the journal in the log, against the telemetry contract."""

import logging
from collections.abc import Generator, Mapping, Sequence
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anchorline.adapters.telemetry.metrics import METRICS, PREFIX, Kind
from anchorline.adapters.telemetry.prometheus import (
    JOURNAL_FIELDS,
    JOURNAL_LOGGER,
    PrometheusTelemetry,
)
from anchorline.ports.telemetry import NO_LABELS, Labels, Telemetry
from contract.telemetry_contract import TelemetryContract


class JournalHandler(logging.Handler):
    """Keeps the values of journal records."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Mapping[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.rows.append(cast("Mapping[str, object]", getattr(record, JOURNAL_FIELDS)))


def sample(telemetry: Telemetry, name: str, labels: Labels) -> float | None:
    """A sample's value, read from the text a scraper gets."""
    assert isinstance(telemetry, PrometheusTelemetry)
    for family in text_string_to_metric_families(telemetry.exposition().decode()):
        for found in family.samples:
            if found.name == PREFIX + name and found.labels == dict(labels):
                return found.value
    return None


class TestPrometheusTelemetry(TelemetryContract):
    @pytest.fixture(autouse=True)
    def journal(self) -> Generator[None]:
        self.handler = JournalHandler()
        logger = logging.getLogger(JOURNAL_LOGGER)
        before = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self.handler)
        yield
        logger.removeHandler(self.handler)
        logger.setLevel(before)

    def make_telemetry(self) -> PrometheusTelemetry:
        return PrometheusTelemetry()

    def counted(self, telemetry: Telemetry, name: str, labels: Labels = NO_LABELS) -> float:
        assert METRICS[name].kind is Kind.COUNTER
        return sample(telemetry, f"{name}_total", labels) or 0.0

    def gauged(self, telemetry: Telemetry, name: str, labels: Labels = NO_LABELS) -> float | None:
        return sample(telemetry, name, labels)

    def observed(
        self, telemetry: Telemetry, name: str, labels: Labels = NO_LABELS
    ) -> tuple[int, float]:
        count = sample(telemetry, f"{name}_count", labels) or 0.0
        return int(count), sample(telemetry, f"{name}_sum", labels) or 0.0

    def journalled(self, telemetry: Telemetry) -> Sequence[Mapping[str, object]]:
        del telemetry  # the log is the process's
        return self.handler.rows
