"""Writing one entry: its state leaves the engine block by block, and is stored behind its back.

Rows are copied out one block at a time, on the engine thread, into staging buffers; encoding and
writing happen on a lane. An entry is committed only when every object it needs is durable: once all
are written they are synced together. What is stored already, by name, is neither copied nor
written.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ..domain.anchor import Anchor, AnchorKind
from ..domain.content_chain import ContentChain
from ..domain.end import End
from ..domain.entry import Role
from ..domain.errors import RowsChanged, StorageUnavailable
from ..domain.fingerprint import Fingerprint
from ..domain.grid import Span
from ..domain.layout import Layout
from ..domain.namespace import Namespace
from ..domain.object_header import ObjectHeader, ObjectKind, PartRecord
from ..domain.prompt_chain import PromptChain
from ..domain.stored_entry import ObjectName, StoredAnchor, StoredBlock
from ..domain.tokens import TokenIds
from ..ports.block_storage import ByteArray
from .object_parts import draft_parts, name_of, part_views, section_parts
from .outgoing_objects import Medium, OutgoingObjects, WriteFailure
from .row_sums import RowSums
from .write_source import WriteSource

_UNKNOWN: Final[Mapping[str, int]] = MappingProxyType({})


class Progress(enum.Enum):
    """What a step has done."""

    WORKED = "worked"
    WAITING = "waiting"
    """For a staging buffer, or for writes that are under way."""

    DONE = "done"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Whose state is written: values that do not change while it is copied.

    Attributes:
        ids: all tokens up to the highest line that is kept.
    """

    fingerprint: Fingerprint
    namespace: Namespace
    role: Role
    session: str | None
    ids: TokenIds
    key_ids: TokenIds
    taint: int
    end: End | None


