"""A storage whose bytes are counted beside it, whatever it says of itself."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ..domain.stored_entry import ObjectName
from ..ports.block_storage import (
    ALIGNMENT,
    BlockStorage,
    ByteArray,
    ByteRange,
    Space,
    StoredObject,
)
from .violation import violated


@dataclass(slots=True)
class Ledger:
    """What was done to one medium; it outlives the processes that do it.

    Attributes:
        sizes: of the objects that were put and not taken away since.
        in_flight: bytes that a `put` is writing.
        quarantined: bytes of each object moved aside that is still kept, oldest first.
        put: bytes written, ever.
        touched: objects whose bytes the medium has changed or lost.
        moved_aside: name, reason, and whether it was touched, of every object moved aside.
        changes: calls that changed something, ever.
    """

    quarantined_max: int
    sizes: dict[ObjectName, int] = field(default_factory=dict[ObjectName, int])
    in_flight: int = 0
    quarantined: deque[int] = field(default_factory=deque[int])
    put: int = 0
    touched: set[ObjectName] = field(default_factory=set[ObjectName])
    moved_aside: list[tuple[ObjectName, str, bool]] = field(
        default_factory=list[tuple[ObjectName, str, bool]]
    )
    changes: int = 0

    @property
    def used(self) -> int:
        """Bytes that stand on the medium."""
        return sum(self.sizes.values()) + self.in_flight + sum(self.quarantined)

    def found(self, objects: Iterator[StoredObject]) -> None:
        """What is there after a crash, or after somebody went behind the storage's back."""
        self.in_flight = 0
        self.sizes = {one.name: one.nbytes for one in objects}
        self.changes += 1


class WatchedStorage:
    """Implements `ports.block_storage.BlockStorage` over another one, and keeps its ledger."""

    def __init__(
        self, inner: BlockStorage, ledger: Ledger, stands: Callable[[ObjectName], bool]
    ) -> None:
        """Takes the storage that does the work.

        Args:
            stands: whether an object is under its name on the medium, whoever says what of it.
        """
        self._inner = inner
        self._ledger = ledger
        self._stands = stands

    def buffer(self, nbytes: int) -> ByteArray:
        return self._inner.buffer(nbytes)

    def put(self, name: ObjectName, parts: Sequence[ByteArray]) -> int:
        ledger = self._ledger
        ledger.in_flight = 0 if name in ledger.sizes else sum(map(len, parts))
        try:
            written = self._inner.put(name, parts)
        finally:
            nbytes, ledger.in_flight = ledger.in_flight, 0
        ledger.changes += 1
        ledger.put += written
        if written:
            ledger.sizes[name] = nbytes
            ledger.touched.discard(name)
        return written

    def sync(self) -> None:
        self._inner.sync()

    def read_into(
        self, name: ObjectName, ranges: Sequence[ByteRange], buffers: Sequence[ByteArray]
    ) -> None:
        self._inner.read_into(name, ranges, buffers)

    def header(self, name: ObjectName, nbytes: int) -> bytes:
        return self._inner.header(name, nbytes)

    def delete(self, name: ObjectName) -> int:
        freed = self._inner.delete(name)
        self._ledger.sizes.pop(name, None)
        self._ledger.changes += 1
        return freed

    def quarantine(self, name: ObjectName, reason: str) -> None:
        self._inner.quarantine(name, reason)
        if self._stands(name):
            violated("damage", f"moved aside, and the next write will find it: {name}: {reason}")
        ledger = self._ledger
        ledger.changes += 1
        # Whoever finds the same damage second moves nothing.
        touched = name in ledger.touched or name not in ledger.sizes
        ledger.moved_aside.append((name, reason, touched))
        ledger.touched.discard(name)
        nbytes = ledger.sizes.pop(name, None)
        if nbytes is not None:
            ledger.quarantined.append(-(-nbytes // ALIGNMENT) * ALIGNMENT)
        while len(ledger.quarantined) > ledger.quarantined_max:
            ledger.quarantined.popleft()

    def names(self, prefix: str = "") -> Iterator[StoredObject]:
        return self._inner.names(prefix)

    def all_names(self) -> Iterator[ObjectName]:
        return self._inner.all_names()

    def space(self) -> Space:
        return self._inner.space()

    def close(self) -> None:
        self._inner.close()
