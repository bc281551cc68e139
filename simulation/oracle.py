"""What the states of the checkable engine must be, computed beside it and never read from it.

A state is a node in a tree: it goes back to the empty state through the forwards that made it.
The same forwards from the same node always lead to the same node, so that a history is followed at
the cost of its new tokens alone. The arithmetic is written down a second time here, for honest
states only, where it needs no pass over the rows below.
"""

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ..adapters.memory.checkable_state import (
    WRITER_MARKS,
    Parts,
    expected_prefix_hash,
    expected_prefixes,
    fold,
    mixed,
)
from ..domain.end import End
from ..domain.grid import Grid, Span
from ..domain.namespace import Namespace
from ..domain.taint_line import Writer
from ..domain.tokens import TokenIds

Words: TypeAlias = npt.NDArray[np.uint64]

_PREFILL: Final = WRITER_MARKS[Writer.PREFILL]
_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF
_POSITION: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Realm:
    """Whose states may meet: those of one arithmetic and one namespace."""

    weights: str
    namespace: Namespace


@dataclass(slots=True, eq=False)
class Node:
    """One honest state.

    Attributes:
        number: unique in its oracle.
        parent: the state before its last forward; None for the empty one.
        tokens: a running hash of the tokens it has absorbed.
        bits_after: what the next forward goes on from, besides the rows.
        attended: a word of all rows, as a forward reads them.
        prefix: the rows that the last forward wrote, and `bits` beside them.
        mark: who wrote them.
    """

    number: int
    realm: Realm
    parent: "Node | None" = None
    line: int = 0
    tokens: int = 0
    bits_after: int = 0
    attended: int = 0
    prefix: Words = field(default_factory=lambda: np.zeros(0, np.uint64))
    bits: Words = field(default_factory=lambda: np.zeros(0, np.uint64))
    mark: int = 0

    def tokens_at(self, line: int) -> int:
        """What `tokens` was at a line at or below this state's; 0 at line 0."""
        at: Node = self
        while at.parent is not None and at.parent.line >= line:
            at = at.parent
        if line == at.line:
            return at.tokens
        return int(at.prefix[line - at.line + len(at.prefix) - 1])

    @property
    def key(self) -> tuple[Realm, int, int, int]:
        """What tells it from every other state."""
        return self.realm, self.line, self.tokens, self.bits_after

    def is_cold(self, step: int) -> bool:
        """Whether it was prefilled in whole chunks from the empty state on, up to a grid line."""
        at = self
        while at.parent is not None:
            whole = at.parent.line % step == 0 and at.line - at.parent.line == step
            if at.mark != _PREFILL or not whole:
                return False
            at = at.parent
        return True


class Oracle:
    """The states that an engine may have, and those that it really had."""

    def __init__(self, parts: Parts = Parts.HYBRID, *, row_invariant: bool = False) -> None:
        """Takes what decides the bits; nothing was forwarded yet."""
        self.parts = parts
        self._row_invariant = row_invariant
        self._numbers = itertools.count()
        self._roots: dict[Realm, Node] = {}
        self._children: dict[tuple[int, bytes, int], Node] = {}
        self._left: dict[tuple[Realm, int, int, int], Node] = {}
        self._cold: Counter[tuple[Namespace, int, int]] = Counter()
        self._ends: set[tuple[Namespace, int, End]] = set()
        self._regions: set[tuple[Namespace, int, Span]] = set()

    @property
    def size(self) -> int:
        """How many states are remembered."""
        return len(self._children)

    def root(self, realm: Realm) -> Node:
        """The empty state."""
        if realm not in self._roots:
            self._roots[realm] = Node(next(self._numbers), realm)
        return self._roots[realm]

    def child(self, node: Node, ids: TokenIds, writer: Writer) -> Node:
        """The state after one more forward."""
        way = (node.number, ids.tobytes(), WRITER_MARKS[writer])
        found = self._children.get(way)
        if found is None:
            found = self._children[way] = self._forwarded(node, ids, WRITER_MARKS[writer])
        return found

    def cold(self, realm: Realm, ids: TokenIds, grid: Grid) -> Node:
        """The state after a cold prefill."""
        node = self.root(realm)
        for chunk in grid.chunks(0, len(ids)):
            node = self.child(node, ids[chunk.start : chunk.end], Writer.PREFILL)
        return node

    def hashed(self, ids: TokenIds) -> int:
        """What `Node.tokens` is of a state that has absorbed exactly `ids`."""
        return expected_prefix_hash(ids)

    def left(self, node: Node) -> None:
        """An engine has really left this state behind."""
        self._left.setdefault(node.key, node)

    def known(self, realm: Realm, line: int, tokens: int, bits_after: int) -> Node | None:
        """The state of those figures, if an engine ever left it in this realm."""
        if line == 0:
            return self.root(realm)
        return self._left.get((realm, line, tokens, bits_after))

    def begun_cold(self, namespace: Namespace, prompt: TokenIds, grid: Grid, start: int) -> None:
        """A prefill of a prompt has begun at a line: it passes the grid lines above."""
        prefixes = expected_prefixes(prompt)
        for line in grid.lines(start, len(prompt)):
            self._cold[namespace, line, int(prefixes[line - 1])] += 1

    def times_cold(self, namespace: Namespace, prompt: TokenIds, line: int) -> int:
        """How many prefills of these tokens passed a line, at most."""
        return self._cold[namespace, line, expected_prefix_hash(prompt[:line])]

    def ended(self, namespace: Namespace, ids: TokenIds, end: End) -> None:
        """A generation has stopped after these tokens, and this is what is known of its end."""
        self._ends.add((namespace, expected_prefix_hash(ids), end))
        for region in end.regions:
            self._regions.add((namespace, expected_prefix_hash(ids[: region.end]), region))

    def has_ended(self, namespace: Namespace, ids: TokenIds, end: End) -> bool:
        """Whether one ever has, just so.

        In row-invariant arithmetic a medium keeps any highest line as an end, of what generations
        wrote below it.
        """
        if (namespace, expected_prefix_hash(ids), end) in self._ends:
            return True
        return (
            self._row_invariant
            and not end.hidden
            and all(
                (namespace, expected_prefix_hash(ids[: region.end]), region) in self._regions
                for region in end.regions
            )
        )

    def _forwarded(self, node: Node, ids: TokenIds, mark: int) -> Node:
        start, count = node.line, len(ids)
        positions = np.arange(start, start + count, dtype=np.uint64)
        prefix = np.cumsum(
            mixed((positions << np.uint64(32)) | ids.astype(np.uint64)), dtype=np.uint64
        )
        prefix += np.uint64(node.tokens)
        made_by = 0
        if self._row_invariant:
            mark = WRITER_MARKS[Writer.PREFILL]
        else:
            made_by = fold(node.bits_after, node.attended, 0, start, count, mark)
        bits = mixed(prefix + np.uint64(made_by))
        attended = 0
        if self.parts is not Parts.RECURRENT:
            placed = (bits ^ ((positions + np.uint64(1)) * _POSITION)) + np.uint64(mark)
            attended = (node.attended + int(mixed(placed).sum(dtype=np.uint64))) & _WORD
        return Node(
            number=next(self._numbers),
            realm=node.realm,
            parent=node,
            line=start + count,
            tokens=int(prefix[-1]),
            bits_after=fold(int(bits[-1])),
            attended=attended,
            prefix=prefix,
            bits=bits,
            mark=mark,
        )