class EntryWrite:
    """One entry on its way to the medium. All methods are called on the engine thread.

    Attributes:
        chain: over its tokens.
        failure: why the entry cannot be committed, if it cannot.
        dropped: objects that were given up because their bytes were about to change.
        promised: bytes that room was made for.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        chain: PromptChain,
        layout: Layout,
        source: WriteSource,
        anchors: Sequence[Anchor],
        medium: Medium,
        stored_line: int = 0,
    ) -> None:
        """Takes what to write; copies nothing yet.

        Args:
            chain: over the snapshot's key ids.
            source: where its bytes are taken from.
            anchors: copies that stay alive until `copied`; none above the snapshot's ids.
            stored_line: rows from there on are new to the medium, in all likelihood.
        """
        self.snapshot = snapshot
        self.chain = chain
        self._layout = layout
        self._source = source
        self._pool = medium.pool
        self._checksum = medium.store.checksum_ahead
        self._objects = OutgoingObjects(medium)
        self._stored_line = stored_line
        self._slow = False
        self._spans = list(chain.grid.chunks(0, len(snapshot.ids)))
        self._sums = RowSums(source, layout, self._spans)
        # An anchor that stands on no block's last row cannot be offered.
        self._anchors = [anchor for anchor in anchors if self._sums.ends_at(anchor.line)]
        self._blocks: list[tuple[ObjectName, Span]] = []
        self._kept: list[tuple[ObjectName, int, AnchorKind]] = []
        self.failure: WriteFailure | None = None
        self.dropped = 0
        self.promised = 0

    @property
    def names(self) -> Sequence[ObjectName]:
        """The objects it has pinned; whoever settles it unpins them."""
        return self._objects.names

    @property
    def damaged(self) -> Sequence[ObjectName]:
        """Objects that stood under a name to be written, and were no such thing."""
        return self._objects.damaged

    @property
    def bytes_written(self) -> int:
        """To the medium, for this entry."""
        return self._objects.bytes_written

    @property
    def outstanding(self) -> int:
        """Bytes that room was made for and that are not written yet."""
        return max(self.promised - self.bytes_written, 0)

    @property
    def writing(self) -> bool:
        """Whether it has buffers of the pool."""
        return self._objects.writing

    @property
    def copied(self) -> bool:
        """Whether nothing is needed of the engine any more."""
        return self.failure is not None or (not self._spans and not self._anchors)

    @property
    def done(self) -> bool:
        """Whether everything is durable, or has failed."""
        settled = self.failure is not None or self._objects.durable
        return self.copied and not self._objects.under_way and settled

    @property
    def anchors(self) -> set[tuple[int, AnchorKind]]:
        """The lines and kinds of those that it will have, as far as is known now."""
        written = {(line, kind) for _, line, kind in self._kept}
        return written | {(anchor.line, anchor.kind) for anchor in self._anchors}

    def step(self, *, ahead: bool = True) -> Progress:
        """Copy one object out, if a buffer is free, or find out what it stands on.

        Args:
            ahead: take the sums of rows that there is no buffer for. Their copies take them once
                more, so it is as well to `wait`, if the medium is quick.
        """
        self._collect()
        if self.done:
            return Progress.DONE
        ahead = ahead or self._slow
        if not self.copied and (self._sum_up(ahead=ahead) or self._copy_next()):
            return Progress.WORKED
        if self.copied and not self._objects.under_way:
            self._fail(self._objects.sync())
        return Progress.WAITING

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the oldest object under way is written, or all of them are durable.

        Args:
            timeout_s: how long at most. What takes longer is slow: sums are taken ahead from then
                on.

        Returns:
            Whether there was anything to wait for.
        """
        if not self._objects.under_way:
            return False
        self._slow = not self._objects.wait(timeout_s)
        self._collect()
        return True

    def add_anchor(self, anchor: Anchor) -> bool:
        """Write one more anchor; whether there was room.

        For anchors that are taken while a prefill runs: they are copied before the next chunk.
        """
        buffer = self._pool.acquire() if self._sums.ends_at(anchor.line) else None
        if buffer is None:
            self.dropped += 1
            return False
        self._write_sections(anchor, buffer)
        return True

    def fence(self, line: int) -> None:
        """The slot goes on from `line`: what was not copied and does not stay is given up.

        Rows from there on are about to be overwritten, and copies of sections may be reused.
        """
        lost = [span for span in self._spans if span.end > line]
        self._spans = [span for span in self._spans if span.end <= line]
        # An anchor that is taken later stands on the new rows: it must not find the old ones.
        self._sums.cut(line)
        self.dropped += len(lost) + len(self._anchors)
        self._anchors.clear()
        if lost:
            self._kept = [kept for kept in self._kept if kept[1] <= lost[0].start]

    def contents(self) -> tuple[tuple[StoredBlock, ...], tuple[StoredAnchor, ...]]:
        """What the entry consists of, once `done` without a failure.

        Blocks reach up to the highest anchor; both are empty if nothing usable was written.
        """
        assert self.done
        ends = {span.end for _, span in self._blocks}
        anchors = tuple(
            StoredAnchor(name, self.chain.key(line), line, kind, self._objects.sizes[name])
            for name, line, kind in sorted(self._kept, key=lambda kept: kept[1])
            if line in ends
        )
        top = anchors[-1].line if anchors else 0
        blocks = tuple(
            StoredBlock(name, self.chain.key(span.end), span.end, self._objects.sizes[name])
            for name, span in self._blocks
            if span.end <= top
        )
        return blocks, anchors

    def _sum_up(self, *, ahead: bool) -> bool:
        """Take the sums of some rows that the next anchor stands on; False if there are none.

        As long as there are buffers each block is copied at once: the medium does not wait for the
        sums of all. Then they run `ahead`, since anchors live shorter than rows.
        """
        if not self._anchors or self._sums.is_known(self._anchors[0].line):
            return False
        buffer = self._pool.acquire() if self._spans else None
        if buffer is not None:
            self._write_rows(self._spans.pop(0), buffer)
        elif ahead:
            self._sums.sum_next()
        return buffer is not None or ahead

    def _copy_next(self) -> bool:
        """Copy the next object that is not stored; False if no buffer is free."""
        buffer = self._pool.acquire()
        if buffer is None:
            return False
        # Anchors first: the copies they are taken from live shorter than rows.
        if self._anchors:
            anchor = self._anchors.pop(0)
            self._write_sections(anchor, buffer)
        else:
            self._write_rows(self._spans.pop(0), buffer)
        return True

    def _write_rows(self, span: Span, buffer: ByteArray) -> None:
        checksums: dict[str, int] = {}
        # One pass over rows that are new; those that may be stored are summed up first.
        exported = span.start >= self._stored_line and not self._sums.is_summed(span)
        if exported:
            self._export(span, buffer, checksums)
        below, parts = self._sums.chain(span.start), self._sums.take_parts(span)
        draft = self._draft(ObjectKind.BLOCK, span, below, parts)
        name = name_of(draft)
        self._blocks.append((name, span))
        if self._objects.pin(name):
            self._pool.release(buffer)
        elif exported or self._export(span, buffer, checksums) == parts:
            self._submit(draft, name, buffer, checksums)
        else:
            self._pool.release(buffer)
            self._fail(RowsChanged(f"rows {span} changed while they were about to be written"))

    def _export(
        self, span: Span, buffer: ByteArray, checksums: dict[str, int]
    ) -> tuple[PartRecord, ...]:
        """Copy a block's rows; see `RowSums.export`."""
        checksum = self._checksum

        def look(name: str, data: ByteArray) -> None:
            assert checksum is not None
            checksums[name] = checksum(data, checksums.get(name, 0))

        buffers = part_views(buffer, self._sums.specs(span))
        return self._sums.export(span, buffers, None if checksum is None else look)

    def _write_sections(self, anchor: Anchor, buffer: ByteArray) -> None:
        specs = section_parts(self._layout.sections)
        sums = self._source.section_sums(anchor)
        grid = self.chain.grid
        below = anchor.line - 1
        span = Span(grid.floor(below) if below >= 0 else 0, anchor.line)
        draft = self._draft(
            ObjectKind.of_anchor(anchor.kind),
            span,
            self._sums.chain(anchor.line),
            draft_parts(specs, sums),
        )
        name = name_of(draft)
        self._kept.append((name, anchor.line, anchor.kind))
        if self._objects.pin(name):
            self._pool.release(buffer)
            return
        if self._layout.sections:
            self._source.export_sections(anchor, part_views(buffer, specs))
        self._submit(draft, name, buffer)

    def _draft(
        self, kind: ObjectKind, span: Span, below: ContentChain, parts: tuple[PartRecord, ...]
    ) -> ObjectHeader:
        snapshot = self.snapshot
        return ObjectHeader(
            fingerprint=snapshot.fingerprint,
            namespace=snapshot.namespace,
            kind=kind,
            key=self.chain.key(span.end),
            previous=self.chain.key(span.start),
            below=below,
            span=span,
            token_ids=snapshot.ids[span.start : span.end],
            key_ids=snapshot.key_ids[span.start : span.end],
            taint=min(snapshot.taint, span.end),
            role=snapshot.role,
            session=snapshot.session,
            end=snapshot.end if kind is ObjectKind.END else None,
            parts=parts,
        )

    def _submit(
        self,
        draft: ObjectHeader,
        name: ObjectName,
        buffer: ByteArray,
        checksums: Mapping[str, int] = _UNKNOWN,
    ) -> None:
        self._fail(self._objects.write(draft, name, buffer, checksums))

    def _collect(self) -> None:
        """Take the results of what lanes have done."""
        try:
            self._fail(self._objects.collect())
        except Exception as error:
            self._fail(StorageUnavailable(f"writing failed unexpectedly: {error!r}"))
            raise

    def _fail(self, error: WriteFailure | None) -> None:
        """Nothing more is copied, once something has gone wrong."""
        if error is not None:
            self.failure = self.failure or error
            self._spans.clear()
            self._anchors.clear()
