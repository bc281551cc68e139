"""What the taint line says of a state, against the state itself.

The checkable engine's state tells how it was computed. So every gate that the rules give out can
be compared with the truth, for any history of prefills, decodes and resumes.
"""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from anchorline.adapters.memory.checkable_engine import (
    CheckableEngine,
    ColdState,
    cold_state,
    exported,
)
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.domain.anchor import Anchor, AnchorKind
from anchorline.domain.grid import Span
from anchorline.domain.taint_line import Gate, TaintLine, Writer
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.ports.engine import DecodeInput

GRIDS = st.sampled_from([1, 3, 8])
GRID_MAX = 8
WINDOW = 128
VOCABULARY = 97

PREFILLS = st.tuples(st.just("prefill"), st.integers(1, 3 * GRID_MAX))
DECODES = st.tuples(st.just("decode"), st.integers(1, GRID_MAX + 2))
RESUMES = st.tuples(st.just("resume"), st.integers(0, 99))
HISTORIES = st.lists(st.one_of(PREFILLS, DECODES, RESUMES), min_size=1, max_size=14)


@dataclass(frozen=True)
class Kept:
    """An anchor, and the state as it stood when it was taken."""

    anchor: Anchor
    state: ColdState


class Conversation:
    """One slot, driven as a cache drives it, and its taint line, kept by the rules."""

    def __init__(self, *, grid: int, parts: Parts, row_invariant: bool) -> None:
        self.parts = parts
        self.engine = CheckableEngine(
            window=WINDOW, grid=grid, parts=parts, row_invariant=row_invariant
        )
        self.state = self.engine.slots[0]
        self.grid = self.engine.profile.grid
        self.row_invariant = row_invariant
        self.taint = TaintLine()
        self.ids: list[int] = []
        self.kept: list[Kept] = []
        self._next = 0

    def prefill(self, count: int) -> None:
        end = min(self.state.length + count, WINDOW)
        for chunk in self.grid.chunks(self.state.length, end):
            self.engine.prefill(0, token_ids([self._token() for _ in range(len(chunk))]))
            self._forwarded(chunk, Writer.PREFILL)
            if self.grid.has(chunk.end):
                self._keep(AnchorKind.GRID)

    def decode(self, count: int) -> None:
        for _ in range(min(count, WINDOW - self.state.length)):
            start = self.state.length
            self.engine.decode([DecodeInput(0, self._token())])
            self._forwarded(Span(start, start + 1), Writer.DECODE)
        self._keep(AnchorKind.END)

    def resume(self, which: int) -> None:
        """Go back to an anchor, and judge the gate it is resumed under."""
        if not self.kept:
            return
        kept = self.kept[which % len(self.kept)]
        line = kept.anchor.line
        gate = self.taint.gate(line, kept.anchor.kind, self.row_invariant)
        self.state.restore_sections(kept.anchor.handle)
        self.state.resume_at(line)
        self.taint = self.taint.resumed(line)
        del self.ids[line:]
        self.kept = [other for other in self.kept if other.anchor.line <= line]
        self._judge(kept, gate)

    def _judge(self, kept: Kept, gate: Gate) -> None:
        state = exported(self.state)
        assert state == kept.state, "the anchor and the rows are not what they were"
        if gate is Gate.BITWISE:
            assert state == self.cold(), "told bitwise, and is not equal to a cold prefill"
        elif kept.anchor.kind is AnchorKind.GRID:
            assert state != self.cold(), "told preserved, and could have been told bitwise"

    def cold(self, line: int | None = None) -> ColdState:
        return cold_state(
            self.tokens()[:line],
            self.grid.step,
            parts=self.parts,
            row_invariant=self.row_invariant,
        )

    def tokens(self) -> TokenIds:
        return token_ids(self.ids)

    def _token(self) -> int:
        self._next += 1
        self.ids.append(self._next * 31 % VOCABULARY)
        return self.ids[-1]

    def _forwarded(self, span: Span, writer: Writer) -> None:
        self.taint = self.taint.forwarded(span, writer, self.grid, self.row_invariant)

    def _keep(self, kind: AnchorKind) -> None:
        handle = self.state.capture_sections()
        self.kept.append(Kept(Anchor(self.state.length, kind, handle), exported(self.state)))


def run(conversation: Conversation, history: list[tuple[str, int]]) -> None:
    for what, number in history:
        match what:
            case "prefill":
                conversation.prefill(number)
            case "decode":
                conversation.decode(number)
            case _:
                conversation.resume(number)


@given(HISTORIES, GRIDS, st.sampled_from(Parts), st.booleans())
def test_every_gate_that_is_told_is_true(
    history: list[tuple[str, int]], grid: int, parts: Parts, row_invariant: bool
) -> None:
    conversation = Conversation(grid=grid, parts=parts, row_invariant=row_invariant)
    run(conversation, history)

    while conversation.kept:
        conversation.resume(len(conversation.kept) - 1)
        conversation.kept.pop()


@given(HISTORIES, GRIDS)
def test_rows_below_a_clean_grid_line_are_those_of_a_cold_prefill(
    history: list[tuple[str, int]], grid: int
) -> None:
    conversation = Conversation(grid=grid, parts=Parts.HYBRID, row_invariant=False)
    run(conversation, history)

    line = conversation.grid.floor(conversation.taint.line)
    cold, state = conversation.cold(line), exported(conversation.state)

    for name, data in cold.rows.items():
        assert state.rows[name][: len(data)] == data


@given(HISTORIES, GRIDS)
def test_row_invariant_arithmetic_never_has_a_tainted_row(
    history: list[tuple[str, int]], grid: int
) -> None:
    conversation = Conversation(grid=grid, parts=Parts.HYBRID, row_invariant=True)
    run(conversation, history)

    assert conversation.taint.line == conversation.state.length
    assert exported(conversation.state) == conversation.cold()
