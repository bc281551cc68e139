"""What runs a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.grid import Grid
from ..domain.layout import Layout
from ..domain.sampling import Logits
from ..domain.tokens import TokenIds
from .gpu_state import SlotState, StateCopies


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """What is true of an engine for as long as it lives.

    Attributes:
        model: the name it is served under.
        grid: the lines its prefill chunks end at.
        window: tokens a slot can hold.
        vocabulary: entries of a logits vector.
        layout: the parts of a slot's state.
        row_invariant: whether a row's bits are independent of how many rows are forwarded
            together; proved at load, never believed.
        prefill_tokens_per_s: the rate assumed before the first measurement.
        workspace_floor_bytes: scratch memory of the shortest prefill chunk.
        workspace_row_bytes: scratch memory per token of context on top.
        workspace_bytes_max: scratch memory never exceeds this.
        facts: what decides the bits of a row, for the fingerprint.
        arithmetic: which one that is, and what its proof found; for people, in one line.
    """

    model: str
    grid: Grid
    window: int
    vocabulary: int
    layout: Layout
    row_invariant: bool
    prefill_tokens_per_s: float
    workspace_floor_bytes: int
    workspace_row_bytes: int
    workspace_bytes_max: int
    facts: Mapping[str, str]
    arithmetic: str = ""


@dataclass(frozen=True, slots=True)
class DecodeInput:
    """One slot's next token; it is forwarded at the slot's length."""

    slot: int
    token: int


class Engine(Protocol):
    """A model with N slots. All calls are made on the engine thread and block until done.

    A call that raises `EngineError` leaves the state of the slots it names undefined: the caller
    resumes them at line 0 before using them again. Copies stay valid.
    """

    @property
    def profile(self) -> EngineProfile:
        """Constant."""
        ...

    @property
    def slots(self) -> Sequence[SlotState]:
        """Constant; each has rows of its own."""
        ...

    @property
    def copies(self) -> StateCopies:
        """Constant: the copies of state that any of the slots has captured, or will restore."""
        ...

    def prefill(self, slot: int, chunk: TokenIds) -> Logits:
        """Forward one chunk at the slot's length.

        Args:
            slot: index into `slots`.
            chunk: shape (tokens,), not empty; it ends at or before the next grid line.

        Returns:
            The logits after the chunk's last token; shape (vocabulary,), the caller's own.

        Raises:
            EngineError: the forward failed.
        """
        ...

    def decode(self, inputs: Sequence[DecodeInput]) -> Sequence[Logits]:
        """Forward one token in each of several different slots; logits in the same order.

        Raises:
            EngineError: the forward failed.
        """
        ...
