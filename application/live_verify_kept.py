"""Verifying what memory keeps: entries whose rows stand in copies, in slots, or in both."""

from collections.abc import Generator, Hashable, Sequence

from ..domain.entry import Tier
from ..domain.grid import Span
from ..domain.mismatch import Difference, Kind
from ..domain.sums import PartSums
from ..domain.taint_line import TaintLine
from ..ports.engine import Engine, EngineProfile
from ..ports.gpu_state import ByteBuffers
from .distrust import Distrust
from .held_sections import HeldSections
from .kept_blocks import KeptBlock
from .kept_rows import KeptRows
from .live_verify_cold import (
    Reference,
    Spare,
    departing,
    difference_of,
    exported_rows,
    first_row,
    hold_anchors,
    hold_rows,
    recompute,
)
from .ram_entry import RamEntry
from .ram_tier import RamTier


class KeptSubject:
    """An entry in memory, see `Subject`.

    Each block is looked at where it stands at that moment, at every place: whoever brings the entry
    in may take any of them. It borrows nothing, so it is in nobody's way: an entry that leaves, or
    is cut back, in the middle of it is not judged.
    """

    tier = Tier.RAM
    borrows = False

    def __init__(
        self,
        entry: RamEntry,
        ram: RamTier,
        sections: HeldSections,
        spare: Spare,
        engine: Engine,
        distrust: Distrust,
    ) -> None:
        """Takes an entry as it is now."""
        self._entry = entry
        self._state = entry.state
        self._blocks = entry.blocks
        self._ram = ram
        self._sections = sections
        self._spare = spare
        self._profile: EngineProfile = engine.profile
        self._rows = KeptRows(engine)
        self._distrust = distrust
        self.id = str(entry.id)
        self.version: Hashable = (entry.state.taint, entry.state.anchors)
        self.namespace = entry.namespace
        self.ids = entry.ids

    def is_current(self) -> bool:
        return self._ram.has(self._entry) and self._entry.state is self._state

    def pieces(self, engine: Engine, spare: Spare) -> Generator[Difference | None]:
        for block in self._blocks:
            if block.seals:
                yield self._departed(block)
        reference, state = Reference(self.ids), self._state
        taint, copies = TaintLine(state.taint), engine.copies
        yield from hold_anchors(
            reference,
            lambda: state.anchors,
            taint,
            self._profile,
            copies,
            self._sections.seal_of,
        )
        yield from hold_rows(reference, self._top(), self._profile.grid, self._sums)
        yield from recompute(engine, spare, reference)

    def rows(self, span: Span) -> ByteBuffers | None:
        """Those of a place where they depart from what stands in the spare slot, if one does."""
        views = self._profile.layout.views
        cold = exported_rows(self._spare.state, views, span)
        for kept in self._rows.exported(self._block(span), span):
            if first_row(views, span, kept, cold) is not None:
                return kept
        return None

    def distrust(self, difference: Difference, reason: str) -> None:
        del reason
        self._distrust.entry(self._entry, difference)

    def _top(self) -> int:
        """Up to where a cold prefill must give its rows again.

        Blocks that are called clean are shared with whoever has their tokens, whatever the taint
        line of this entry says.
        """
        top = self._state.taint
        for block in self._blocks:
            if not block.clean:
                break
            top = max(top, block.span.end)
        return min(top, self._state.line)

    def _departed(self, block: KeptBlock) -> Difference | None:
        """How the rows of a block depart from their seals, anywhere."""
        spans = [span for span, _ in block.seals]
        for found in self._rows.sums(block, spans):
            for (span, sealed), sums in zip(block.seals, found, strict=True):
                part = departing(sealed, sums)
                if part is not None:
                    return difference_of(Kind.PRESERVED_ROWS, span.end, part, span.start)
        return None

    def _sums(self, span: Span) -> Sequence[PartSums]:
        return [sums for (sums,) in self._rows.sums(self._block(span), [span])]

    def _block(self, span: Span) -> KeptBlock:
        """The block that has some rows; no chunk crosses the end of one."""
        return self._blocks[span.start // self._profile.grid.step]
