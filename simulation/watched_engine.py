"""The checkable engine with the oracle beside it: no forward goes on from what never was."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ..adapters.memory.checkable_engine import CheckableEngine
from ..adapters.memory.checkable_state import CheckableState, Parts
from ..domain.grid import Span
from ..domain.sampling import Logits
from ..domain.taint_line import Writer
from ..domain.tokens import TokenIds, token_ids
from ..ports.engine import DecodeInput
from .honest_rows import HonestRows, Rows
from .oracle import Node, Oracle, Realm
from .violation import violated
from .watched_state import RowsWatcher, WatchedState

WORKSPACE_BYTES: Final = 1 << 11
"""Of a short prefill; a long one says that it takes twice that."""


class Watcher(Protocol):
    """Who knows what each forward is for."""

    def about_to_forward(self, slot: int, span: Span, ids: TokenIds, writer: Writer) -> Realm:
        """A forward begins; whose state it must go on from."""
        ...

    def forwarded(self, slot: int, node: Node, writer: Writer) -> None:
        """It has run to its end, and left an honest state."""
        ...


class WatchedEngine(CheckableEngine):
    """Holds every state before and after a forward against the oracle's, byte for byte."""

    def __init__(
        self,
        oracle: Oracle,
        watcher: Watcher,
        *,
        slots: int,
        window: int,
        grid: int,
        vocabulary: int,
        parts: Parts,
        row_invariant: bool,
        workspace: bool = False,
    ) -> None:
        """Makes an engine whose slots are empty.

        Args:
            workspace: whether a prefill says that it takes memory beside the state.
        """
        super().__init__(
            slots=slots,
            window=window,
            grid=grid,
            vocabulary=vocabulary,
            parts=parts,
            row_invariant=row_invariant,
            workspace_floor_bytes=WORKSPACE_BYTES * workspace,
            workspace_row_bytes=WORKSPACE_BYTES // window * workspace,
            workspace_bytes_max=2 * WORKSPACE_BYTES * workspace,
        )
        self._oracle = oracle
        self._watcher = watcher
        self._watched = tuple(
            WatchedState(
                slot,
                layout=self._states[slot].layout,
                window=window,
                grid=grid,
                row_invariant=row_invariant,
                copies=self.copies,
            )
            for slot in range(slots)
        )
        self._states = self._watched
        self._readers = [StateReader(state, oracle) for state in self.slots]

    @property
    def slots(self) -> Sequence[WatchedState]:
        return self._watched

    @property
    def spoils(self) -> int:
        """How often a slot's rows were lost to a forward that failed."""
        return sum(state.spoils for state in self._watched)

    def watch_rows(self, watcher: RowsWatcher) -> None:
        """Tell whoever counts on rows what happens to them."""
        for state in self._watched:
            state.watcher = watcher

    def prefill(self, slot: int, chunk: TokenIds) -> Logits:
        node = self._before(slot, chunk, Writer.PREFILL)
        logits = super().prefill(slot, chunk)
        self._after(slot, node, chunk, Writer.PREFILL)
        return logits

    def decode(self, inputs: Sequence[DecodeInput]) -> Sequence[Logits]:
        begun = [
            (one.slot, ids, self._before(one.slot, ids, Writer.DECODE))
            for one in inputs
            for ids in [token_ids([one.token])]
        ]
        logits = super().decode(inputs)
        for slot, ids, node in begun:
            self._after(slot, node, ids, Writer.DECODE)
        return logits

    def node_of(self, slot: int, realm: Realm) -> Node:
        """The honest state that stands in a slot.

        Raises:
            Violation: it is no state that was ever left in this realm.
        """
        return self._readers[slot].node(realm)

    def _before(self, slot: int, ids: TokenIds, writer: Writer) -> Node:
        start = self.slots[slot].length
        realm = self._watcher.about_to_forward(slot, Span(start, start + len(ids)), ids, writer)
        return self._readers[slot].node(realm)

    def _after(self, slot: int, node: Node, ids: TokenIds, writer: Writer) -> None:
        child = self._oracle.child(node, ids, writer)
        self._oracle.left(child)
        if self._readers[slot].node(node.realm).key != child.key:
            violated("state", f"slot {slot} holds another state than its forwards lead to")
        self._watcher.forwarded(slot, child, writer)


def is_of_its_tiles(sections: Mapping[str, npt.NDArray[Any]], node: Node) -> bool:
    """Whether what row-invariant sections keep beside their state is a node's; else there is none.

    The arithmetic of tiles is written down a second time here.
    """
    if "tile" not in sections:
        return True
    opened = sections["open_rows"]
    line = node.line - node.line % len(opened)
    expected = [node.tokens_at(at) for at in range(line + 1, node.line + 1)]
    return (
        int(sections["tile"][0]) == (node.tokens_at(line) if line else 0)
        and opened[: len(expected)].tolist() == expected
        and not opened[len(expected) :].any()
    )


class StateReader:
    """Tells which honest state stands in a slot."""

    def __init__(self, state: CheckableState, oracle: Oracle) -> None:
        """Takes a slot's state; it is read through its port only."""
        self._state = state
        self._oracle = oracle
        window = state.window
        self._rows = Rows(window)
        self._honest = HonestRows(window)
        self._words = {
            section.name: np.zeros(section.shape, section.dtype)
            for section in state.layout.sections
        }
        self._section_bytes = {name: word.view(np.uint8) for name, word in self._words.items()}

    def node(self, realm: Realm) -> Node:
        """Which it is; every byte has been compared.

        Raises:
            Violation: it is none that was ever left in this realm.
        """
        line = self._state.length
        if self._state.layout.views and line:
            self._state.export_rows(Span(0, line), self._rows.as_bytes(line))
        if line == 0:
            return self._oracle.root(realm)
        tokens, bits_after = self._figures(line)
        node = self._oracle.known(realm, line, tokens, bits_after)
        if node is None:
            violated("state", f"the state at line {line} is none that was ever left in {realm}")
        if not is_of_its_tiles(self._words, node):
            violated("state", f"the tiles of the state at line {line} are not those of its tokens")
        if self._state.layout.views:
            self._honest.show(node)
            if not self._rows.equals(self._honest, line):
                violated("state", f"rows below line {line} are not those of the state's history")
        return node

    def _figures(self, line: int) -> tuple[int, int]:
        if self._state.layout.sections:
            self._state.export_sections(self._section_bytes)
            if int(self._words["count"][0]) != line:
                violated("state", f"sections of line {self._words['count'][0]} at line {line}")
            return int(self._words["tokens"][0]), int(self._words["bits_after"][0])
        return int(self._rows.prefix[line - 1]), self._rows.bits_after(line)
