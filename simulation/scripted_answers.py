"""An engine whose greedy answers are told to it; all else is the engine's that it is put before."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ..domain.layout import Layout
from ..domain.sampling import Logits
from ..domain.tokens import TokenIds
from ..ports.engine import DecodeInput, Engine, EngineProfile
from ..ports.gpu_state import SlotState, StateCopies

_ABOVE_ALL: Final = np.float32(1e9)


class ScriptedAnswers:
    """Implements `ports.engine.Engine` for one request at a time.

    Attributes:
        script: the next answer. Once it is written the engine says what it likes.
    """

    def __init__(self, engine: Engine, layout: Layout | None = None) -> None:
        """Takes an engine.

        Args:
            layout: what is told of its state's size, for budgets of a larger model. Only where
                nobody exports that state.
        """
        self._engine = engine
        profile = engine.profile
        self._profile = profile if layout is None else replace(profile, layout=layout)
        self._written = 0
        self.script: TokenIds = np.empty(0, dtype=np.uint32)

    @property
    def profile(self) -> EngineProfile:
        return self._profile

    @property
    def slots(self) -> Sequence[SlotState]:
        return self._engine.slots

    @property
    def copies(self) -> StateCopies:
        return self._engine.copies

    def prefill(self, slot: int, chunk: TokenIds) -> Logits:
        self._written = 0
        return self._scripted(self._engine.prefill(slot, chunk))

    def decode(self, inputs: Sequence[DecodeInput]) -> Sequence[Logits]:
        assert len(inputs) == 1, f"{len(inputs)} answers at once, and one script"
        (logits,) = self._engine.decode(inputs)
        self._written += 1
        return [self._scripted(logits)]

    def _scripted(self, logits: Logits) -> Logits:
        if self._written < len(self.script):
            logits[int(self.script[self._written])] = _ABOVE_ALL
        return logits
