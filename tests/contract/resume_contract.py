"""Resuming equals never having stopped, and happens at the state's own line only."""

import numpy as np
import pytest

from anchorline.domain.errors import WrongLine
from anchorline.domain.grid import Span
from contract.engine_hooks import GRID, PROMPT, WINDOW, EngineHooks
from contract.readings import (
    decode_all,
    differences,
    exported_sections,
    move_rows,
    move_state,
    prefill_to,
    read,
)


class ResumeContract(EngineHooks):
    """Grid lines, ends, and wrong lines."""

    # --- resuming -------------------------------------------------------------------------------

    @pytest.mark.parametrize("line", [GRID, 2 * GRID, 4 * GRID])
    def test_resume_at_a_grid_line_equals_a_cold_prefill(self, line: int) -> None:
        ids, branch = self.ids(PROMPT), self.ids(WINDOW, seed=2)
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, ids, line)
        anchor = state.capture_sections()
        prefill_to(engine, 0, branch)

        state.restore_sections(anchor)
        state.resume_at(line)
        logits = prefill_to(engine, 0, ids)

        assert differences(read(state, logits), self.cold(ids)) == []

    def test_decoding_after_a_resume_equals_decoding_after_a_cold_prefill(self) -> None:
        ids, tokens = self.ids(PROMPT), self.ids(5, seed=3)
        cold = self.make_engine()
        prefill_to(cold, 0, ids)
        expected = read(cold.slots[0], decode_all(cold, 0, tokens))
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, ids, 2 * GRID)
        anchor = state.capture_sections()
        prefill_to(engine, 0, self.ids(PROMPT, seed=4))

        state.restore_sections(anchor)
        state.resume_at(2 * GRID)
        prefill_to(engine, 0, ids)

        assert differences(read(state, decode_all(engine, 0, tokens)), expected) == []

    def test_what_stood_in_a_slot_before_leaves_no_trace(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(WINDOW - GRID, seed=2))
        decode_all(engine, 0, self.ids(GRID, seed=3))

        state.resume_at(0)
        ids = self.ids(PROMPT)
        logits = prefill_to(engine, 0, ids)

        assert differences(read(state, logits), self.cold(ids)) == []

    def test_the_end_of_a_generation_resumes_as_if_it_had_never_been_left(self) -> None:
        ids, first, second = self.ids(PROMPT), self.ids(6, seed=2), self.ids(6, seed=3)
        uninterrupted = self.make_engine()
        prefill_to(uninterrupted, 0, ids)
        decode_all(uninterrupted, 0, first)
        expected = read(uninterrupted.slots[0], decode_all(uninterrupted, 0, second))
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, ids)
        decode_all(engine, 0, first)
        line, end = state.length, state.capture_sections()
        decode_all(engine, 0, self.ids(9, seed=4))

        state.restore_sections(end)
        state.resume_at(line)
        logits = decode_all(engine, 0, second)

        assert differences(read(state, logits), expected) == []

    def test_a_turn_after_the_end_equals_the_uninterrupted_conversation(self) -> None:
        ids, answer = self.ids(PROMPT), self.ids(6, seed=2)
        turn = np.concatenate([ids, answer, self.ids(GRID, seed=3)])
        uninterrupted = self.make_engine()
        prefill_to(uninterrupted, 0, ids)
        decode_all(uninterrupted, 0, answer)
        expected = read(uninterrupted.slots[0], prefill_to(uninterrupted, 0, turn))
        engine = self.make_engine(slots=2)
        prefill_to(engine, 0, ids)
        decode_all(engine, 0, answer)

        move_state(engine.slots[0], engine.slots[1])
        logits = prefill_to(engine, 1, turn)

        assert differences(read(engine.slots[1], logits), expected) == []

    def test_row_invariant_arithmetic_writes_the_same_bits_in_any_pieces(self) -> None:
        if not self.make_engine().profile.row_invariant:
            pytest.skip("this engine does not claim row-invariant arithmetic")
        ids = self.ids(PROMPT)
        engine = self.make_engine()
        engine.prefill(0, ids[:3])
        engine.prefill(0, ids[3:GRID])
        decode_all(engine, 0, ids[GRID : 2 * GRID + 5])

        logits = prefill_to(engine, 0, ids)

        assert differences(read(engine.slots[0], logits), self.cold(ids)) == []

    # --- lines ----------------------------------------------------------------------------------

    def test_restored_sections_resume_at_their_own_line_only(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        if not state.layout.sections:
            pytest.skip("a state without sections is rows, and rows can be cut anywhere")
        ids = self.ids(PROMPT)
        prefill_to(engine, 0, ids, GRID)
        anchor = state.capture_sections()
        prefill_to(engine, 0, ids)

        state.restore_sections(anchor)
        for wrong in (GRID - 1, GRID + 1, 2 * GRID, PROMPT):
            with pytest.raises(WrongLine):
                state.resume_at(wrong)
        state.resume_at(GRID)

        assert differences(read(state, prefill_to(engine, 0, ids)), self.cold(ids)) == []

    def test_sections_in_place_are_of_the_length_and_of_no_other_line(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        if not state.layout.sections:
            pytest.skip("a state without sections is rows, and rows can be cut anywhere")
        prefill_to(engine, 0, self.ids(PROMPT))
        before = read(state)

        for wrong in (GRID, PROMPT - 1, PROMPT + 1):
            with pytest.raises(WrongLine):
                state.resume_at(wrong)

        assert differences(read(state), before) == []
        state.resume_at(PROMPT)
        assert differences(read(state), before) == []

    def test_imported_sections_resume_at_the_declared_line_only(self) -> None:
        engine = self.make_engine(slots=2)
        source, target = engine.slots
        if not source.layout.sections:
            pytest.skip("a state without sections is rows, and rows can be cut anywhere")
        prefill_to(engine, 0, self.ids(2 * GRID))
        move_rows(source, target, Span(0, 2 * GRID))
        target.import_sections(2 * GRID, exported_sections(source))

        with pytest.raises(WrongLine):
            target.resume_at(GRID)
        target.resume_at(2 * GRID)

        assert differences(read(target), read(source)) == []

    def test_line_0_can_always_be_resumed_and_zeroes_the_sections(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))
        anchor = state.capture_sections()

        state.resume_at(0)
        assert state.length == 0
        assert not any(data.any() for data in exported_sections(state).values())

        state.restore_sections(anchor)
        state.resume_at(0)
        assert not any(data.any() for data in exported_sections(state).values())

    def test_trim_to_the_length_changes_nothing(self) -> None:
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(PROMPT))
        before = read(engine.slots[0])

        assert engine.slots[0].trim(PROMPT)

        assert differences(read(engine.slots[0]), before) == []

    def test_trim_is_refused_without_effect_where_sections_have_absorbed_more(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        if not state.layout.sections:
            pytest.skip("a state without sections is rows, and rows can be cut anywhere")
        ids = self.ids(PROMPT)
        prefill_to(engine, 0, ids, 2 * GRID)
        decode_all(engine, 0, self.ids(3, seed=2))
        before = read(state)

        for line in (0, GRID, 2 * GRID, state.length - 1):
            assert not state.trim(line)

        assert differences(read(state), before) == []

    def test_trim_cuts_a_state_without_sections_anywhere(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        if state.layout.sections:
            pytest.skip("sections cannot be rewound")
        ids = self.ids(PROMPT)
        prefill_to(engine, 0, ids, 2 * GRID)
        prefill_to(engine, 0, self.ids(WINDOW, seed=2))

        assert state.trim(2 * GRID)
        assert state.length == 2 * GRID

        assert differences(read(state, prefill_to(engine, 0, ids)), self.cold(ids)) == []
