"""What a failed forward may cost."""

import pytest

from anchorline.domain.errors import EngineError
from anchorline.domain.grid import Span
from anchorline.ports.engine import DecodeInput
from contract.engine_hooks import GRID, PROMPT, EngineHooks
from contract.readings import (
    differences,
    exported_rows,
    prefill_to,
    read,
)


class EngineFailureContract(EngineHooks):
    """One slot until line 0, and nothing else."""

    # --- failure --------------------------------------------------------------------------------

    def test_after_a_failed_prefill_a_slot_recovers_at_line_0(self) -> None:
        ids = self.ids(PROMPT)
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(2 * GRID, seed=2))
        self.fail_next_forward(engine)

        with pytest.raises(EngineError):
            engine.prefill(0, self.ids(GRID, seed=3))
        engine.slots[0].resume_at(0)
        logits = prefill_to(engine, 0, ids)

        assert differences(read(engine.slots[0], logits), self.cold(ids)) == []

    def test_after_a_failed_decode_a_slot_recovers_at_line_0(self) -> None:
        ids = self.ids(PROMPT)
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(2 * GRID, seed=2))
        self.fail_next_forward(engine)

        with pytest.raises(EngineError):
            engine.decode([DecodeInput(0, 1)])
        engine.slots[0].resume_at(0)
        logits = prefill_to(engine, 0, ids)

        assert differences(read(engine.slots[0], logits), self.cold(ids)) == []

    def test_a_failed_forward_touches_no_slot_it_does_not_name(self) -> None:
        ids = self.ids(PROMPT)
        engine = self.make_engine(slots=2)
        prefill_to(engine, 0, ids, 2 * GRID)
        prefill_to(engine, 1, self.ids(GRID, seed=2))
        self.fail_next_forward(engine)

        with pytest.raises(EngineError):
            engine.prefill(1, self.ids(GRID, seed=3))
        logits = prefill_to(engine, 0, ids)

        assert differences(read(engine.slots[0], logits), self.cold(ids)) == []

    def test_copies_survive_a_failed_forward(self) -> None:
        ids = self.ids(PROMPT)
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, ids, 2 * GRID)
        rows, anchor = exported_rows(state, Span(0, 2 * GRID)), state.capture_sections()
        self.fail_next_forward(engine)
        with pytest.raises(EngineError):
            engine.prefill(0, self.ids(GRID, seed=3))
        state.resume_at(0)

        state.import_rows(Span(0, 2 * GRID), rows)
        state.restore_sections(anchor)
        state.resume_at(2 * GRID)

        assert differences(read(state, prefill_to(engine, 0, ids)), self.cold(ids)) == []
