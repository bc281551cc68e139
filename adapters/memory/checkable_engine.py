"""An engine without a model, whose state says what it is the state of.

A verified fake: it passes the contract suite that the torch engine passes.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...domain.errors import EngineError
from ...domain.grid import Grid, Span
from ...domain.sampling import Logits
from ...domain.taint_line import Writer
from ...domain.tokens import TokenIds
from ...ports.engine import DecodeInput, EngineProfile
from .checkable_copies import CheckableCopies
from .checkable_state import CheckableState, Parts, layout_of, mixed

FORWARDS_KEPT: Final = 4096
"""How many forwards an engine remembers for its tests."""

_WRITTEN_BONUS: Final = np.float32(16.0)
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Forward:
    """One slot's part in one call."""

    slot: int
    span: Span
    writer: Writer


class CheckableEngine:
    """Implements `ports.engine.Engine`; its state can be checked exactly, see `CheckableState`.

    What it models: a cold prefill on the grid repeats bit for bit; rows that decode wrote, rows of
    a short chunk, and everything above such rows have other `bits` than a cold prefill's; any
    wrong state below a forward (other tokens, another line, stale or exchanged rows, a changed
    byte) changes the rows, the sections and the logits of it and of every later one; a forward
    that fails leaves garbage behind.

    What it does not model: rounding, so honest states of the same tokens have the same logits
    whatever their bits; copies that are still under way when a call returns; exhausted memory.

    Attributes:
        forwards: the last `FORWARDS_KEPT` forwards, oldest first.
        tokens_forwarded: by all forwards so far.
    """

    def __init__(
        self,
        *,
        slots: int = 1,
        window: int = 4096,
        grid: int = 64,
        vocabulary: int = 97,
        parts: Parts = Parts.HYBRID,
        row_invariant: bool = False,
        model: str = "checkable",
        prefill_tokens_per_s: float = 1000.0,
        workspace_floor_bytes: int = 0,
        workspace_row_bytes: int = 0,
        workspace_bytes_max: int = 0,
        writes: Sequence[int] = (),
        on_forward: Callable[[Forward], None] | None = None,
    ):
        """Makes an engine; engines of equal arguments compute equal bits.

        Args:
            writes: ids that the engine prefers over all others, so that its text is made of them;
                empty for no preference.
            on_forward: called before each slot's forward: the place to let a clock go on.
        """
        layout = layout_of(parts, row_invariant=row_invariant)
        self._copies = CheckableCopies(layout, window=window, block=grid)
        self._states = tuple(
            CheckableState(
                layout=layout, window=window, row_invariant=row_invariant, copies=self._copies
            )
            for _ in range(slots)
        )
        self._profile = EngineProfile(
            model=model,
            grid=Grid(grid),
            window=window,
            vocabulary=vocabulary,
            layout=layout,
            row_invariant=row_invariant,
            prefill_tokens_per_s=prefill_tokens_per_s,
            workspace_floor_bytes=workspace_floor_bytes,
            workspace_row_bytes=workspace_row_bytes,
            workspace_bytes_max=workspace_bytes_max,
            facts=_facts(self._states[0], grid, vocabulary, row_invariant),
        )
        self._spread = np.arange(vocabulary, dtype=np.uint64) * _GOLDEN
        self._bonus = np.zeros(vocabulary, dtype=np.float32)
        self._bonus[list(writes)] = _WRITTEN_BONUS
        self._on_forward = on_forward
        self._fails_after: int | None = None
        self.forwards: deque[Forward] = deque(maxlen=FORWARDS_KEPT)
        self.tokens_forwarded = 0

    @property
    def profile(self) -> EngineProfile:
        return self._profile

    @property
    def slots(self) -> Sequence[CheckableState]:
        return self._states

    @property
    def copies(self) -> CheckableCopies:
        return self._copies

    def prefill(self, slot: int, chunk: TokenIds) -> Logits:
        start = self._states[slot].length
        line = self._profile.grid.floor(start) + self._profile.grid.step
        assert start + len(chunk) <= line, f"{len(chunk)} tokens at {start} reach over line {line}"
        return self._forward(slot, chunk, Writer.PREFILL)

    def decode(self, inputs: Sequence[DecodeInput]) -> Sequence[Logits]:
        slots = [entry.slot for entry in inputs]
        assert len(set(slots)) == len(slots), f"a slot stands twice among {slots}"
        try:
            return [
                self._forward(entry.slot, np.array([entry.token], dtype=np.uint32), Writer.DECODE)
                for entry in inputs
            ]
        except EngineError:
            # A batch is one forward: it fails for every slot it names.
            for slot in slots:
                self._states[slot].spoil()
            raise

    def fail_next_forward(self, *, after: int = 0) -> None:
        """Make a forward fail: the next one, or the one after `after` more."""
        self._fails_after = after

    def _forward(self, slot: int, ids: TokenIds, writer: Writer) -> Logits:
        state = self._states[slot]
        assert not len(ids) or int(ids.max()) < self._profile.vocabulary, "an id has no embedding"
        forward = Forward(slot, Span(state.length, state.length + len(ids)), writer)
        if self._on_forward is not None:
            self._on_forward(forward)
        self._fail_if_due(state)
        logits = self._logits(state.forward(ids, writer))
        self.forwards.append(forward)
        self.tokens_forwarded += len(ids)
        return logits

    def _fail_if_due(self, state: CheckableState) -> None:
        if self._fails_after is None:
            return
        self._fails_after -= 1
        if self._fails_after < 0:
            self._fails_after = None
            state.spoil()
            raise EngineError("this forward was told to fail")

    def _logits(self, tokens: int) -> Logits:
        """24 bits of a word per id, as a number from 0 to 8."""
        words = mixed(self._spread + np.uint64(tokens)) >> np.uint64(40)
        return words.astype(np.float32) * np.float32(2.0**-21) + self._bonus


