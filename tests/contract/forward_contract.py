"""What a forward does to a slot, and what it leaves alone."""

import numpy as np
import pytest

from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.grid import Span
from anchorline.ports.engine import DecodeInput
from anchorline.ports.gpu_state import CopyCounts
from contract.engine_hooks import GRID, PROMPT, REFUSED, WINDOW, EngineHooks
from contract.readings import (
    as_bytes,
    decode_all,
    differences,
    exported_rows,
    exported_sections,
    prefill_to,
    read,
    without_logits,
)


class ForwardContract(EngineHooks):
    """Prefill, decode, and several slots."""

    # --- what is constant -----------------------------------------------------------------------

    def test_an_engine_has_the_slots_that_were_asked_for(self) -> None:
        engine = self.make_engine(slots=3)

        assert len(engine.slots) == 3
        assert engine.profile.grid.step == GRID
        assert engine.profile.window >= WINDOW
        assert all(slot.layout == engine.profile.layout for slot in engine.slots)

    def test_engines_made_alike_have_one_fingerprint(self) -> None:
        one = fingerprint_of(self.make_engine().profile.facts)
        other = fingerprint_of(self.make_engine().profile.facts)

        assert one == other

    def test_the_grid_decides_bits_so_it_is_a_fact(self) -> None:
        engine = self.make_engine()
        other = self.make_engine(grid=2 * GRID)
        if engine.profile.row_invariant:
            pytest.skip("row-invariant arithmetic writes the same bits on every grid")

        assert fingerprint_of(engine.profile.facts) != fingerprint_of(other.profile.facts)

    # --- forwards -------------------------------------------------------------------------------

    def test_a_new_slot_is_empty(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]

        assert state.length == 0
        assert engine.copies.counts() == CopyCounts(0, 0, 0, 0, 0)
        assert not any(data.any() for data in exported_sections(state).values())

    def test_a_prefill_chunk_moves_the_length_and_gives_finite_logits(self) -> None:
        engine = self.make_engine()

        logits = engine.prefill(0, self.ids(GRID))

        assert engine.slots[0].length == GRID
        assert logits.shape == (engine.profile.vocabulary,)
        assert logits.dtype == np.float32
        assert np.isfinite(logits).all()

    def test_decode_moves_the_length_by_one_and_gives_finite_logits(self) -> None:
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(3))

        (logits,) = engine.decode([DecodeInput(0, 5)])

        assert engine.slots[0].length == 4
        assert logits.shape == (engine.profile.vocabulary,)
        assert logits.dtype == np.float32
        assert np.isfinite(logits).all()

    def test_logits_are_the_callers_own(self) -> None:
        engine = self.make_engine()
        ids = self.ids(2 * GRID)
        first = engine.prefill(0, ids[:GRID])
        kept = first.copy()

        engine.prefill(0, ids[GRID:])
        assert np.array_equal(first, kept)

        first.fill(0.0)
        after = engine.decode([DecodeInput(0, 1)])[0]
        other = self.make_engine()
        prefill_to(other, 0, ids)
        assert np.array_equal(after, other.decode([DecodeInput(0, 1)])[0])

    def test_a_prefill_does_not_keep_or_change_its_chunk(self) -> None:
        ids = self.ids(2 * GRID)
        chunk = ids[:GRID].copy()
        engine = self.make_engine()

        engine.prefill(0, chunk)
        assert np.array_equal(chunk, ids[:GRID])
        chunk.fill(0)
        engine.prefill(0, ids[GRID:])

        assert differences(read(engine.slots[0]), without_logits(self.cold(ids))) == []

    def test_two_cold_prefills_of_the_same_ids_are_equal(self) -> None:
        ids = self.ids(PROMPT)

        assert differences(self.cold(ids), self.cold(ids)) == []

    def test_one_other_token_changes_the_state_and_the_logits(self) -> None:
        ids = self.ids(PROMPT)
        changed = ids.copy()
        changed[-2] = (changed[-2] + 1) % self.vocabulary

        found = differences(self.cold(ids), self.cold(changed))

        # Were the state or the logits a constant, every other comparison here would hold.
        assert found[0] == "logits"
        assert len(found) > 1

    def test_what_came_first_is_remembered(self) -> None:
        ids = self.ids(PROMPT)
        changed = ids.copy()
        changed[0] = (changed[0] + 1) % self.vocabulary

        one, other = without_logits(self.cold(ids)), without_logits(self.cold(changed))

        assert differences(one, other) != []

    def test_a_forward_leaves_the_rows_below_it_alone(self) -> None:
        engine = self.make_engine()
        ids = self.ids(3 * GRID)
        below = Span(0, 2 * GRID)
        prefill_to(engine, 0, ids, below.end)
        before = as_bytes(exported_rows(engine.slots[0], below))

        engine.prefill(0, ids[below.end :])
        decode_all(engine, 0, self.ids(3, seed=2))

        assert as_bytes(exported_rows(engine.slots[0], below)) == before

    def test_the_window_can_be_filled_to_its_last_row(self) -> None:
        engine = self.make_engine()
        window = engine.profile.window
        ids = self.ids(window)
        prefill_to(engine, 0, ids, window - 1)

        (logits,) = engine.decode([DecodeInput(0, int(ids[-1]))])

        assert engine.slots[0].length == window
        assert np.isfinite(logits).all()

    def test_a_chunk_across_a_grid_line_is_refused_and_changes_nothing(self) -> None:
        engine = self.make_engine()
        ids = self.ids(2 * GRID)
        prefill_to(engine, 0, ids, GRID - 2)
        before = read(engine.slots[0])

        with pytest.raises(REFUSED):
            engine.prefill(0, ids[GRID - 2 : GRID + 1])

        assert differences(read(engine.slots[0]), before) == []

    def test_tokens_beyond_the_window_are_refused(self) -> None:
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(engine.profile.window))

        with pytest.raises(REFUSED):
            engine.decode([DecodeInput(0, 1)])

    def test_an_empty_chunk_is_refused(self) -> None:
        engine = self.make_engine()

        with pytest.raises(REFUSED):
            engine.prefill(0, self.ids(0))

    # --- several slots --------------------------------------------------------------------------

    def test_slots_do_not_disturb_each_other(self) -> None:
        first, second = self.ids(PROMPT), self.ids(PROMPT + 2, seed=2)
        engine = self.make_engine(slots=2)
        for line in (GRID, 2 * GRID, 3 * GRID, 4 * GRID):
            prefill_to(engine, 0, first, line)
            prefill_to(engine, 1, second, line)

        logits = prefill_to(engine, 0, first), prefill_to(engine, 1, second)

        assert differences(read(engine.slots[0], logits[0]), self.cold(first)) == []
        assert differences(read(engine.slots[1], logits[1]), self.cold(second)) == []

    def test_one_slot_twice_in_a_batch_is_refused(self) -> None:
        engine = self.make_engine(slots=2)
        prefill_to(engine, 0, self.ids(GRID))

        with pytest.raises(REFUSED):
            engine.decode([DecodeInput(0, 1), DecodeInput(0, 2)])

    def test_decoding_several_slots_equals_decoding_one_by_one(self) -> None:
        prompts = [self.ids(PROMPT), self.ids(GRID, seed=2), self.ids(3, seed=3)]
        tokens = self.ids(6, seed=4)
        together, apart = self.make_engine(slots=3), self.make_engine(slots=3)
        for slot, ids in enumerate(prompts):
            prefill_to(together, slot, ids)
            prefill_to(apart, slot, ids)

        for at, token in enumerate(tokens):
            # A batch may hold any of the slots, in any order.
            slots = [[0, 1, 2], [2, 0], [1], [2, 1, 0], [1, 2], [0]][at]
            batch = together.decode([DecodeInput(slot, int(token)) for slot in slots])
            single = [apart.decode([DecodeInput(slot, int(token))])[0] for slot in slots]
            assert [row.tobytes() for row in batch] == [row.tobytes() for row in single]

        for one, other in zip(together.slots, apart.slots, strict=True):
            assert differences(read(one), read(other)) == []
