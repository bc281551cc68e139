"""Who leaves memory next, while some leave already."""

import heapq
from collections.abc import Callable, Iterable
from typing import TypeAlias

from .ram_entry import RamEntry

Order: TypeAlias = tuple[bool, int, bool, float, float]
"""The least goes first."""


class Leaving:
    """Entries in the order in which they leave.

    One entry's going may put another one off: whoever calls for the next is given it by what holds
    then. What may only be *advanced* by it is not seen: begin again where that can be.
    """

    def __init__(self, entries: Iterable[RamEntry], order: Callable[[RamEntry], Order]) -> None:
        """Takes those that may leave; of equal ones the first goes first."""
        self._order = order
        self._heap = [(order(entry), number, entry) for number, entry in enumerate(entries)]
        heapq.heapify(self._heap)

    def next(self) -> RamEntry | None:
        """The next one, which is given up now; None if nobody is left."""
        while self._heap:
            noted, number, entry = heapq.heappop(self._heap)
            now = self._order(entry)
            if now <= noted:
                return entry
            heapq.heappush(self._heap, (now, number, entry))
        return None
