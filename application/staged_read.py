"""An object that a lane reads as a whole into a staging buffer, for the engine thread to import."""

from collections.abc import Callable
from typing import TypeAlias

from ..domain.errors import ObjectCorrupt, Unavailable
from ..domain.stored_entry import StoredAnchor, StoredBlock
from ..ports.block_storage import ByteArray
from ..ports.jobs import JobHandle, Jobs, JobStatus
from .object_store import ObjectStore, StoredState
from .staging import StagingPool

Submit: TypeAlias = Callable[[Callable[[], None]], JobHandle]
"""Gives a job to the next lane; raises Unavailable where its queue is full."""


class StagedRead:
    """One read under way. Called on the engine thread.

    Attributes:
        source: what is read.
    """

    def __init__(
        self,
        source: StoredBlock | StoredAnchor,
        buffer: ByteArray,
        pool: StagingPool,
        jobs: Jobs,
        found: list[StoredState],
        handle: JobHandle,
    ) -> None:
        """See `begun`."""
        self.source = source
        self._buffer = buffer
        self._pool = pool
        self._jobs = jobs
        self._found = found
        self._handle = handle

    @classmethod
    def begun(
        cls,
        source: StoredBlock | StoredAnchor,
        store: ObjectStore,
        pool: StagingPool,
        jobs: Jobs,
        submit: Submit,
    ) -> "StagedRead | None":
        """Have an object read; None if there is no buffer or no lane for it now.

        Raises:
            ObjectCorrupt: it is longer than any object that was written here.
        """
        buffer = pool.acquire()
        if buffer is None:
            return None
        if source.nbytes > len(buffer):
            pool.release(buffer)
            raise ObjectCorrupt(f"{source.nbytes} bytes long")
        found: list[StoredState] = []
        try:
            # A buffer is as long as the largest object of the layout before compression.
            handle = submit(
                lambda: found.append(
                    store.read(source.name, source.nbytes, buffer, raw_bytes_max=len(buffer))
                )
            )
        except Unavailable:
            pool.release(buffer)
            return None
        return cls(source, buffer, pool, jobs, found, handle)

    @property
    def ended(self) -> bool:
        """Whether it was read, or has failed."""
        return self._jobs.poll(self._handle) in (JobStatus.DONE, JobStatus.FAILED)

    def wait(self) -> None:
        """Block until it has ended."""
        self._jobs.wait(self._handle)

    def error(self) -> BaseException | None:
        """What the read failed with, once it has `ended`; to be asked once."""
        return self._jobs.result(self._handle)

    def state(self) -> StoredState:
        """What was read; its parts stand in the buffer until `release`."""
        return self._found[0]

    def release(self) -> None:
        """Give the buffer back."""
        self._pool.release(self._buffer)

    def give_up(self) -> None:
        """Wait for a read that nobody needs, so that its buffer is free for others."""
        self.wait()
        self.error()
        self.release()
