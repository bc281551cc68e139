"""The telemetry that remembers, against the telemetry contract."""

from collections.abc import Mapping, Sequence

import pytest

from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.ports import telemetry as names
from anchorline.ports.telemetry import NO_LABELS, Labels, Telemetry
from contract.telemetry_contract import STOPPED, TelemetryContract


def recording(telemetry: Telemetry) -> RecordingTelemetry:
    assert isinstance(telemetry, RecordingTelemetry)
    return telemetry


class TestRecordingTelemetry(TelemetryContract):
    def make_telemetry(self) -> RecordingTelemetry:
        return RecordingTelemetry()

    def counted(self, telemetry: Telemetry, name: str, labels: Labels = NO_LABELS) -> float:
        return recording(telemetry).counted(name, labels)

    def gauged(self, telemetry: Telemetry, name: str, labels: Labels = NO_LABELS) -> float | None:
        return recording(telemetry).gauged(name, labels)

    def observed(
        self, telemetry: Telemetry, name: str, labels: Labels = NO_LABELS
    ) -> tuple[int, float]:
        samples = recording(telemetry).samples(name, labels)
        return len(samples), sum(samples)

    def journalled(self, telemetry: Telemetry) -> Sequence[Mapping[str, object]]:
        return recording(telemetry).records

    def test_what_was_never_told_is_nothing(self) -> None:
        telemetry = self.make_telemetry()

        assert telemetry.counted(names.REQUESTS) == 0
        assert telemetry.gauged(names.QUEUED) is None
        assert telemetry.samples(names.TTFT_SECONDS) == []

    def test_a_counter_can_be_summed_over_its_labels(self) -> None:
        telemetry = self.make_telemetry()
        telemetry.count(names.REQUESTS, 2, STOPPED)
        telemetry.count(names.REQUESTS, 3, {"outcome": "error"})
        telemetry.count(names.MISSES, 9)

        assert telemetry.counted_in_all(names.REQUESTS) == 5

    def test_a_counter_that_goes_back_is_a_fault_of_the_caller(self) -> None:
        with pytest.raises(AssertionError):
            self.make_telemetry().count(names.REQUESTS, -1)
