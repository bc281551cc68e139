"""Faults of row-invariant arithmetic: of what makes a row's bits its own, and what rests on it."""

# pyright: reportPrivateUsage=false
# A fault is planted where it would be made, and that is inside.

from contextlib import AbstractContextManager
from dataclasses import replace

from anchorline.adapters.memory.checkable_copies import CheckableCopies
from anchorline.adapters.memory.checkable_state import (
    PAD,
    TILE,
    CheckableState,
    Parts,
    padded_rows,
    tile_line,
)
from anchorline.application.slot_anchors import SlotAnchors
from anchorline.domain.anchor import Anchor, SectionsHandle
from anchorline.domain.layout import Layout
from anchorline.ports.gpu_state import ByteBuffers
from anchorline.simulation.traits import Traits

from .patching import Planted, everywhere, replaced


def exact(traits: Traits) -> Traits:
    """One whose arithmetic is row-invariant, over rows and sections."""
    return replace(traits, row_invariant=True, parts=Parts.HYBRID, cache=True)


def exact_and_stored(traits: Traits) -> Traits:
    """The same where all of it comes back from a sound medium."""
    sound = replace(exact(traits), damage=0.0, catalog_fails=False, disk=True, crashes=2.0)
    return replace(sound, share_bytes=1 << 24, day_bytes=1 << 40)


def _tail_unpadded() -> AbstractContextManager[None]:
    def faulty(count: int) -> int:
        return count if count > PAD else padded_rows(count)

    return everywhere("padded_rows", padded_rows, faulty)


def _lone_row_unpadded() -> AbstractContextManager[None]:
    def faulty(count: int) -> int:
        return count if count == 1 else padded_rows(count)

    return everywhere("padded_rows", padded_rows, faulty)


def _tile_line_off_by_one() -> AbstractContextManager[None]:
    def faulty(line: int) -> int:
        return max(line - 1, 0) // TILE * TILE

    return everywhere("tile_line", tile_line, faulty)


def _open_rows_not_restored() -> AbstractContextManager[None]:
    restore = CheckableState.restore_sections

    def faulty(self: CheckableState, handle: SectionsHandle) -> None:
        standing = self._sections["open_rows"].copy()
        restore(self, handle)
        self._sections["open_rows"][:] = standing

    return replaced(CheckableState, "restore_sections", faulty)


def _open_rows_not_saved() -> AbstractContextManager[None]:
    export = CheckableCopies.export_sections

    def faulty(self: CheckableCopies, handle: SectionsHandle, buffers: ByteBuffers) -> None:
        export(self, handle, buffers)
        buffers["open_rows"][:] = 0

    return replaced(CheckableCopies, "export_sections", faulty)


def _open_rows_not_read_back() -> AbstractContextManager[None]:
    read = CheckableState.import_sections

    def faulty(self: CheckableState, line: int, buffers: ByteBuffers) -> None:
        standing = self._sections["open_rows"].view("uint8").copy()
        read(self, line, {**buffers, "open_rows": standing})

    return replaced(CheckableState, "import_sections", faulty)


def _proof_skipped() -> AbstractContextManager[None]:
    make = CheckableState.__init__

    def faulty(
        self: CheckableState,
        *,
        layout: Layout,
        window: int,
        row_invariant: bool,
        copies: CheckableCopies,
    ) -> None:
        del row_invariant
        make(self, layout=layout, window=window, row_invariant=False, copies=copies)

    return replaced(CheckableState, "__init__", faulty)


def _extra_kept_across_a_cut() -> AbstractContextManager[None]:
    cut = SlotAnchors.cut

    def faulty(self: SlotAnchors, line: int, reach: int | None = None) -> None:
        kept = {at: self._anchors.pop(at) for at in self._extra.lines if at > line > 0}
        cut(self, line, reach)
        self._anchors |= kept

    return replaced(SlotAnchors, "cut", faulty)


def _extra_told_at_another_line() -> AbstractContextManager[None]:
    take_extra = SlotAnchors.take_extra

    def faulty(self: SlotAnchors, line: int, *, boundary: bool) -> Anchor:
        return take_extra(self, self._grid.floor(line), boundary=boundary)

    return replaced(SlotAnchors, "take_extra", faulty)


def _extras_without_end() -> AbstractContextManager[None]:
    def faulty(self: SlotAnchors) -> None:
        del self

    return replaced(SlotAnchors, "_make_room_for_extra", faulty)


FAULTS: tuple[Planted, ...] = (
    Planted(
        "tail unpadded",
        "pads what is less than a block, and leaves the rows over as they are where there is one",
        "adapters.memory.checkable_state.padded_rows",
        _tail_unpadded,
        world=exact,
    ),
    Planted(
        "lone row unpadded",
        "has one row take the way of the library's own, which is faster",
        "adapters.memory.checkable_state.padded_rows",
        _lone_row_unpadded,
        world=exact,
    ),
    Planted(
        "tile line off by one",
        "closes a full tile with the first token of the next one",
        "adapters.memory.checkable_state.tile_line",
        _tile_line_off_by_one,
        world=exact,
    ),
    Planted(
        "open tile not restored",
        "brings back the state of the tile line, and not what had come since",
        "adapters.memory.checkable_state.CheckableState.restore_sections",
        _open_rows_not_restored,
        world=exact,
    ),
    Planted(
        "open tile not saved",
        "writes the state of the tile line, and not what had come since",
        "adapters.memory.checkable_copies.CheckableCopies.export_sections",
        _open_rows_not_saved,
        world=exact_and_stored,
    ),
    Planted(
        "open tile not read back",
        "reads the state of the tile line from the medium, and not what had come since",
        "adapters.memory.checkable_state.CheckableState.import_sections",
        _open_rows_not_read_back,
        world=exact_and_stored,
    ),
    Planted(
        "proof skipped",
        "tells of row-invariant arithmetic because it was asked for",
        "adapters.memory.checkable_state.CheckableState.__init__",
        _proof_skipped,
        world=exact,
    ),
    Planted(
        "extra anchor kept across a cut",
        "drops the anchors of prefills above a cut, and forgets those between grid lines",
        "application.slot_anchors.SlotAnchors.cut",
        _extra_kept_across_a_cut,
        world=exact,
    ),
    Planted(
        "extra told at another line",
        "rounds the line of every anchor to the grid",
        "application.slot_anchors.SlotAnchors.take_extra",
        _extra_told_at_another_line,
        world=exact,
    ),
    Planted(
        "extras without end",
        "takes an anchor at the end of every prompt, and gives none up for it",
        "application.slot_anchors.SlotAnchors._make_room_for_extra",
        _extras_without_end,
        world=exact,
    ),
)
