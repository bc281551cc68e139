"""Rows as they must be: those of an honest state, laid out beside the ones that stand in a slot."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..adapters.memory.checkable_state import fold
from .oracle import Node

Bytes: TypeAlias = npt.NDArray[np.uint8]


class Rows:
    """The views of a slot, as far as the window goes."""

    def __init__(self, window: int) -> None:
        self.prefix = np.zeros(window, np.uint64)
        self.bits = np.zeros(window, np.uint64)
        self.writer = np.zeros(window, np.uint8)
        self._bytes = {
            "prefix": self.prefix.view(np.uint8),
            "bits": self.bits.view(np.uint8),
            "writer": self.writer,
        }

    def as_bytes(self, line: int) -> dict[str, Bytes]:
        """Buffers for the rows below `line`."""
        found = self._bytes
        return {
            "prefix": found["prefix"][: 8 * line],
            "bits": found["bits"][: 8 * line],
            "writer": found["writer"][:line],
        }

    def write(self, node: Node) -> None:
        """The rows of a node's last forward."""
        start = node.line - len(node.prefix)
        self.prefix[start : node.line] = node.prefix
        self.bits[start : node.line] = node.bits
        self.writer[start : node.line] = node.mark

    def equals(self, other: "Rows", line: int, *, start: int = 0) -> bool:
        """Whether the rows below `line` are those of the other one from `start` on."""
        end = start + line
        return (
            np.array_equal(self.bits[:line], other.bits[start:end])
            and np.array_equal(self.prefix[:line], other.prefix[start:end])
            and np.array_equal(self.writer[:line], other.writer[start:end])
        )

    def bits_after(self, line: int) -> int:
        """What an engine without sections goes on from."""
        return fold(int(self.bits[line - 1]))


class HonestRows(Rows):
    """The rows of one honest state at a time."""

    def __init__(self, window: int) -> None:
        """Those of the empty state."""
        super().__init__(window)
        self._path: dict[int, Node] = {}

    def show(self, node: Node) -> None:
        """Lay the honest rows out, from where the last ones are still right."""
        new: list[Node] = []
        at: Node | None = node
        while at is not None and at.line and self._path.get(at.line) is not at:
            new.append(at)
            at = at.parent
        kept = 0 if at is None else at.line
        if new:
            self._path = {line: one for line, one in self._path.items() if line <= kept}
        for one in reversed(new):
            self.write(one)
            self._path[one.line] = one
