"""The memory that caches share with everything else."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes at one moment.

    Attributes:
        allocated: what live tensors or arrays of this process hold.
        reserved: what the process has taken from the system; at least `allocated`.
        available: what could still be taken without hurting others. Page cache that this process
            has mapped does not count: it is needed, whatever the system says.
        total: what there is.
        highest: the most that `reserved` was since the first call of `rose`, or ever, as far as
            the system says.
    """

    allocated: int
    reserved: int
    available: int
    total: int
    highest: int


class Memory(Protocol):
    """One pool of memory: a device's, or the host's."""

    def use(self) -> MemoryUse:
        """The current figures; takes microseconds to a few milliseconds."""
        ...

    def give_back(self) -> int:
        """Return free blocks the allocator keeps to the system; the bytes returned."""
        ...

    def rose(self) -> int:
        """How far the most that was allocated since the last call stands above what was then.

        That is what something took while it ran, whatever it left. 0 at the first call, and where
        the system does not say. Takes microseconds.
        """
        ...
