"""Copies of sections: owned, immutable and counted."""

import numpy as np
import pytest

from anchorline.domain.anchor import SectionsHandle
from contract.engine_hooks import GRID, PROMPT, REFUSED, EngineHooks
from contract.readings import (
    Reading,
    as_bytes,
    decode_all,
    differences,
    exported_sections,
    prefill_to,
    read,
)


class SectionCopiesContract(EngineHooks):
    """Capture, restore, release."""

    # --- copies of sections ---------------------------------------------------------------------

    def test_a_captured_state_is_a_copy_that_later_forwards_do_not_change(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        ids = self.ids(PROMPT)
        prefill_to(engine, 0, ids, GRID)
        expected = as_bytes(exported_sections(state))
        anchor = state.capture_sections()

        prefill_to(engine, 0, ids)
        decode_all(engine, 0, self.ids(3, seed=2))
        state.resume_at(0)
        prefill_to(engine, 0, self.ids(PROMPT, seed=3))
        state.restore_sections(anchor)

        assert as_bytes(exported_sections(state)) == expected

    def test_a_restored_copy_can_be_restored_again(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        ids = self.ids(PROMPT)
        prefill_to(engine, 0, ids, 2 * GRID)
        anchor = state.capture_sections()
        readings: list[Reading] = []

        for seed in (2, 3, 4):
            prefill_to(engine, 0, np.concatenate([ids[: 2 * GRID], self.ids(GRID, seed=seed)]))
            state.restore_sections(anchor)
            state.resume_at(2 * GRID)
            readings.append(read(state, prefill_to(engine, 0, ids)))
            state.restore_sections(anchor)
            state.resume_at(2 * GRID)

        assert state.captured()[0] == 1
        assert [differences(reading, self.cold(ids)) for reading in readings] == [[], [], []]

    def test_a_copy_carries_the_line_of_the_sections_in_place(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        ids = self.ids(PROMPT)
        prefill_to(engine, 0, ids, GRID)
        low = state.capture_sections()
        prefill_to(engine, 0, ids)

        # Rows up to PROMPT still stand here, and the sections are of GRID.
        state.restore_sections(low)
        again = state.capture_sections()
        state.resume_at(GRID)
        prefill_to(engine, 0, ids)

        state.restore_sections(again)
        state.resume_at(GRID)
        assert differences(read(state, prefill_to(engine, 0, ids)), self.cold(ids)) == []

    def test_capturing_into_a_live_handle_replaces_what_it_held(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        ids = self.ids(PROMPT)
        prefill_to(engine, 0, ids, GRID)
        handle = state.capture_sections()
        prefill_to(engine, 0, ids, 2 * GRID)
        before = state.captured()

        assert state.capture_sections(into=handle) == handle
        assert state.captured() == before

        prefill_to(engine, 0, ids)
        state.restore_sections(handle)
        state.resume_at(2 * GRID)
        assert differences(read(state, prefill_to(engine, 0, ids)), self.cold(ids)) == []

    def test_copies_do_not_share_buffers(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        ids = self.ids(4 * GRID)
        lines = [GRID, 2 * GRID, 3 * GRID, 4 * GRID]
        kept: dict[int, tuple[int, dict[str, bytes]]] = {}
        handles: dict[int, SectionsHandle] = {}
        for line in lines:
            prefill_to(engine, 0, ids, line)
            handles[line] = state.capture_sections()
            kept[line] = (line, as_bytes(exported_sections(state)))

        assert len(set(handles.values())) == len(lines)
        for line in reversed(lines):
            state.restore_sections(handles[line])
            state.resume_at(line)
            assert (state.length, as_bytes(exported_sections(state))) == kept[line]

    def test_released_buffers_are_used_again_so_bytes_stay_flat(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(GRID))
        handles = [state.capture_sections() for _ in range(3)]
        assert state.captured() == (3, 3 * state.layout.section_bytes)

        for _ in range(20):
            state.release_sections(handles.pop(0))
            assert state.captured() == (2, 3 * state.layout.section_bytes)
            handles.append(state.capture_sections())
            assert state.captured() == (3, 3 * state.layout.section_bytes)

    def test_a_buffer_used_again_holds_the_new_state(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        ids = self.ids(PROMPT)
        prefill_to(engine, 0, ids, GRID)
        state.release_sections(state.capture_sections())
        prefill_to(engine, 0, ids, 2 * GRID)

        handle = state.capture_sections()
        prefill_to(engine, 0, self.ids(PROMPT, seed=2))
        state.restore_sections(handle)
        state.resume_at(2 * GRID)

        assert differences(read(state, prefill_to(engine, 0, ids)), self.cold(ids)) == []

    def test_a_released_handle_is_dead(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(GRID))
        handle = state.capture_sections()
        state.release_sections(handle)

        with pytest.raises(REFUSED):
            state.restore_sections(handle)
        with pytest.raises(REFUSED):
            state.release_sections(handle)
        with pytest.raises(REFUSED):
            state.capture_sections(into=handle)
