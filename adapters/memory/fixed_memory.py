"""A pool of memory whose figures a test sets."""

from ...ports.memory import MemoryUse


class FixedMemory:
    """Implements `ports.memory.Memory`.

    It models an allocator that keeps freed blocks until it is asked to give them back. It does
    not model other processes: what is not reserved is available, unless `taken` says otherwise.

    Attributes:
        allocated: bytes that live arrays hold; set it as the test needs.
        taken: bytes that others hold.
    """

    def __init__(self, *, total: int = 1 << 34, allocated: int = 0, taken: int = 0):
        self.total = total
        self.taken = taken
        self._allocated = allocated
        self._most = allocated
        self._noted = allocated
        self._reserved = allocated
        self._highest = allocated

    @property
    def allocated(self) -> int:
        return self._allocated

    @allocated.setter
    def allocated(self, nbytes: int) -> None:
        self._allocated = nbytes
        self._most = max(self._most, nbytes)

    def use(self) -> MemoryUse:
        self._reserved = max(self._reserved, self.allocated)
        self._highest = max(self._highest, self._reserved)
        return MemoryUse(
            allocated=self.allocated,
            reserved=self._reserved,
            available=max(self.total - self._reserved - self.taken, 0),
            total=self.total,
            highest=self._highest,
        )

    def give_back(self) -> int:
        self._reserved = max(self._reserved, self.allocated)
        freed, self._reserved = self._reserved - self.allocated, self.allocated
        return freed

    def rose(self) -> int:
        rose, self._most, self._noted = self._most - self._noted, self._allocated, self._allocated
        return rose
