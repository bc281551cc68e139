"""How much scratch memory the forward of a chunk takes, by the context it ends at.

bytes                        . . . . . . . . . . .   what was observed, on top
      |               . - - - - - - - - - - - - -    bytes_max
      |        . -
      | - '                                          floor_bytes + row_bytes * context
      +------------------------------------------
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class WorkspaceModel:
    """The engine's own estimate, raised by every prefill that took more.

    What one context took beyond its estimate every longer one is expected to take beyond its own;
    shorter ones are left alone, down to the power of two below. It is never lowered.

    Attributes:
        floor_bytes: of a chunk with nothing before it.
        row_bytes: on top, per token of context.
        bytes_max: where the estimate ends; an observation goes beyond it.
        raised: ascending contexts, each with the bytes on top of the estimate from there on,
            ascending as well. As many as there are powers of two at most.
    """

    floor_bytes: int
    row_bytes: int
    bytes_max: int
    raised: tuple[tuple[int, int], ...] = ()

    def nbytes(self, context_tokens: int) -> int:
        """What a chunk that ends at this line is expected to take; never less for a longer one."""
        return self._estimate(context_tokens) + self._raised_by(context_tokens)

    def observed(self, context_tokens: int, bytes_used: int) -> "WorkspaceModel":
        """The model after a chunk that ended at a line has taken so many bytes."""
        if bytes_used <= self.nbytes(context_tokens):
            return self
        start = 1 << (context_tokens.bit_length() - 1) if context_tokens > 0 else 0
        excess = bytes_used - self._estimate(context_tokens)
        below = [point for point in self.raised if point[0] < start]
        above = [point for point in self.raised if point[0] > start and point[1] > excess]
        return replace(self, raised=(*below, (start, excess), *above))

    def _estimate(self, context_tokens: int) -> int:
        return min(self.floor_bytes + self.row_bytes * context_tokens, self.bytes_max)

    def _raised_by(self, context_tokens: int) -> int:
        return max((excess for start, excess in self.raised if start <= context_tokens), default=0)


NO_WORKSPACE = WorkspaceModel(0, 0, 0)
"""Of a pool in which no forward runs."""
