"""Bringing a stored state into a slot: read ahead, verify, import, verify where it stands.

Objects are read by lanes into a bounded set of staging buffers while the engine thread imports the
ones before them. Nothing of it reaches a forward until all of it has been verified: checksums of
what was read, the tokens in the headers, and the content sums of the bytes as they stand in the
engine.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import numpy as np

from ..domain.disk_index import Continuation
from ..domain.errors import ObjectCorrupt, ObjectMissing, StorageError, Unavailable
from ..domain.fingerprint import Fingerprint
from ..domain.grid import Span
from ..domain.layout import Layout
from ..domain.namespace import Namespace
from ..domain.object_header import ObjectHeader, ObjectKind
from ..domain.prefix_key import extend, root_key
from ..domain.stored_entry import ObjectName, StoredAnchor, StoredBlock
from ..domain.sums import Sums
from ..domain.tokens import TokenIds, token_ids
from ..ports.block_storage import ByteArray
from ..ports.gpu_state import SlotState
from ..ports.jobs import JobHandle, Jobs, JobStatus
from .entry_write import Progress
from .object_store import EMPTY_PART, ObjectStore, StoredState
from .resident_prefix import AdoptedState, ResidentPrefix
from .staging import StagingPool


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
        lanes: reads go to them in turn.
        fingerprints: whose state may be used.
    """

    store: ObjectStore
    jobs: Jobs
    pool: StagingPool
    lanes: Sequence[str]
    fingerprints: frozenset[Fingerprint]


@dataclass(slots=True)
class _Read:
    handle: JobHandle
    source: StoredBlock | StoredAnchor
    buffer: ByteArray
    result: list[StoredState] = field(default_factory=list[StoredState])


@dataclass(frozen=True, slots=True)
class Expected:
    """The tokens a restored state must be of.

    Attributes:
        shared: how many of them stand in the slot already.
    """

    ids: TokenIds
    key_ids: TokenIds
    namespace: Namespace
    shared: int


