"""The prefix keys of one prompt, computed once and asked for at any line."""

import hashlib

import numpy as np

from .grid import Grid
from .namespace import Namespace
from .prefix_key import KEY_BYTES, PrefixKey, extend, root_key
from .tokens import TokenIds


class PromptChain:
    """Keys at grid lines, chained, and at lines off the grid on demand."""

    def __init__(self, key_ids: TokenIds, namespace: Namespace, grid: Grid) -> None:
        """Takes the key ids; keys are computed when they are first asked for."""
        self._key_ids = np.ascontiguousarray(key_ids, dtype="<u4")  # as they are hashed
        self._namespace = namespace
        self._grid = grid
        self._keys = {0: root_key(namespace)}  # at grid lines, without gaps
        self._bytes = self._key_ids.data
        self._partial = (0, hashlib.sha256())

    @property
    def length(self) -> int:
        """How many tokens the prompt has."""
        return len(self._key_ids)

    @property
    def namespace(self) -> Namespace:
        """Whose keys they are."""
        return self._namespace

    @property
    def grid(self) -> Grid:
        """Whose lines have their keys kept."""
        return self._grid

    def key(self, line: int) -> PrefixKey:
        """The key at `line`, in [0, `length`].

        Off the grid it is the key of the grid line below, extended by the ids between the two, and
        costs a pass over them; over those above the line asked for last, if that is between the
        two.
        """
        known = self._keys.get(line)
        if known is not None:
            return known
        # A key of fewer ids than its line has would be kept, and name another prompt's state.
        assert 0 <= line <= self.length, f"line {line} of {self.length} tokens"
        below = self._grid.floor(line)
        if below not in self._keys:
            self._read_up_to(below)
        return self._keys[line] if below == line else self._off_grid(below, line)

    def _read_up_to(self, line: int) -> None:
        """Have the keys at all grid lines up to this one."""
        step = self._grid.step
        for at in self._grid.lines((len(self._keys) - 1) * step, line):
            self._keys[at] = extend(self._keys[at - step], self._key_ids[at - step : at])

    def _off_grid(self, below: int, line: int) -> PrefixKey:
        """As `extend` has it, from the grid line `below`."""
        # What stands here is replaced and never changed: several threads may ask for keys.
        start, hashed = self._partial
        if not below < start <= line:
            start, hashed = below, hashlib.sha256(self._keys[below])
        hashed = hashed.copy()
        hashed.update(self._bytes[start:line])
        self._partial = (line, hashed)
        return PrefixKey(hashed.digest()[:KEY_BYTES])
