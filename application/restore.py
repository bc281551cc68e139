"""Bringing a stored state in: read ahead, verify, import, verify where it stands.

Where rows stand in the processor's own memory, lanes bring them straight there once the engine
thread has found the block's header to be of the right tokens. Everything else is read by lanes into
a bounded set of staging buffers, while the engine thread imports what came before it. Nothing of it
reaches a forward until all of it has been verified: checksums of what was read, the tokens in the
headers, and the content sums of the bytes as they stand in the engine.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ..domain.content_chain import NO_ROWS, ContentChain
from ..domain.disk_index import Continuation
from ..domain.errors import ObjectCorrupt, StorageError
from ..domain.grid import Span
from ..domain.layout import Layout
from ..domain.namespace import Namespace
from ..domain.object_header import ObjectHeader, ObjectKind
from ..domain.object_name import chain_of
from ..domain.prefix_key import extend, root_key
from ..domain.stored_entry import ObjectName, StoredAnchor, StoredBlock
from ..domain.sums import Sums
from ..domain.tokens import TokenIds, token_ids
from ..ports.gpu_state import ByteBuffers, RowsPlace
from .entry_write import Progress
from .kept_state import AdoptedState
from .object_parts import EMPTY_PART
from .object_store import StoredState
from .placed_block import PlacedBlock
from .read_queue import ReadLanes, ReadQueue, RestoreFailed, collect, raise_failed
from .restore_target import RestoreTarget
from .staged_read import StagedRead


@dataclass(frozen=True, slots=True)
class Expected:
    """The tokens a restored state must be of.

    Attributes:
        shared: how many of them may stand where it is brought to already.
    """

    ids: TokenIds
    key_ids: TokenIds
    namespace: Namespace
    shared: int


class Restore:
    """One stored state on its way in. All methods are called on the engine thread."""

    def __init__(
        self,
        continuation: Continuation,
        target: RestoreTarget,
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
        self._target = target
        self._lanes = lanes
        self._layout = layout
        self._expected = expected
        self._also = sorted(also, key=lambda anchor: anchor.line)
        self._missing = deque(continuation.blocks)
        self._modest = target.modest
        self._queue = ReadQueue((), {}, lanes, layout, places=False)
        self._ids: list[TokenIds] = []
        self._key_ids: list[TokenIds] = []
        self._namespace = expected.namespace if expected else Namespace()
        self._key = root_key(self._namespace)
        self._below: ContentChain = NO_ROWS
        self._line = 0
        self._started = False
        self.bytes_read = 0
        self.objects_read = 0

    @property
    def continuation(self) -> Continuation:
        return self._continuation

    def step(self, *, wait: bool, read_on: bool = True) -> Progress:
        """Import one object, if it has been read.

        Args:
            wait: block until the oldest read has ended.
            read_on: False asks for nothing more: what is under way is taken, and no buffer is held
                for long.

        Raises:
            RestoreFailed: what stands there above what was shared before is given up.
            NoRoom: the target cannot take it.
        """
        if not self._started and not self._start():
            return Progress.WORKED
        try:
            if read_on:
                self._queue.read_ahead()
            self._queue.admit(self._place_of)
            if self._queue.reads:
                return self._step_reads(wait=wait)
        except BaseException:
            self.abandon()  # above all, no lane writes to the target any more
            raise
        if not self._queue.empty:
            return Progress.WAITING
        self._adopt()
        return Progress.DONE

    def hurry(self) -> None:
        """Somebody waits for it from now on."""
        self._modest = self._queue.modest = False

    def abandon(self) -> None:
        """Stop; on return no lane writes to the target, and all buffers have come back."""
        self._queue.give_up()
        self._target.give_up()

    def _start(self) -> bool:
        """Keep the blocks that stand in place with the same bytes; everything above goes.

        Returns:
            Whether what is missing is known, and may be read.
        """
        while self._missing and self._in_place(self._missing[0]):
            self._missing.popleft()
            if self._modest:
                return False
        self._started = True
        self._target.begin(self._line, self._continuation.line, self._continuation.entry.taint)
        order: list[StoredBlock | StoredAnchor] = [
            *self._missing,
            # One below what stands in place is not held against its rows any more.
            *(anchor for anchor in self._also if anchor.line >= self._line),
            self._continuation.anchor,
        ]
        order.sort(key=_reaches)
        ends = [block.end for block in self._continuation.blocks]
        self._queue = ReadQueue(
            order,
            dict(zip(ends, [0, *ends], strict=False)),  # if the entry tells the truth
            self._lanes,
            self._layout,
            places=self._target.lanes_place,
            modest=self._modest,
        )
        return True

    def _in_place(self, block: StoredBlock) -> bool:
        """Whether the block's rows stand there already, byte for byte."""
        if self._expected is None or block.end > self._expected.shared:
            return False
        try:
            header = self._lanes.store.read_header(block.name)
        except StorageError:
            return False
        span = Span(self._line, block.end)
        if header.span != span or not self._same_sums(header, self._target.row_sums(span)):
            return False
        self._check_tokens(block.name, header)
        self._line = block.end
        return True

    def _place_of(self, block: StoredBlock, header: ObjectHeader) -> RowsPlace:
        """Where a block's rows belong, once its tokens have been checked."""
        self._check_header(block.name, header)
        place = self._target.place_rows(self._span_of(block, header))
        self._line = block.end
        return place

    def _step_reads(self, *, wait: bool) -> Progress:
        # The anchor comes while lanes bring in the last rows; it is of their line, or is refused.
        early = self._queue.take_early(self._continuation.anchor)
        if early is not None:
            self._take(early)
            return Progress.WORKED
        waited = wait and self._queue.wait()
        oldest = self._queue.reads[0]
        if isinstance(oldest, StagedRead):
            if not oldest.ended:
                return Progress.WAITING
            self._queue.reads.popleft()
            self._take(oldest)
            return Progress.WORKED
        ended = collect(oldest)
        if oldest.done:
            assert oldest.header is not None
            self._check_sums(oldest.source.name, oldest.header, oldest.sums)
            self._account(self._queue.reads.popleft())
        return Progress.WORKED if ended or waited else Progress.WAITING

    def _account(self, read: StagedRead | PlacedBlock) -> None:
        self.bytes_read += read.source.nbytes
        self.objects_read += 1

    def _take(self, read: StagedRead) -> None:
        """Check an object's tokens, import it, and hold its sums against the bytes in place."""
        source = read.source
        try:
            raise_failed(source.name, read.error())
            found = read.state()
            self._account(read)
            self._check_header(source.name, found.header)
            if isinstance(source, StoredBlock):
                self._import_rows(source, found)
            else:
                self._import_sections(source, found)
                if source is not self._continuation.anchor:
                    self._target.anchored(source.line)
        finally:
            read.release()

    def _import_rows(self, block: StoredBlock, found: StoredState) -> None:
        span = self._span_of(block, found.header)
        sums = self._target.import_rows(span, found.parts if self._layout.views else {})
        self._check_sums(block.name, found.header, sums)
        self._line = block.end

    def _span_of(self, block: StoredBlock, header: ObjectHeader) -> Span:
        """The block's rows, once its header is one of the expected tokens above those below."""
        span = Span(self._line, block.end)
        if header.kind is not ObjectKind.BLOCK or header.span != span:
            self._refuse(block.name, f"it is no block of rows {span}")
        self._check_tokens(block.name, header)
        return span

    def _import_sections(self, anchor: StoredAnchor, found: StoredState) -> None:
        header = found.header
        if header.kind is not ObjectKind.of_anchor(anchor.kind) or header.line != self._line:
            self._refuse(anchor.name, f"it is no anchor of line {self._line}")
        if header.key != anchor.key or not self._ends_with(header.key_ids):
            self._refuse(anchor.name, "it is the anchor of other tokens")
        if header.below != self._below:
            self._refuse(anchor.name, "it is the anchor of other rows of these tokens")
        sections: ByteBuffers = found.parts if self._layout.sections else {}
        self._check_sums(anchor.name, header, self._target.import_sections(anchor, sections))

    def _adopt(self) -> None:
        entry = self._continuation.entry
        anchor = self._continuation.anchor
        is_end = entry.end is not None and entry.end.line == anchor.line
        expected = self._expected
        self._target.adopt(
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
        if header.below != self._below:
            self._refuse(name, "its rows were written over others than those below it")
        self._below = chain_of(header)
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


def _reaches(source: StoredBlock | StoredAnchor) -> tuple[int, bool]:
    """Up to which line an object reaches; an anchor comes after its rows."""
    if isinstance(source, StoredBlock):
        return source.end, False
    return source.line, True
