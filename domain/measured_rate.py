"""How fast a medium moves bytes: a moving median, with a prior before the first measurement."""

from collections import deque
from statistics import median
from typing import Final

SAMPLES: Final = 9
"""Recent measurements the median is taken of: robust against one that met a busy drive."""

BYTES_PER_S_PRIOR: Final = 1e9
"""Assumed before the first measurement: a slow NVMe drive, or one whose write cache is full."""

OBJECT_S_PRIOR: Final = 5e-4
"""What an object costs whatever its length: open, header, check, install."""


class MeasuredRate:
    """Seconds that moving objects will take, by what it took so far.

    A transfer takes a fixed time for each object, and its bytes at the medium's rate. One that is
    mostly bytes tells the rate, and one that is mostly fixed time tells that: a restore of small
    objects says nothing about how fast a large one will be.
    """

    def __init__(
        self, bytes_per_s_prior: float = BYTES_PER_S_PRIOR, object_s_prior: float = OBJECT_S_PRIOR
    ) -> None:
        """Takes what is assumed before the first measurement."""
        assert bytes_per_s_prior > 0, f"{bytes_per_s_prior} bytes a second move nothing"
        assert object_s_prior >= 0, f"an object that costs {object_s_prior} s"
        self._bytes_per_s_prior = bytes_per_s_prior
        self._object_s_prior = object_s_prior
        self._rates: deque[float] = deque(maxlen=SAMPLES)
        self._object_costs: deque[float] = deque(maxlen=SAMPLES)

    @property
    def bytes_per_s(self) -> float:
        """The rate of bytes, beside the fixed time of objects."""
        return median(self._rates) if self._rates else self._bytes_per_s_prior

    @property
    def object_s(self) -> float:
        """The fixed time of an object."""
        return median(self._object_costs) if self._object_costs else self._object_s_prior

    def observe(self, nbytes: int, objects: int, seconds: float) -> None:
        """Record a transfer. Ignores empty measurements."""
        if nbytes <= 0 or objects < 0 or seconds <= 0:
            return
        fixed_s = objects * self.object_s
        if fixed_s <= seconds / 2:
            self._rates.append(nbytes / (seconds - fixed_s))
        else:
            self._object_costs.append(max(seconds - nbytes / self.bytes_per_s, 0.0) / objects)

    def doubt(self) -> None:
        """Forget the slowest measurement.

        For when a transfer was not made because of what was measured: else one slow moment would
        keep anybody from ever measuring again.
        """
        if self._rates:
            self._rates.remove(min(self._rates))
        if self._object_costs:
            self._object_costs.remove(max(self._object_costs))

    def seconds(self, nbytes: int, objects: int) -> float:
        """How long moving so many bytes in so many objects is expected to take."""
        return max(objects, 0) * self.object_s + max(nbytes, 0) / self.bytes_per_s
