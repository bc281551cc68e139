"""Stop strings: found across token borders, and never shown in part."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passed:
    """What a push let through.

    Attributes:
        text: safe to show: no stop string can begin in it.
        stop: the stop string that was found, or None.
    """

    text: str
    stop: str | None = None


class StopMatcher:
    """Holds back the end of a text for as long as a stop string may begin there."""

    def __init__(self, stops: Sequence[str]):
        """Takes the stop strings; none is empty."""
        if "" in stops:
            raise ValueError("an empty stop string would stop everything")
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> Passed:
        """Take the next piece of text; nothing may be pushed after a stop was found."""
        if not self._stops:
            return Passed(text)
        self._held += text
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            # The first to be complete, whatever the pieces: by where it ends, not where it begins.
            at, stop = min(found, key=lambda pair: (pair[0] + len(pair[1]), pair[0]))
            shown, self._held = self._held[:at], ""
            return Passed(shown, stop)
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return Passed(shown)

    def flush(self) -> str:
        """What was held back, once no more text will come."""
        shown, self._held = self._held, ""
        return shown


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that is a proper beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
