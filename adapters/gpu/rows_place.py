"""Rows in memory of the host, where lanes bring them in by themselves."""

from collections.abc import Mapping

from ...domain.sums import Sums
from .kernels.sums import host_sums
from .part_bytes import Bytes


class HostRows:
    """Implements `ports.gpu_state.RowsPlace` over the very bytes that forwards read."""

    def __init__(self, views: Mapping[str, Bytes]):
        """Takes each view's bytes of the span, where they stand."""
        self._views = views

    def memory(self, view: str) -> Bytes:
        return self._views[view]

    def sums(self, view: str, start: int, end: int) -> Sums:
        assert start % 8 == 0, f"bytes of {view} from {start} on, inside a word"
        return host_sums(self._views[view][start:end], start // 8)
