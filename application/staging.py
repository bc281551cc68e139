"""A bounded set of buffers between an engine and a medium."""

from collections.abc import Callable

from ..ports.block_storage import ByteArray


class StagingPool:
    """Buffers of one size, made when they are first needed and used again for ever.

    Called on the engine thread only; whoever has acquired a buffer may hand it to a lane.
    """

    def __init__(self, allocate: Callable[[int], ByteArray], nbytes: int, count_max: int) -> None:
        """Makes nothing yet.

        Args:
            allocate: of aligned memory, as the storage port gives it.
            count_max: buffers that may exist at once.
        """
        self._allocate = allocate
        self._nbytes = nbytes
        self._count_max = count_max
        self._free: list[ByteArray] = []
        self._made = 0

    @property
    def nbytes(self) -> int:
        """The size of each buffer."""
        return self._nbytes

    @property
    def lent(self) -> int:
        """How many buffers are out."""
        return self._made - len(self._free)

    @property
    def left(self) -> int:
        """How many buffers can still be acquired."""
        return self._count_max - self.lent

    def make_all(self) -> None:
        """Make every buffer now, with its memory behind it, and not with the work that needs it."""
        while self._made < self._count_max:
            buffer = self._allocate(self._nbytes)
            buffer[:] = 0  # pages that were only promised are taken when they are first written
            self._made += 1
            self._free.append(buffer)

    def acquire(self) -> ByteArray | None:
        """A buffer, its content undefined; None when all are out."""
        if self._free:
            return self._free.pop()
        if self._made == self._count_max:
            return None
        self._made += 1
        return self._allocate(self._nbytes)

    def release(self, buffer: ByteArray) -> None:
        """Take a buffer back."""
        assert len(buffer) == self._nbytes
        assert len(self._free) < self._made
        self._free.append(buffer)
