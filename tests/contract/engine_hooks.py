"""What every part of the engine contract needs of the engine under test."""

from abc import ABC, abstractmethod

from anchorline.domain.errors import StateError
from anchorline.domain.tokens import TokenIds
from anchorline.ports.engine import Engine
from contract.readings import Reading, prefill_to, read, some_ids

GRID = 8
WINDOW = 8 * GRID
PROMPT = 4 * GRID + 3
"""A prompt that ends inside a chunk."""

REFUSED = (AssertionError, KeyError, ValueError, StateError)
"""How an engine may refuse what its caller must not do."""


class EngineHooks(ABC):
    """How an engine is made, and how it is made to fail.

    Attributes:
        vocabulary: ids are drawn below it; override it where a model has fewer tokens.
    """

    vocabulary: int = 64

    @abstractmethod
    def make_engine(self, *, slots: int = 1, window: int = WINDOW, grid: int = GRID) -> Engine:
        """A new engine; two that are made alike compute the same bits."""

    @abstractmethod
    def fail_next_forward(self, engine: Engine) -> None:
        """Go behind the port's back: the next forward fails halfway, after writing some rows."""

    def ids(self, count: int, seed: int = 1) -> TokenIds:
        return some_ids(count, seed=seed, vocabulary=self.vocabulary)

    def cold(self, ids: TokenIds, line: int | None = None) -> Reading:
        """The state that a new engine's prefill of `ids` on the grid leaves at `line`."""
        engine = self.make_engine()
        return read(engine.slots[0], prefill_to(engine, 0, ids, line))
