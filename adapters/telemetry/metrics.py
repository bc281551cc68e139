"""Every metric with its kind, its labels and what it says: the one table of them."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ...ports import telemetry as names

PREFIX: Final = "anchorline_"

_LATENCY_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 320.0),
)
"""Seconds: from a resumed turn on a small model to a cold prefill of a long conversation."""

_TOKEN_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56)
"""Seconds between two tokens; the high ones hold what waited for another slot's chunk."""


class Kind(enum.Enum):
    """How a metric moves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        labels: every label name it has; others are dropped, missing ones are empty.
        buckets: upper bounds of a histogram's buckets, ascending.
    """

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        names.REQUESTS: Metric(Kind.COUNTER, "Requests that ended, by outcome.", ("outcome",)),
        names.HITS: Metric(
            Kind.COUNTER, "Requests that resumed from kept state.", ("tier", "source")
        ),
        names.MISSES: Metric(Kind.COUNTER, "Requests that started cold."),
        names.TOKENS_CACHED: Metric(
            Kind.COUNTER, "Prompt tokens that needed no forward.", ("tier", "source")
        ),
        names.TOKENS_REREAD: Metric(Kind.COUNTER, "Prompt tokens that were forwarded."),
        names.TOKENS_GENERATED: Metric(Kind.COUNTER, "Tokens that were sampled."),
        names.PREFILLS_CANCELLED: Metric(Kind.COUNTER, "Prefills whose client left."),
        names.ENDS_KEPT: Metric(
            Kind.COUNTER, "Ends of generations, by whether their state was kept.", ("outcome",)
        ),
        names.ANCHORS: Metric(Kind.GAUGE, "Grid anchors that stand.", ("slot",)),
        names.ANCHOR_BYTES: Metric(
            Kind.GAUGE, "Bytes of all copies of sections, free buffers included.", ("slot",)
        ),
        names.RESIDENT_TOKENS: Metric(Kind.GAUGE, "Tokens whose state a slot holds.", ("slot",)),
        names.QUEUED: Metric(Kind.GAUGE, "Requests that wait for a slot."),
        names.RUNNING: Metric(Kind.GAUGE, "Requests that run in a slot."),
        names.MEMORY_BYTES: Metric(Kind.GAUGE, "Memory of the host, by kind.", ("kind",)),
        names.MEMORY_LIMIT_BYTES: Metric(
            Kind.GAUGE, "Limits of memory in force.", ("pool", "limit")
        ),
        names.MEMORY_CACHE_BYTES: Metric(
            Kind.GAUGE, "Bytes that caches hold in memory.", ("pool", "cache")
        ),
        names.MEMORY_GIVEN_BACK: Metric(
            Kind.COUNTER, "Bytes that caches gave back, and why.", ("pool", "cache", "reason")
        ),
        names.MEMORY_REFUSED: Metric(
            Kind.COUNTER, "Growth that caches were refused, and why.", ("pool", "cache", "reason")
        ),
        names.MEMORY_SHORT: Metric(
            Kind.COUNTER, "Requests whose prefill did not fit the memory.", ("pool",)
        ),
        names.DISK_BYTES: Metric(
            Kind.GAUGE, "Bytes the disk tier takes, temporary and quarantined ones included."
        ),
        names.DISK_ENTRIES: Metric(Kind.GAUGE, "Entries of the disk tier.", ("role",)),
        names.DISK_BYTES_WRITTEN: Metric(Kind.COUNTER, "Bytes written to the medium.", ("role",)),
        names.DISK_BYTES_READ: Metric(Kind.COUNTER, "Bytes read from the medium."),
        names.WRITES_SKIPPED: Metric(
            Kind.COUNTER, "States that were not stored, and why.", ("reason", "role")
        ),
        names.EVICTED: Metric(Kind.COUNTER, "Entries that left the medium.", ("reason",)),
        names.QUARANTINED: Metric(Kind.COUNTER, "Stored objects that failed their check."),
        names.STORAGE_ERRORS: Metric(
            Kind.COUNTER, "Calls of the medium or the catalog that failed."
        ),
        names.RESTORE_SECONDS: Metric(
            Kind.HISTOGRAM, "To bring a stored state in.", (), _LATENCY_BUCKETS
        ),
        names.VERIFY_SAMPLES: Metric(
            Kind.COUNTER, "Kept states that were recomputed and judged.", ("tier",)
        ),
        names.VERIFY_TOKENS: Metric(
            Kind.COUNTER, "Tokens that were forwarded to judge kept states."
        ),
        names.VERIFY_MISMATCHES: Metric(
            Kind.COUNTER, "Kept states that were wrong, by what of them.", ("tier", "kind")
        ),
        names.RESPONSE_BYTES: Metric(
            Kind.GAUGE, "Bytes of answers that are kept to be given again."
        ),
        names.RESPONSES_DROPPED: Metric(
            Kind.COUNTER, "Answers that are not given again, and why.", ("reason",)
        ),
        names.TTFT_SECONDS: Metric(
            Kind.HISTOGRAM, "From arrival to the first token.", ("tier",), _LATENCY_BUCKETS
        ),
        names.INTER_TOKEN_SECONDS: Metric(
            Kind.HISTOGRAM, "Between two tokens of one answer.", (), _TOKEN_BUCKETS
        ),
        names.QUEUE_SECONDS: Metric(
            Kind.HISTOGRAM, "From arrival to the start of the prefill.", (), _LATENCY_BUCKETS
        ),
    }
)
