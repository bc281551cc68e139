"""What `ports/telemetry.py` promises, as tests over any adapter."""

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from anchorline.ports import telemetry as names
from anchorline.ports.telemetry import NO_LABELS, Labels, Telemetry

STOPPED = {"outcome": "stop"}
CANCELLED = {"outcome": "cancelled"}
FROM_SLOT = {"tier": "slot", "source": "resident"}


class TelemetryContract(ABC):
    """Holds an adapter to its port; the hooks read back what it was told."""

    @abstractmethod
    def make_telemetry(self) -> Telemetry: ...

    @abstractmethod
    def counted(self, telemetry: Telemetry, name: str, labels: Labels = NO_LABELS) -> float:
        """What the counter stands at."""

    @abstractmethod
    def gauged(self, telemetry: Telemetry, name: str, labels: Labels = NO_LABELS) -> float | None:
        """What the gauge stands at."""

    @abstractmethod
    def observed(
        self, telemetry: Telemetry, name: str, labels: Labels = NO_LABELS
    ) -> tuple[int, float]:
        """How many samples the histogram holds, and their sum."""

    @abstractmethod
    def journalled(self, telemetry: Telemetry) -> Sequence[Mapping[str, object]]:
        """The journal's records, oldest first."""

    def test_a_counter_adds_up(self) -> None:
        telemetry = self.make_telemetry()

        telemetry.count(names.TOKENS_GENERATED)
        telemetry.count(names.TOKENS_GENERATED, 41)
        telemetry.count(names.TOKENS_GENERATED, 0)

        assert self.counted(telemetry, names.TOKENS_GENERATED) == 42

    def test_each_set_of_labels_has_a_counter_of_its_own(self) -> None:
        telemetry = self.make_telemetry()

        telemetry.count(names.REQUESTS, labels=STOPPED)
        telemetry.count(names.REQUESTS, 2, CANCELLED)
        telemetry.count(names.HITS, 3, FROM_SLOT)

        assert self.counted(telemetry, names.REQUESTS, STOPPED) == 1
        assert self.counted(telemetry, names.REQUESTS, CANCELLED) == 2
        assert self.counted(telemetry, names.HITS, FROM_SLOT) == 3

    def test_the_order_of_labels_does_not_matter(self) -> None:
        telemetry = self.make_telemetry()

        telemetry.count(names.HITS, 1, {"tier": "slot", "source": "end"})
        telemetry.count(names.HITS, 1, {"source": "end", "tier": "slot"})

        assert self.counted(telemetry, names.HITS, {"tier": "slot", "source": "end"}) == 2

    def test_a_gauge_stands_where_it_was_set_last(self) -> None:
        telemetry = self.make_telemetry()

        telemetry.gauge(names.QUEUED, 3)
        telemetry.gauge(names.QUEUED, 1)
        telemetry.gauge(names.ANCHORS, 7, {"slot": "0"})
        telemetry.gauge(names.ANCHORS, 9, {"slot": "1"})

        assert self.gauged(telemetry, names.QUEUED) == 1
        assert self.gauged(telemetry, names.ANCHORS, {"slot": "0"}) == 7
        assert self.gauged(telemetry, names.ANCHORS, {"slot": "1"}) == 9

    def test_a_histogram_takes_samples(self) -> None:
        telemetry = self.make_telemetry()

        for seconds in (0.25, 0.5, 64.0):
            telemetry.observe(names.TTFT_SECONDS, seconds, {"tier": "slot"})
        telemetry.observe(names.QUEUE_SECONDS, 0.0)

        assert self.observed(telemetry, names.TTFT_SECONDS, {"tier": "slot"}) == (3, 64.75)
        assert self.observed(telemetry, names.QUEUE_SECONDS) == (1, 0.0)

    def test_the_journal_keeps_records_in_order_and_as_they_were(self) -> None:
        telemetry = self.make_telemetry()
        record: dict[str, object] = {"id": "a", "prompt": 12, "seconds": 0.5, "lines": [8, 16]}

        telemetry.journal(record)
        record["id"] = "changed later"
        telemetry.journal({"id": "b"})

        assert [dict(row) for row in self.journalled(telemetry)] == [
            {"id": "a", "prompt": 12, "seconds": 0.5, "lines": [8, 16]},
            {"id": "b"},
        ]

    def test_no_figure_is_bad_enough_to_raise(self) -> None:
        telemetry = self.make_telemetry()

        for value in (math.nan, math.inf, -math.inf, -1.0, 1e300):
            telemetry.gauge(names.QUEUED, value)
            telemetry.observe(names.QUEUE_SECONDS, value)

        telemetry.gauge(names.QUEUED, 2)
        assert self.gauged(telemetry, names.QUEUED) == 2

    def test_figures_from_several_threads_all_count(self) -> None:
        telemetry = self.make_telemetry()

        def tell() -> None:
            for _ in range(500):
                telemetry.count(names.TOKENS_GENERATED)
                telemetry.observe(names.INTER_TOKEN_SECONDS, 1.0)
                telemetry.journal({"tokens": 1})

        threads = [threading.Thread(target=tell) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert self.counted(telemetry, names.TOKENS_GENERATED) == 2000
        assert self.observed(telemetry, names.INTER_TOKEN_SECONDS) == (2000, 2000.0)
        assert len(self.journalled(telemetry)) == 2000