class Restore:
    """One stored state on its way into a slot. All methods are called on the engine thread."""

    def __init__(
        self,
        continuation: Continuation,
        state: SlotState,
        resident: ResidentPrefix,
        lanes: ReadLanes,
        layout: Layout,
        expected: Expected | None,
        also: Sequence[StoredAnchor] = (),
    ) -> None:
        """Takes what to bring in; reads nothing yet.

        Args:
            also: grid anchors below the continuation's own that are brought in on the way.
            expected: the tokens that the state must be of; None takes those of its headers, once
                their chain of keys has been recomputed.
        """
        self._continuation = continuation
        self._state = state
        self._resident = resident
        self._lanes = lanes
        self._layout = layout
        self._expected = expected
        self._also = sorted(also, key=lambda anchor: anchor.line)
        self._to_read: deque[StoredBlock | StoredAnchor] = deque()
        self._reads: deque[_Read] = deque()
        self._ids: list[TokenIds] = []
        self._key_ids: list[TokenIds] = []
        self._namespace = expected.namespace if expected else Namespace()
        self._key = root_key(self._namespace)
        self._line = 0
        self._started = False
        self._turn = 0
        self.bytes_read = 0
        self.objects_read = 0

    @property
    def continuation(self) -> Continuation:
        return self._continuation

    def step(self, *, wait: bool) -> Progress:
        """Import one object, if it has been read.

        Args:
            wait: block until the oldest read has ended.

        Raises:
            RestoreFailed: what stands in the slot above what it shared before is given up.
        """
        if not self._started:
            self._start()
        self._read_ahead()
        if self._reads:
            read = self._reads[0]
            if wait:
                self._lanes.jobs.wait(read.handle)
            if self._lanes.jobs.poll(read.handle) not in (JobStatus.DONE, JobStatus.FAILED):
                return Progress.WAITING
            self._reads.popleft()
            self._take(read)
            return Progress.WORKED
        if self._to_read:
            return Progress.WAITING
        self._adopt()
        return Progress.DONE

    def abandon(self) -> None:
        """Stop; buffers come back when the reads that are under way have ended."""
        self._to_read.clear()
        while self._reads:
            self._drop(self._reads.popleft())

    def _start(self) -> None:
        """Keep the blocks that stand in place with the same bytes; everything above goes."""
        self._started = True
        blocks = deque(self._continuation.blocks)
        while blocks and self._in_place(blocks[0]):
            blocks.popleft()
        self._resident.cut_for_import(self._line)
        if self._line == 0:
            # A slot whose last forward failed is undefined until it is resumed here.
            self._state.resume_at(0)
        order: list[StoredBlock | StoredAnchor] = [
            *blocks,
            *self._also,
            self._continuation.anchor,
        ]
        order.sort(key=_reaches)
        self._to_read = deque(order)

    def _in_place(self, block: StoredBlock) -> bool:
        """Whether the block's rows stand in the slot already, byte for byte."""
        if self._expected is None or block.end > self._expected.shared:
            return False
        try:
            header = self._lanes.store.read_header(block.name)
        except StorageError:
            return False
        span = Span(self._line, block.end)
        if header.span != span or not self._same_sums(header, self._state.row_sums(span)):
            return False
        self._check_tokens(block.name, header)
        self._line = block.end
        return True

    def _read_ahead(self) -> None:
        while self._to_read:
            buffer = self._lanes.pool.acquire()
            if buffer is None:
                return
            source = self._to_read.popleft()
            if source.nbytes > len(buffer):
                self._lanes.pool.release(buffer)
                raise RestoreFailed(source.name, ObjectCorrupt(f"{source.nbytes} bytes long"))
            result: list[StoredState] = []
            lane = self._lanes.lanes[self._turn % len(self._lanes.lanes)]
            self._turn += 1
            read = partial(_read_into, self._lanes.store, source, buffer, result)
            try:
                handle = self._lanes.jobs.submit(lane, read)
            except Unavailable:
                self._lanes.pool.release(buffer)
                self._to_read.appendleft(source)
                return
            self._reads.append(_Read(handle, source, buffer, result))

    def _take(self, read: _Read) -> None:
        """Check an object's tokens, import it, and hold its sums against the bytes in place."""
        name = read.source.name
        error = self._lanes.jobs.result(read.handle)
        try:
            _raise_failed(name, error)
            found = read.result[0]
            self.bytes_read += read.source.nbytes
            self.objects_read += 1
            self._check_header(name, found.header)
            if isinstance(read.source, StoredBlock):
                self._import_rows(read.source, found)
            else:
                self._import_sections(read.source, found)
                if read.source is not self._continuation.anchor:
                    self._resident.adopt_anchor(read.source.line)
        except RestoreFailed:
            self.abandon()
            raise
        finally:
            self._lanes.pool.release(read.buffer)

    def _import_rows(self, block: StoredBlock, found: StoredState) -> None:
        span = Span(self._line, block.end)
        if found.header.kind is not ObjectKind.BLOCK or found.header.span != span:
            self._refuse(block.name, f"it is no block of rows {span}")
        self._check_tokens(block.name, found.header)
        if self._layout.views:
            self._state.import_rows(span, found.parts)
            self._check_sums(block.name, found.header, self._state.row_sums(span))
        self._line = block.end

    def _import_sections(self, anchor: StoredAnchor, found: StoredState) -> None:
        header = found.header
        if header.kind is not ObjectKind.of_anchor(anchor.kind) or header.line != self._line:
            self._refuse(anchor.name, f"it is no anchor of line {self._line}")
        if header.key != anchor.key or not self._ends_with(header.key_ids):
            self._refuse(anchor.name, "it is the anchor of other tokens")
        self._state.import_sections(anchor.line, found.parts if self._layout.sections else {})
        if self._layout.sections:
            self._check_sums(anchor.name, header, self._state.section_sums())

    def _adopt(self) -> None:
        entry = self._continuation.entry
        anchor = self._continuation.anchor
        is_end = entry.end is not None and entry.end.line == anchor.line
        expected = self._expected
        self._resident.adopt(
            AdoptedState(
                ids=np.concatenate(self._ids) if expected is None else expected.ids[: self._line],
                key_ids=(
                    np.concatenate(self._key_ids)
                    if expected is None
                    else expected.key_ids[: self._line]
                ),
                namespace=self._namespace,
                taint=entry.taint,
                end=entry.end if is_end and anchor.kind.value == "end" else None,
            )
        )

    def _check_header(self, name: ObjectName, header: ObjectHeader) -> None:
        """The object is of this arithmetic and of the expected namespace, part by part."""
        if header.fingerprint not in self._lanes.fingerprints:
            self._refuse(name, "it was made by another arithmetic")
        if self._expected is None and self._line == 0 and not self._ids:
            self._namespace = header.namespace
            self._key = root_key(header.namespace)
        if header.namespace != self._namespace:
            self._refuse(name, "it is of another namespace")
        views, sections = self._layout.views, self._layout.sections
        block = header.kind is ObjectKind.BLOCK
        tokens = len(header.span)
        wanted = (
            [(view.name, view.dtype, (tokens, *view.row_shape)) for view in views]
            if block
            else [(section.name, section.dtype, section.shape) for section in sections]
        ) or [(EMPTY_PART, "uint8", (0,))]
        if [(part.name, part.dtype, part.shape) for part in header.parts] != wanted:
            self._refuse(name, "its parts are not those of this model")

    def _check_tokens(self, name: ObjectName, header: ObjectHeader) -> None:
        """Compare the header's ids with the expected ones, or with the chain of keys."""
        if self._expected is not None:
            span = header.span
            same = np.array_equal(
                header.token_ids, self._expected.ids[span.start : span.end]
            ) and np.array_equal(header.key_ids, self._expected.key_ids[span.start : span.end])
            if not same:
                self._refuse(name, "it is of other tokens, under the same key")
        elif header.previous != self._key or extend(self._key, header.key_ids) != header.key:
            self._refuse(name, "its tokens do not follow those below it")
        self._key = header.key
        self._ids.append(token_ids(header.token_ids))
        self._key_ids.append(token_ids(header.key_ids))

    def _ends_with(self, key_ids: TokenIds) -> bool:
        """Whether the ids directly below an anchor are those of the rows below it."""
        if self._expected is not None:
            known = self._expected.key_ids[: self._line]
        else:
            known = np.concatenate(self._key_ids) if self._key_ids else token_ids([])
        return bool(np.array_equal(known[len(known) - len(key_ids) :], key_ids))

    def _check_sums(
        self, name: ObjectName, header: ObjectHeader, found: Mapping[str, Sums]
    ) -> None:
        if not self._same_sums(header, found):
            self._refuse(name, "its bytes do not stand in the engine as they were written")

    def _same_sums(self, header: ObjectHeader, found: Mapping[str, Sums]) -> bool:
        return all(
            part.name == EMPTY_PART or found.get(part.name) == part.sums for part in header.parts
        )

    def _refuse(self, name: ObjectName, why: str) -> NoReturn:
        raise RestoreFailed(name, ObjectCorrupt(why))

    def _drop(self, read: _Read) -> None:
        """Wait for a read nobody needs, so that its buffer is free for others."""
        self._lanes.jobs.wait(read.handle)
        self._lanes.jobs.result(read.handle)
        self._lanes.pool.release(read.buffer)


def _reaches(source: StoredBlock | StoredAnchor) -> tuple[int, bool]:
    """Up to which line an object reaches; an anchor comes after its rows."""
    if isinstance(source, StoredBlock):
        return source.end, False
    return source.line, True


def _read_into(
    store: ObjectStore,
    source: StoredBlock | StoredAnchor,
    buffer: ByteArray,
    result: list[StoredState],
) -> None:
    result.append(store.read(source.name, source.nbytes, buffer))


def _raise_failed(name: ObjectName, error: BaseException | None) -> None:
    """What a failed read means: storage's errors are part of life, all others are faults."""
    if isinstance(error, StorageError):
        raise RestoreFailed(name, error)
    if error is not None:
        raise error
