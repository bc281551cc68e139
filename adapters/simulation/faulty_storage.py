"""A storage with the faults of real ones, at the rates and in the order that a test asks for."""

import enum
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from ...domain.errors import ObjectCorrupt, StorageFull, StorageReadOnly, StorageUnavailable
from ...domain.stored_entry import ObjectName
from ...ports.block_storage import (
    ALIGNMENT,
    BlockStorage,
    ByteArray,
    ByteRange,
    Space,
    StoredObject,
)


class Fault(enum.Enum):
    """What may happen to a call."""

    FULL = "full"
    """`put` finds no room (ENOSPC)."""

    READ_ONLY = "read-only"
    """Whatever writes is refused (EROFS)."""

    FAILED_WRITE = "failed write"
    """Whatever writes fails (EIO); nothing of it is to be seen."""

    TORN_WRITE = "torn write"
    """`put` returns, and the object's end is zeros: a drive that lied about its cache."""

    FAILED_READ = "failed read"
    """Whatever reads fails (EIO)."""

    SHORT_READ = "short read"
    """`read_into` fills some of the buffers and finds the object too short."""

    BIT_FLIP = "bit flip"
    """One bit of what was read is another."""

    SLOW = "slow"
    """The call takes long, and does what it should."""


SLOW_S: Final = 2.0


class FaultyStorage:
    """Implements `ports.block_storage.BlockStorage` over another one.

    Each call draws for each fault that may happen to it, in the order of `Fault`, from one seeded
    source: the same calls in the same order meet the same faults. Faults that last (a disk that is
    full until somebody deletes) are rates of 1 that a test sets and takes back.

    It models single faults of calls. It does not model crashes
    (`adapters.memory.CrashableStorage` does), objects that decay while nobody reads them, and
    calls that overlap: with several threads the order of draws is the order of calls.
    """

    def __init__(
        self,
        inner: BlockStorage,
        *,
        seed: int,
        rates: Mapping[Fault, float] | None = None,
        delay: Callable[[float], None] = lambda _: None,
    ):
        """No call has been made yet.

        Args:
            inner: does the work.
            seed: decides which calls meet a fault.
            rates: how likely each fault is per call it may happen to; 0 for those left out.
            delay: lets a number of seconds pass on whatever clock there is.
        """
        self._inner = inner
        self._random = random.Random(seed)  # noqa: S311 - an order, not a secret
        self.rates: Mapping[Fault, float] = dict(rates or {})
        self._delay = delay
        self.happened: Counter[Fault] = Counter()

    def buffer(self, nbytes: int) -> ByteArray:
        return self._inner.buffer(nbytes)

    def put(self, name: ObjectName, parts: Sequence[ByteArray]) -> int:
        self._slow()
        if self._draws(Fault.FULL):
            raise StorageFull(f"no space is left for {name} (simulated)")
        self._fail_write(name)
        if self._draws(Fault.TORN_WRITE):
            return self._inner.put(name, self._torn(parts))
        return self._inner.put(name, parts)

    def sync(self) -> None:
        self._slow()
        self._fail_write("what was put")
        self._inner.sync()

    def read_into(
        self, name: ObjectName, ranges: Sequence[ByteRange], buffers: Sequence[ByteArray]
    ) -> None:
        self._slow()
        self._fail_read(name)
        if self._draws(Fault.SHORT_READ):
            count = self._random.randrange(len(ranges)) if ranges else 0
            self._inner.read_into(name, ranges[:count], buffers[:count])
            raise ObjectCorrupt(f"{name} ends before the range {count} (simulated)")
        self._inner.read_into(name, ranges, buffers)
        read = [buffer for buffer in buffers if len(buffer)]
        if read and self._draws(Fault.BIT_FLIP):
            buffer = self._random.choice(read)
            buffer[self._random.randrange(len(buffer))] ^= 1 << self._random.randrange(8)

    def header(self, name: ObjectName, nbytes: int) -> bytes:
        self._slow()
        self._fail_read(name)
        data = self._inner.header(name, nbytes)
        if data and self._draws(Fault.BIT_FLIP):
            flipped = bytearray(data)
            flipped[self._random.randrange(len(flipped))] ^= 1 << self._random.randrange(8)
            return bytes(flipped)
        return data

    def delete(self, name: ObjectName) -> int:
        self._slow()
        self._fail_write(name)
        return self._inner.delete(name)

    def quarantine(self, name: ObjectName, reason: str) -> None:
        self._slow()
        self._fail_write(name)
        self._inner.quarantine(name, reason)

    def names(self, prefix: str = "") -> Iterator[StoredObject]:
        self._slow()
        self._fail_read(f"names of {prefix}")
        return self._inner.names(prefix)

    def all_names(self) -> Iterator[ObjectName]:
        self._slow()
        self._fail_read("all names")
        return self._inner.all_names()

    def space(self) -> Space:
        return self._inner.space()

    def close(self) -> None:
        self._inner.close()

    def _draws(self, fault: Fault) -> bool:
        rate = self.rates.get(fault, 0.0)
        if rate <= 0.0 or self._random.random() >= rate:
            return False
        self.happened[fault] += 1
        return True

    def _slow(self) -> None:
        if self._draws(Fault.SLOW):
            self._delay(SLOW_S)

    def _fail_write(self, what: str) -> None:
        if self._draws(Fault.READ_ONLY):
            raise StorageReadOnly(f"the file system of {what} is read-only (simulated)")
        if self._draws(Fault.FAILED_WRITE):
            raise StorageUnavailable(f"writing {what} failed (simulated)")

    def _fail_read(self, name: str) -> None:
        if self._draws(Fault.FAILED_READ):
            raise StorageUnavailable(f"reading {name} failed (simulated)")

    def _torn(self, parts: Sequence[ByteArray]) -> list[ByteArray]:
        """The parts with zeros from a page on; the caller's are not modified."""
        pages = sum(map(len, parts)) // ALIGNMENT
        left = ALIGNMENT * self._random.randrange(pages)
        torn: list[ByteArray] = []
        for part in parts:
            copy = part.copy()
            copy[min(left, len(copy)) :] = 0
            left = max(left - len(copy), 0)
            torn.append(copy)
        return torn
