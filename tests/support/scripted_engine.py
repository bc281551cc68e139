"""An engine that writes what a test tells it to, and that a test can hold between two forwards."""

import threading
from collections.abc import Sequence

from anchorline.adapters.memory.checkable_engine import CheckableEngine, Forward
from anchorline.adapters.memory.toy_tokenizer import TURN_END, VOCABULARY, ToyTokenizer
from anchorline.domain.sampling import Logits
from anchorline.domain.tokens import TokenIds
from anchorline.ports.engine import DecodeInput

PATIENCE_S = 20.0
"""How long a test waits for what must happen; only a failing one waits so long."""


class ScriptedEngine(CheckableEngine):
    """A checkable engine whose greedy answers are `script`, then the end of the turn."""

    def __init__(self, *, slots: int = 1, window: int = 4096, grid: int = 64) -> None:
        super().__init__(
            slots=slots, window=window, grid=grid, vocabulary=VOCABULARY, on_forward=self._pass
        )
        self.script = "Hello"
        self.held = threading.Event()
        """Set once a forward stands before the closed gate."""
        self._open = threading.Event()
        self._open.set()
        self._permits = threading.Semaphore(0)
        self._written = dict.fromkeys(range(slots), 0)

    def hold(self) -> None:
        """Let no forward pass from now on."""
        self.held.clear()
        self._open.clear()

    def let(self, forwards: int = 1) -> None:
        """Let some forwards pass and wait until the next one stands before the gate."""
        for _ in range(forwards):
            assert self.held.wait(PATIENCE_S), "no forward came"
            self.held.clear()
            self._permits.release()
        assert self.held.wait(PATIENCE_S), "no further forward came"

    def release(self) -> None:
        """Open the gate."""
        self._open.set()
        self._permits.release()

    def prefill(self, slot: int, chunk: TokenIds) -> Logits:
        self._written[slot] = 0
        return self._scripted(slot, super().prefill(slot, chunk))

    def decode(self, inputs: Sequence[DecodeInput]) -> Sequence[Logits]:
        outputs = super().decode(inputs)
        for entry in inputs:
            self._written[entry.slot] += 1
        return [
            self._scripted(entry.slot, logits)
            for entry, logits in zip(inputs, outputs, strict=True)
        ]

    def _scripted(self, slot: int, logits: Logits) -> Logits:
        ids = [int(index) for index in ToyTokenizer().encode(self.script)]
        at = self._written[slot]
        logits[ids[at] if at < len(ids) else TURN_END] += 1000
        return logits

    def _pass(self, _: Forward) -> None:
        if self._open.is_set():
            return
        self.held.set()
        assert self._permits.acquire(timeout=PATIENCE_S), "the gate was never opened"
