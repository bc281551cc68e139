"""The objects of a stored state on their way in, in order: which are asked for, and how.

Blocks go straight to where their rows stand, if lanes may bring them there; anchors, and blocks
that are compressed, are read as a whole into staging buffers.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..domain.errors import ObjectCorrupt, ObjectMissing, StorageError, Unavailable
from ..domain.fingerprint import Fingerprint
from ..domain.layout import Layout
from ..domain.object_header import ObjectHeader
from ..domain.stored_entry import ObjectName, StoredAnchor, StoredBlock
from ..ports.gpu_state import RowsPlace
from ..ports.jobs import JobHandle, Jobs
from .object_parts import payload_bytes, row_parts
from .object_store import ObjectStore
from .placed_block import PlacedBlock, is_raw
from .staged_read import StagedRead
from .staging import StagingPool

STAGED_MODEST: Final = 2
"""Staging buffers that a read holds for which nobody waits yet: one is filled while the other is
imported, and all others are left to requests and to writes."""

BLOCKS_AHEAD: Final = 8
"""Blocks whose rows lanes may be bringing in at one time: enough that none of them ever waits for
the engine thread, which has forwards of others to run between two steps."""


class RestoreFailed(Exception):
    """An object could not be used.

    Attributes:
        damaged: whether the object is to blame, and not the medium.
    """

    def __init__(self, name: ObjectName, error: Exception) -> None:
        super().__init__(f"{error} ({name})")  # the reason first: names are long, and logs are cut
        self.name = name
        self.damaged = isinstance(error, (ObjectCorrupt, ObjectMissing))


@dataclass(frozen=True, slots=True)
class ReadLanes:
    """What restores share.

    Attributes:
        lanes: two or more. The first is for what is short and waited for while lanes bring rows in
            by themselves: headers, and the anchor; all others take everything else in turn.
        fingerprints: whose state may be used.
    """

    store: ObjectStore
    jobs: Jobs
    pool: StagingPool
    lanes: Sequence[str]
    fingerprints: frozenset[Fingerprint]


class ReadQueue:
    """The reads of one restore. Called on the engine thread.

    Attributes:
        reads: what has been asked for and not been taken, oldest first.
        modest: nobody waits for it yet: it holds no more than `STAGED_MODEST` buffers.
    """

    def __init__(
        self,
        sources: Sequence[StoredBlock | StoredAnchor],
        begins: Mapping[int, int],
        lanes: ReadLanes,
        layout: Layout,
        *,
        places: bool,
        modest: bool = False,
    ) -> None:
        """Takes what to read, in the order in which it is to be taken; reads nothing yet.

        Args:
            begins: the first row of each block, by its end.
            places: whether lanes may bring in rows by themselves.
            modest: see there.
        """
        self._left = deque(sources)
        self._begins = begins
        self._lanes = lanes
        self._layout = layout
        self._places = places
        self.modest = modest
        self._turn = 0
        self.reads: deque[StagedRead | PlacedBlock] = deque()

    @property
    def empty(self) -> bool:
        """Whether everything has been taken."""
        return not self._left and not self.reads

    def read_ahead(self) -> None:
        """Ask for as much as there is room for.

        Raises:
            RestoreFailed: an object cannot be one that was written here.
        """
        while self._left:
            source = self._left[0]
            if self._places and isinstance(source, StoredBlock):
                read = self._asked(source)
            elif self._spares_a_buffer():
                read = self._staged(source)
            else:
                read = None
            if read is None:
                return
            self.reads.append(read)
            self._left.popleft()

    def admit(self, place_of: Callable[[StoredBlock, ObjectHeader], RowsPlace]) -> None:
        """Have blocks brought in whose headers are there, as far as no anchor is between.

        Args:
            place_of: checks a header, and says where the rows belong; called in their order.

        Raises:
            RestoreFailed: a header could not be read; and whatever `place_of` raises.
        """
        follows = True  # all below is being brought in
        room = True  # whoever comes first gets a buffer first, or all would wait for each other
        for index, read in enumerate(tuple(self.reads)):
            if isinstance(read, StagedRead):
                follows = False
                continue
            if not read.placing:
                collect(read)
                if read.header is None:
                    follows = False
                    continue
                if not is_raw(read.header):
                    self._places = follows = False  # nor are those that come, as a rule
                    staged = self._staged(read.source) if room else None
                    room = staged is not None
                    if staged is not None:
                        self.reads[index] = staged
                    continue
                if not follows:
                    continue
                read.place(place_of(read.source, read.header), self._submit)
            read.go_on(self._submit)

    def wait(self) -> bool:
        """Wait for what the next step needs; False if nothing of it is under way.

        Headers come before the rows of the oldest block, or lanes would run dry; they take little.
        """
        for read in self.reads:
            if isinstance(read, PlacedBlock) and not read.placing and read.wait():
                return True
        oldest = self.reads[0]
        if isinstance(oldest, StagedRead):
            oldest.wait()
            return True
        return oldest.wait()

    def take_early(self, anchor: StoredAnchor) -> StagedRead | None:
        """The anchor, if it has been read and all rows below it are being brought in."""
        last = self.reads[-1]
        if not isinstance(last, StagedRead) or last.source is not anchor or not last.ended:
            return None
        for below in self.reads:
            if below is not last and not (isinstance(below, PlacedBlock) and below.placing):
                return None
        self.reads.pop()
        return last

    def give_up(self) -> None:
        """Stop; on return no lane brings in anything, and all buffers have come back."""
        self._left.clear()
        while self.reads:
            self.reads.popleft().give_up()

    def _asked(self, block: StoredBlock) -> PlacedBlock | None:
        if len(self.reads) >= BLOCKS_AHEAD:
            return None
        rows = block.end - self._begins[block.end]
        raw_bytes = payload_bytes(row_parts(self._layout.views, rows))
        read = PlacedBlock(block, raw_bytes, self._lanes.store, self._lanes.jobs)
        try:
            # Not behind the rows of blocks before it: those take as long as all that is ahead.
            read.ask(self._submit_short)
        except Unavailable:
            return None
        return read

    def _spares_a_buffer(self) -> bool:
        """Whether one is left for a block that may turn out to be compressed, and comes first."""
        admitted = all(isinstance(read, StagedRead) or read.placing for read in self.reads)
        return admitted or (not self.modest and self._lanes.pool.left > 1)

    def _staged(self, source: StoredBlock | StoredAnchor) -> StagedRead | None:
        lanes = self._lanes
        held = sum(isinstance(read, StagedRead) for read in self.reads)
        if self.modest and held >= STAGED_MODEST:
            return None
        submit = self._submit_short if self._places else self._submit
        try:
            return StagedRead.begun(source, lanes.store, lanes.pool, lanes.jobs, submit)
        except ObjectCorrupt as error:
            raise RestoreFailed(source.name, error) from error

    def _submit(self, job: Callable[[], None]) -> JobHandle:
        """Give a job to the next lane but for the first."""
        lanes = self._lanes.lanes[1:]
        self._turn += 1
        return self._lanes.jobs.submit(lanes[self._turn % len(lanes)], job)

    def _submit_short(self, job: Callable[[], None]) -> JobHandle:
        return self._lanes.jobs.submit(self._lanes.lanes[0], job)


def collect(read: PlacedBlock) -> bool:
    """Whether jobs of the block have ended since the last call.

    Raises:
        RestoreFailed: one of them has failed.
    """
    ended, error = read.collect()
    raise_failed(read.source.name, error)
    return ended


def raise_failed(name: ObjectName, error: BaseException | None) -> None:
    """What a failed read means: storage's errors are part of life, all others are faults."""
    if isinstance(error, StorageError):
        raise RestoreFailed(name, error)
    if error is not None:
        raise error
