"""What memory keeps is at all times an honest state, wherever the parts of it stand."""

from dataclasses import dataclass, field

import numpy as np

from ..application.kept_blocks import KeptBlock
from ..application.ram_entry import RamEntry
from ..application.ram_tier import RamTier
from ..domain.anchor import Anchor, AnchorKind, RowsHandle
from ..domain.entry import EntryId
from ..domain.grid import Span
from ..domain.namespace import Namespace
from .honest_rows import HonestRows, Rows
from .oracle import Node, Oracle, Realm
from .violation import violated
from .watched_engine import WatchedEngine, is_of_its_tiles


@dataclass(slots=True)
class _Seen:
    """Where a block's rows were found to be the right ones.

    Attributes:
        handle: of the copy.
        places: by slot, what had been written there by then.
    """

    handle: RowsHandle | None = None
    places: dict[int, int] = field(default_factory=dict[int, int])


class KeptStates:
    """Holds every entry in memory against the oracle: tokens, anchors, gates, ends, all rows."""

    def __init__(self, engine: WatchedEngine, oracle: Oracle, weights: str) -> None:
        """Nothing was looked at yet."""
        profile = engine.profile
        self._engine = engine
        self._oracle = oracle
        self._weights = weights
        self._grid = profile.grid
        self._layout = profile.layout
        self._row_invariant = profile.row_invariant
        self._honest = HonestRows(profile.window)
        self._rows = Rows(profile.window)
        self._words = {
            section.name: np.zeros(section.shape, section.dtype)
            for section in self._layout.sections
        }
        self._section_bytes = {name: word.view(np.uint8) for name, word in self._words.items()}
        self._seen: dict[EntryId, dict[KeptBlock, _Seen]] = {}

    def check(self, ram: RamTier) -> None:
        """Look at all entries; at rows only where something was moved since the last time.

        Raises:
            Violation: one is no state that its tokens ever had, or is not what it says.
        """
        spaces: dict[KeptBlock, Namespace] = {}
        seen: dict[EntryId, dict[KeptBlock, _Seen]] = {}
        for entry in ram.entries:
            self._check_shape(entry, spaces)
            nodes = self._nodes(entry)
            self._check_gates(entry, nodes)
            seen[entry.id] = self._check_rows(entry, nodes[-1])
        self._seen = seen

    def _check_shape(self, entry: RamEntry, spaces: dict[KeptBlock, Namespace]) -> None:
        """Its parts are all there, and of its own tokens and namespace."""
        ids, blocks, lines = entry.ids, entry.blocks, [one.line for one in entry.state.anchors]
        if not lines or sorted(lines) != lines or lines[-1] != len(ids):
            violated("kept", f"{entry.id} has {len(ids)} tokens, and anchors at {lines}")
        if [block.span for block in blocks] != list(self._grid.chunks(0, len(ids))):
            violated("kept", f"{entry.id} has {len(ids)} tokens in {[one.span for one in blocks]}")
        for block in blocks:
            if not np.array_equal(block.ids, ids[block.span.start : block.span.end]):
                violated("kept", f"{entry.id} has the rows of other tokens at {block.span}")
            if not block.is_there:
                violated("kept", f"{entry.id} has no rows at {block.span}, and was not cut")
            if spaces.setdefault(block, entry.namespace) != entry.namespace:
                violated("namespace", f"{entry.id} shares rows at {block.span} across namespaces")
        end = entry.state.end
        if end is not None and not self._oracle.has_ended(entry.namespace, ids[: end.line], end):
            violated("kept", f"{entry.id} has the end of another conversation: {end}")

    def _nodes(self, entry: RamEntry) -> list[Node]:
        """The states that its anchors are of, which were all left behind by some forward."""
        realm = Realm(self._weights, entry.namespace)
        found: list[Node] = []
        for anchor in entry.state.anchors:
            tokens, bits_after = self._figures(entry, anchor)
            node = self._oracle.known(realm, anchor.line, tokens, bits_after)
            if node is None or node.tokens != self._oracle.hashed(entry.ids[: anchor.line]):
                violated("kept", f"{entry.id} has an anchor of other tokens at {anchor.line}")
            if not is_of_its_tiles(self._words, node):
                violated("kept", f"{entry.id} has other tiles at {anchor.line} than its tokens")
            found.append(node)
        return found

    def _figures(self, entry: RamEntry, anchor: Anchor) -> tuple[int, int]:
        """What tells the state of an anchor from others; without sections, its last row."""
        copies = self._engine.copies
        if copies.sections_line(anchor.handle) != anchor.line:
            violated("kept", f"{entry.id} has sections of another line at {anchor.line}")
        if self._layout.sections:
            copies.export_sections(anchor.handle, self._section_bytes)
            return int(self._words["tokens"][0]), int(self._words["bits_after"][0])
        block = entry.blocks_below(anchor.line)[-1]
        self._bring(block, next(iter(block.places), None) if block.handle is None else None)
        at = anchor.line - block.span.start
        return int(self._rows.prefix[at - 1]), self._rows.bits_after(at)

    def _check_gates(self, entry: RamEntry, nodes: list[Node]) -> None:
        """Below the taint line all is what a cold prefill leaves; so are clean blocks."""
        if self._row_invariant:
            return
        for anchor, node in zip(entry.state.anchors, nodes, strict=True):
            clean = anchor.kind is AnchorKind.GRID and anchor.line <= entry.state.taint
            if clean and not node.is_cold(self._grid.step):
                violated("gate", f"{entry.id} calls its state at {anchor.line} clean")
        if not self._layout.views:
            return  # there are no rows, and what each slot says of none is true
        at: Node | None = nodes[-1]
        below = {block.span.end for block in entry.blocks if block.clean}
        while at is not None and at.line not in below:
            at = at.parent
        if below and (at is None or at.line != max(below) or not at.is_cold(self._grid.step)):
            violated("gate", f"{entry.id} calls its rows below {max(below)} clean")

    def _check_rows(self, entry: RamEntry, node: Node) -> dict[KeptBlock, _Seen]:
        """Wherever a block is said to stand, its rows are those of the entry's own history."""
        before = self._seen.get(entry.id, {})
        self._honest.show(node)
        now: dict[KeptBlock, _Seen] = {}
        for block in entry.blocks:
            seen = before.get(block) or _Seen()
            if block.handle is not None and block.handle != seen.handle:
                self._compare(entry, block, None)
            places: dict[int, int] = {}
            for slot in block.places:
                places[slot] = self._engine.slots[slot].changes(block.span)
                if seen.places.get(slot) != places[slot]:
                    self._compare(entry, block, slot)
            now[block] = _Seen(block.handle, places)
        return now

    def _compare(self, entry: RamEntry, block: KeptBlock, slot: int | None) -> None:
        if not self._layout.views:
            return
        self._bring(block, slot)
        if not self._rows.equals(self._honest, len(block.span), start=block.span.start):
            where = "a copy" if slot is None else f"slot {slot}"
            violated("kept", f"{entry.id} has other rows at {block.span} in {where} than its own")

    def _bring(self, block: KeptBlock, slot: int | None) -> None:
        """Read its rows to the start of the buffers: from a slot, or from its copy."""
        buffers = self._rows.as_bytes(len(block.span))
        if slot is not None:
            self._engine.slots[slot].export_rows(block.span, buffers)
        elif block.handle is not None:
            span: Span = self._engine.copies.rows_span(block.handle)
            if span != block.span:
                violated("kept", f"a copy of rows {span} is kept for those of {block.span}")
            self._engine.copies.export_rows(block.handle, buffers)
