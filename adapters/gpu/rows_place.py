"""Rows of a slot in the memory of the CPU, where lanes bring them in by themselves."""

from collections.abc import Mapping

import numpy as np

from ...domain.errors import StateError
from ...domain.sums import Sums
from .kernels.sums import host_sums
from .part_bytes import Bytes


class HostRows:
    """Implements `ports.gpu_state.RowsPlace` over the very bytes that forwards read."""

    def __init__(self, views: Mapping[str, Bytes]):
        """Takes each view's bytes of the span, where they stand."""
        self._views = views

    def write(self, view: str, start: int, data: Bytes) -> Sums:
        place = self._views[view]
        if start % 8 or not 0 <= start <= start + len(data) <= len(place):
            raise StateError(
                f"{len(data)} bytes at {start} do not fit the {len(place)} of {view} by whole words"
            )
        into = place[start : start + len(data)]
        np.copyto(into, data)
        return host_sums(into, start // 8)