def _facts(
    state: CheckableState, grid: int, vocabulary: int, row_invariant: bool
) -> Mapping[str, str]:
    """What decides the bits, for the fingerprint."""
    return {
        "arithmetic": "exact-1" if row_invariant else f"grid-{grid}",
        "layout": state.layout.digest(),
        "vocabulary": str(vocabulary),
        "weights": "checkable-1",
    }


@dataclass(frozen=True, slots=True)
class ColdState:
    """What a cold prefill on the grid leaves: bytes by part, as the port exports them."""

    rows: Mapping[str, bytes]
    sections: Mapping[str, bytes]


def cold_state(
    ids: TokenIds,
    grid: int,
    *,
    parts: Parts = Parts.HYBRID,
    row_invariant: bool = False,
) -> ColdState:
    """The reference for a state that resumed under the bitwise gate: no cache, one prefill."""
    vocabulary = int(ids.max()) + 1 if len(ids) else 1
    engine = CheckableEngine(
        window=max(len(ids), 1),
        grid=grid,
        vocabulary=vocabulary,
        parts=parts,
        row_invariant=row_invariant,
    )
    for chunk in engine.profile.grid.chunks(0, len(ids)):
        engine.prefill(0, ids[chunk.start : chunk.end])
    return exported(engine.slots[0])


def exported(state: CheckableState) -> ColdState:
    """A state's bytes, to compare with a cold one's."""
    layout, length = state.layout, state.length
    rows = {view.name: np.empty(length * view.row_bytes, np.uint8) for view in layout.views}
    sections = {section.name: np.empty(section.nbytes, np.uint8) for section in layout.sections}
    state.export_rows(Span(0, length), rows)
    state.export_sections(sections)
    return ColdState(
        rows={name: data.tobytes() for name, data in rows.items()},
        sections={name: data.tobytes() for name, data in sections.items()},
    )
