"""The objects of one entry on their way to the medium, and the sync behind them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..domain.errors import ObjectCorrupt, RowsChanged, StorageError, Unavailable
from ..domain.object_header import ObjectHeader
from ..domain.stored_entry import ObjectName
from ..ports.block_storage import ByteArray
from ..ports.jobs import JobHandle, Jobs, JobStatus
from .object_store import ObjectStore, Written
from .staging import StagingPool

WriteFailure: TypeAlias = StorageError | Unavailable | RowsChanged
"""Why an entry cannot be committed."""


@dataclass(frozen=True, slots=True)
class Medium:
    """What entry writes share.

    Attributes:
        lanes: where objects are encoded and written, in turn: each write waits for the drive
            twice, and two at a time keep it busy.
        pin: keeps an object from being deleted until it is unpinned; the bytes of one that is
            stored and needed by some entry, else None.
    """

    store: ObjectStore
    jobs: Jobs
    pool: StagingPool
    lanes: Sequence[str]
    pin: Callable[[ObjectName], int | None]


@dataclass(slots=True)
class _Pending:
    """An object that is being written."""

    handle: JobHandle
    name: ObjectName
    buffer: ByteArray
    written: list[Written] = field(default_factory=list[Written])


class OutgoingObjects:
    """All methods are called on the engine thread, and none of them waits but `wait`.

    Attributes:
        names: that were pinned.
        sizes: of the objects that are stored, by name.
        bytes_written: to the medium.
        damaged: objects that stood under a name to be written, and were no such thing.
    """

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self._pending: list[_Pending] = []
        self._submitted = 0
        self._synced = 0  # of those
        self._syncing: tuple[JobHandle, int] | None = None
        self.names: list[ObjectName] = []
        self.sizes: dict[ObjectName, int] = {}
        self.bytes_written = 0
        self.damaged: list[ObjectName] = []

    @property
    def writing(self) -> bool:
        """Whether an object is being written, and so has a buffer of the pool."""
        return bool(self._pending)

    @property
    def under_way(self) -> bool:
        """Whether a lane has something to do yet."""
        return bool(self._pending) or self._syncing is not None

    @property
    def durable(self) -> bool:
        """Whether all that was written is behind a sync, once nothing is under way."""
        return self._synced == self._submitted

    def pin(self, name: ObjectName) -> bool:
        """Whether the object is stored or on its way already."""
        self.names.append(name)
        nbytes = self._medium.pin(name)
        if nbytes is not None:
            self.sizes[name] = nbytes
            return True
        return name in self.sizes or any(pending.name == name for pending in self._pending)

    def write(
        self, draft: ObjectHeader, name: ObjectName, buffer: ByteArray, checksums: Mapping[str, int]
    ) -> Unavailable | None:
        """Have an object written, as `ObjectStore.write`; why not, if that cannot be.

        Args:
            buffer: of the pool, which gets it back.
        """
        written: list[Written] = []
        store = self._medium.store
        handle = self._submit(lambda: written.append(store.write(draft, buffer, checksums)))
        if isinstance(handle, Unavailable):
            self._medium.pool.release(buffer)
            return handle
        self._submitted += 1
        self._pending.append(_Pending(handle, name, buffer, written))
        return None

    def sync(self) -> Unavailable | None:
        """Make durable what has been written; why not, if that cannot be.

        Once for all objects of an entry: each sync of a directory commits the file system's journal
        and empties the drive's cache, and everybody who writes waits for that.
        """
        assert not self.under_way, "what is still being written would be missed"
        handle = self._submit(self._medium.store.sync)
        if isinstance(handle, Unavailable):
            return handle
        self._syncing = handle, self._submitted
        return None

    def wait(self, timeout_s: float | None) -> bool:
        """Block until the oldest object under way is written, or until all are durable.

        Returns:
            False if it took longer than `timeout_s`.
        """
        if self._pending:
            awaited = self._pending[0].handle
        else:
            assert self._syncing is not None, "nothing is under way"
            awaited, _ = self._syncing
        return self._medium.jobs.wait(awaited, timeout_s)

    def collect(self) -> StorageError | None:
        """Take the results of what lanes have done; the first failure among them.

        Raises:
            BaseException: what no medium raises, once; the object or the sync counts as failed.
        """
        failures: list[StorageError] = []
        if self._syncing is not None and self._has_ended(self._syncing[0]):
            handle, covered = self._syncing
            self._syncing = None
            if self._take(handle, failures) is None:
                self._synced = covered
        for pending in [one for one in self._pending if self._has_ended(one.handle)]:
            self._pending.remove(pending)
            self._medium.pool.release(pending.buffer)
            error = self._take(pending.handle, failures)
            if error is None:
                self.sizes[pending.name] = pending.written[0].nbytes
                self.bytes_written += pending.written[0].written
            elif isinstance(error, ObjectCorrupt):
                self.damaged.append(pending.name)
        return failures[0] if failures else None

    def _submit(self, work: Callable[[], None]) -> JobHandle | Unavailable:
        lanes = self._medium.lanes
        try:
            return self._medium.jobs.submit(lanes[len(self.names) % len(lanes)], work)
        except Unavailable as full:
            return full

    def _has_ended(self, handle: JobHandle) -> bool:
        return self._medium.jobs.poll(handle) in (JobStatus.DONE, JobStatus.FAILED)

    def _take(self, handle: JobHandle, failures: list[StorageError]) -> StorageError | None:
        """What was raised there."""
        error = self._medium.jobs.result(handle)
        if isinstance(error, StorageError):
            failures.append(error)
        elif error is not None:
            raise error
        return error
