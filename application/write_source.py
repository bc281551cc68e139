"""Where a write takes an entry's bytes from: a slot, or what memory keeps."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..domain.anchor import Anchor
from ..domain.grid import Span
from ..domain.sums import Sums
from ..ports.gpu_state import ByteBuffers, Look, SlotState, StateCopies
from .kept_blocks import KeptBlock


class RowSource(Protocol):
    """Rows that can be summed up and copied, a block at a time."""

    def row_sums(self, span: Span) -> Mapping[str, Sums]:
        """See `StateTransfer.row_sums`."""
        ...

    def export_summed_rows(
        self, span: Span, buffers: ByteBuffers, look: Look | None
    ) -> Mapping[str, Sums]:
        """See `StateTransfer.export_summed_rows`."""
        ...


class WriteSource(RowSource, Protocol):
    """One state, whose rows stay as they are until a fence says otherwise."""

    def section_sums(self, anchor: Anchor) -> Mapping[str, Sums]:
        """Of an anchor's copy."""
        ...

    def export_sections(self, anchor: Anchor, buffers: ByteBuffers) -> None:
        """An anchor's copy."""
        ...


class SlotSource:
    """Rows as they stand in a slot."""

    def __init__(self, state: SlotState, copies: StateCopies) -> None:
        self.state = state
        self._copies = copies

    def row_sums(self, span: Span) -> Mapping[str, Sums]:
        return self.state.row_sums(span)

    def export_summed_rows(
        self, span: Span, buffers: ByteBuffers, look: Look | None
    ) -> Mapping[str, Sums]:
        return self.state.export_summed_rows(span, buffers, look)

    def section_sums(self, anchor: Anchor) -> Mapping[str, Sums]:
        return self._copies.section_sums(anchor.handle)

    def export_sections(self, anchor: Anchor, buffers: ByteBuffers) -> None:
        self._copies.export_sections(anchor.handle, buffers)


class EntrySource:
    """Rows of kept blocks, wherever each stands at the moment."""

    def __init__(
        self, blocks: Sequence[KeptBlock], states: Sequence[SlotState], copies: StateCopies
    ) -> None:
        """Takes the blocks of an entry that stays until the write has copied them."""
        self._blocks = {block.span: block for block in blocks}
        self._states = states
        self._copies = copies

    def row_sums(self, span: Span) -> Mapping[str, Sums]:
        block = self._blocks[span]
        if block.handle is not None:
            return self._copies.row_sums(block.handle)
        return self._state_of(block).row_sums(span)

    def export_summed_rows(
        self, span: Span, buffers: ByteBuffers, look: Look | None
    ) -> Mapping[str, Sums]:
        block = self._blocks[span]
        if block.handle is not None:
            return self._copies.export_summed_rows(block.handle, buffers, look)
        return self._state_of(block).export_summed_rows(span, buffers, look)

    def section_sums(self, anchor: Anchor) -> Mapping[str, Sums]:
        return self._copies.section_sums(anchor.handle)

    def export_sections(self, anchor: Anchor, buffers: ByteBuffers) -> None:
        self._copies.export_sections(anchor.handle, buffers)

    def _state_of(self, block: KeptBlock) -> SlotState:
        return self._states[next(iter(block.places))]
