"""Counters, gauges, histograms and the request journal.

The names are constants here, so that no two places spell one differently.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

REQUESTS: Final = "requests"
"""Counter by outcome: stop, length, cancelled, error."""

HITS: Final = "cache_hits"
"""Counter by tier and source."""

MISSES: Final = "cache_misses"
"""Counter."""

TOKENS_CACHED: Final = "tokens_cached"
"""Counter by tier and source: prompt tokens that needed no forward."""

TOKENS_REREAD: Final = "tokens_reread"
"""Counter: prompt tokens that were forwarded."""

TOKENS_GENERATED: Final = "tokens_generated"
"""Counter."""

PREFILLS_CANCELLED: Final = "prefills_cancelled"
"""Counter: prefills whose client left."""

ENDS_KEPT: Final = "ends_kept"
"""Counter by outcome: kept, absorbed."""

ANCHORS: Final = "anchors"
"""Gauge by slot: grid anchors that stand."""

ANCHOR_BYTES: Final = "anchor_bytes"
"""Gauge by slot: bytes of all copies of sections, the end's and free buffers included."""

RESIDENT_TOKENS: Final = "resident_tokens"
"""Gauge by slot."""

QUEUED: Final = "queue_length"
"""Gauge."""

RUNNING: Final = "requests_running"
"""Gauge."""

MEMORY_BYTES: Final = "memory_bytes"
"""Gauge by kind: allocated, reserved, available, total; taken when nothing runs."""

MEMORY_LIMIT_BYTES: Final = "memory_limit_bytes"
"""Gauge by pool and limit: ceiling, peak, slack, floor, anchors, ram_bytes_max."""

MEMORY_CACHE_BYTES: Final = "memory_cache_bytes"
"""Gauge by pool and cache."""

MEMORY_GIVEN_BACK: Final = "memory_given_back_bytes"
"""Counter by pool, cache and reason: prefill, slack, ceiling, limits."""

MEMORY_REFUSED: Final = "memory_growth_refused"
"""Counter by pool, cache and reason: share, ram, ceiling, peak, machine."""

MEMORY_SHORT: Final = "memory_short"
"""Counter by pool: requests that were told to come back, as their prefill did not fit."""

DISK_BYTES: Final = "disk_bytes"
"""Gauge: bytes the tier takes on its medium, temporary and quarantined ones included."""

DISK_ENTRIES: Final = "disk_entries"
"""Gauge by role."""

DISK_BYTES_WRITTEN: Final = "disk_bytes_written"
"""Counter by role."""

DISK_BYTES_READ: Final = "disk_bytes_read"
"""Counter."""

WRITES_SKIPPED: Final = "disk_writes_skipped"
"""Counter by reason and role: state that was not stored."""

EVICTED: Final = "disk_evicted"
"""Counter by reason: entries that left the medium."""

QUARANTINED: Final = "disk_quarantined"
"""Counter: stored objects that failed their check."""

STORAGE_ERRORS: Final = "disk_errors"
"""Counter: calls of the medium or the catalog that failed."""

RESTORE_SECONDS: Final = "restore_seconds"
"""Histogram: how long it took to bring a stored state in."""

VERIFY_SAMPLES: Final = "verify_samples"
"""Counter by tier: kept states that were recomputed and judged."""

VERIFY_TOKENS: Final = "verify_tokens"
"""Counter: tokens that were forwarded to judge kept states."""

VERIFY_MISMATCHES: Final = "verify_mismatches"
"""Counter by tier and kind: kept states that were wrong."""

RESPONSE_BYTES: Final = "response_cache_bytes"
"""Gauge: bytes of answers that are kept to be given again."""

RESPONSES_DROPPED: Final = "responses_dropped"
"""Counter by reason: answers that are not given again."""

TTFT_SECONDS: Final = "ttft_seconds"
"""Histogram by tier: from arrival to the first token."""

INTER_TOKEN_SECONDS: Final = "inter_token_seconds"
"""Histogram."""

QUEUE_SECONDS: Final = "queue_seconds"
"""Histogram."""

Labels: TypeAlias = Mapping[str, str]

NO_LABELS: Final[Labels] = MappingProxyType({})


class Telemetry(Protocol):
    """Takes figures; never raises for them and never blocks for long. Callable from any thread."""

    def count(self, name: str, amount: int = 1, labels: Labels = NO_LABELS) -> None:
        """Add to a counter; `amount` is never negative."""
        ...

    def gauge(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        """Set a gauge."""
        ...

    def observe(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        """Add a sample to a histogram."""
        ...

    def journal(self, record: Mapping[str, object]) -> None:
        """Write one line about one request; values are numbers, short strings or lists of them.

        A record never holds a user's text.
        """
        ...
