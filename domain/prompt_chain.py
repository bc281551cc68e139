"""The prefix keys of one prompt, computed once and asked for at any line."""

from .grid import Grid
from .namespace import Namespace
from .prefix_key import PrefixKey, extend, root_key
from .tokens import TokenIds


class PromptChain:
    """Keys at grid lines, chained, and at lines off the grid on demand."""

    def __init__(self, key_ids: TokenIds, namespace: Namespace, grid: Grid) -> None:
        """Takes the key ids; keys are computed when they are first asked for."""
        self._key_ids = key_ids
        self._grid = grid
        self._keys = [root_key(namespace)]

    @property
    def length(self) -> int:
        """How many tokens the prompt has."""
        return len(self._key_ids)

    @property
    def grid(self) -> Grid:
        """Whose lines have their keys kept."""
        return self._grid

    def key(self, line: int) -> PrefixKey:
        """The key at `line`, in [0, `length`].

        Off the grid it is the key of the grid line below, extended by the ids between the two, and
        costs a pass over them with every call.
        """
        # A key of fewer ids than its line has would be kept, and name another prompt's state.
        assert 0 <= line <= self.length, f"line {line} of {self.length} tokens"
        steps = line // self._grid.step
        while len(self._keys) <= steps:
            start = (len(self._keys) - 1) * self._grid.step
            self._keys.append(
                extend(self._keys[-1], self._key_ids[start : start + self._grid.step])
            )
        below = steps * self._grid.step
        if below == line:
            return self._keys[steps]
        return extend(self._keys[steps], self._key_ids[below:line])
