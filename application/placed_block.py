"""A block that lanes bring straight to where its rows stand, some parts at a time.

Its header is read first, and looked at on the engine thread before its rows are asked for. Then
every lane takes runs of parts, reads each straight into place, and there takes its checksum and its
sums.
"""

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final, TypeAlias

from ..domain.errors import ObjectCorrupt, Unavailable
from ..domain.object_header import LINE_BYTES, ObjectHeader, PartRecord
from ..domain.stored_entry import StoredBlock
from ..domain.sums import Sums
from ..ports.gpu_state import RowsPlace
from ..ports.jobs import JobHandle, Jobs, JobStatus
from .object_store import ObjectStore
from .staged_read import Submit

RUN_BYTES: Final = 16 << 20
RUN_BYTES_MIN: Final = 4 << 20
"""What one job brings in: a half of an object, so that all lanes end together, but neither more nor
so little that it costs more to wake the next one."""

Run: TypeAlias = tuple[PartRecord, ...]
"""Parts that follow each other in an object."""


class PlacedBlock:
    """One block on its way. Called on the engine thread; its jobs run on lanes.

    Attributes:
        source: which one.
        header: what the object says of itself, once it has been read.
    """

    def __init__(
        self, source: StoredBlock, payload_bytes: int, store: ObjectStore, jobs: Jobs
    ) -> None:
        """Takes what to read; asks for nothing yet.

        Args:
            payload_bytes: what its parts would take if none were compressed.
        """
        self.source = source
        self.header: ObjectHeader | None = None
        self._likely_header_bytes = max(source.nbytes - payload_bytes, LINE_BYTES)
        self._store = store
        self._jobs = jobs
        self._place: RowsPlace | None = None
        self._runs: deque[Run] = deque()
        self._pending: deque[JobHandle] = deque()
        self._headers: list[ObjectHeader] = []
        self._sums: dict[str, Sums] = {}
        self._given_up = False

    @property
    def placing(self) -> bool:
        """Whether its rows are being brought in, or have been."""
        return self._place is not None

    @property
    def done(self) -> bool:
        """Whether all rows stand in place."""
        return self.placing and not self._runs and not self._pending

    @property
    def sums(self) -> Mapping[str, Sums]:
        """By part, those of the bytes in place; whole once `done`."""
        return self._sums

    def ask(self, submit: Submit) -> None:
        """Have the header read.

        Raises:
            Unavailable: no lane takes a job now.
        """
        self._pending.append(submit(self._read_header))

    def place(self, place: RowsPlace, submit: Submit) -> None:
        """Have the rows brought in, once the header has been found to be the right one."""
        assert self.header is not None
        self._place = place
        self._runs = deque(runs_of(self.header))
        self.go_on(submit)

    def go_on(self, submit: Submit) -> None:
        """Hand out what the lanes had no room for before."""
        place = self._place
        while self._runs and place is not None:
            job = partial(self._bring, self._runs[0], place)
            try:
                self._pending.append(submit(job))
            except Unavailable:
                return
            self._runs.popleft()

    def wait(self) -> bool:
        """Block until all jobs under way have ended; False if there are none."""
        for handle in self._pending:
            self._jobs.wait(handle)
        return bool(self._pending)

    def collect(self) -> tuple[bool, BaseException | None]:
        """Whether jobs have ended since the last call, and what the first that failed raised."""
        ended = False
        while self._pending:
            if self._jobs.poll(self._pending[0]) not in (JobStatus.DONE, JobStatus.FAILED):
                break
            error = self._jobs.result(self._pending.popleft())
            if error is not None:
                return True, error
            ended = True
        if self._headers:
            self.header = self._headers.pop()
        return ended, None

    def give_up(self) -> None:
        """Wait until no lane writes to the rows any more; what was not begun is left out."""
        self._given_up = True
        self._runs.clear()
        while self._pending:
            handle = self._pending.popleft()
            self._jobs.wait(handle)
            self._jobs.result(handle)

    def _read_header(self) -> None:
        if self._given_up:
            return
        name, nbytes = self.source.name, self.source.nbytes
        header = self._store.read_header(name, self._likely_header_bytes)
        if header.object_bytes != nbytes:
            raise ObjectCorrupt(
                f"{name} should be {nbytes} bytes long and says that it has {header.object_bytes}"
            )
        self._headers.append(header)

    def _bring(self, run: Run, place: RowsPlace) -> None:
        if not self._given_up:
            # No other job has these parts: lanes never write the same key.
            self._sums.update(self._store.place(self.source.name, run, place))


def is_raw(header: ObjectHeader) -> bool:
    """Whether the object's parts stand in it as they are."""
    return all(part.codec == "raw" for part in header.parts)


def runs_of(header: ObjectHeader) -> list[Run]:
    """The parts in order, cut into runs of a length between those, or of one longer part."""
    runs: list[list[PartRecord]] = []
    half = sum(part.padded_bytes for part in header.parts) // 2
    bytes_max = max(min(RUN_BYTES, half), RUN_BYTES_MIN)
    held = 0
    for part in header.parts:
        if not runs or held + part.padded_bytes > bytes_max:
            runs.append([])
            held = 0
        runs[-1].append(part)
        held += part.padded_bytes
    return [tuple(run) for run in runs]
