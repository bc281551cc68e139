"""Errors of a medium or a catalog that cost what was attempted, and nothing more."""

from collections.abc import Callable

from ..domain.errors import StorageError
from ..ports import telemetry as names
from ..ports.telemetry import Telemetry


class Tolerance:
    """Does things that may fail for reasons outside, and counts those that did."""

    def __init__(self, telemetry: Telemetry) -> None:
        """Takes what counts them."""
        self._telemetry = telemetry

    def __call__(self, act: Callable[[], object]) -> bool:
        """Do something with the medium; whether it worked. Its result is dropped."""
        try:
            act()
        except StorageError:
            self._telemetry.count(names.STORAGE_ERRORS)
            return False
        return True
