"""Copies of sections: owned, immutable and counted."""

import numpy as np
import pytest

from anchorline.domain.anchor import SectionsHandle
from anchorline.domain.grid import Span
from anchorline.ports.gpu_state import CopyCounts
from contract.engine_hooks import GRID, PROMPT, REFUSED, EngineHooks
from contract.readings import (
    Reading,
    as_bytes,
    copied_sections,
    decode_all,
    differences,
    exported_rows,
    exported_sections,
    prefill_to,
    read,
    section_buffers,
    summed,
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

        assert engine.copies.counts().sections == 1
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
        before = engine.copies.counts()

        assert state.capture_sections(into=handle) == handle
        assert engine.copies.counts() == before
        assert engine.copies.sections_line(handle) == 2 * GRID

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
        full = engine.copies.counts()
        each = full.section_bytes // 3
        assert full == CopyCounts(0, 0, 3, 3 * each, 0)
        assert each >= state.layout.section_bytes

        for _ in range(20):
            state.release_sections(handles.pop(0))
            assert engine.copies.counts() == CopyCounts(0, 0, 2, 2 * each, each)
            handles.append(state.capture_sections())
            assert engine.copies.counts() == full

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

        copies = engine.copies
        for use in (
            lambda: state.restore_sections(handle),
            lambda: state.release_sections(handle),
            lambda: state.capture_sections(into=handle),
            lambda: copies.export_sections(handle, section_buffers(state.layout)),
            lambda: copies.section_sums(handle),
            lambda: copies.sections_line(handle),
            lambda: copies.release_sections(handle),
        ):
            with pytest.raises(REFUSED):
                use()

    # --- between slots, and as bytes ------------------------------------------------------------

    def test_a_copy_belongs_to_the_engine_so_another_slot_resumes_from_it(self) -> None:
        ids = self.ids(PROMPT)
        engine = self.make_engine(slots=2)
        prefill_to(engine, 0, ids, 2 * GRID)
        prefill_to(engine, 1, self.ids(PROMPT, seed=2))
        anchor, rows = (
            engine.slots[0].capture_sections(),
            engine.slots[0].capture_rows(Span(0, 2 * GRID)),
        )
        prefill_to(engine, 0, ids)

        engine.slots[1].restore_rows(rows)
        engine.slots[1].restore_sections(anchor)
        engine.slots[1].resume_at(2 * GRID)

        assert differences(read(engine.slots[1], prefill_to(engine, 1, ids)), self.cold(ids)) == []

    def test_another_slot_can_capture_over_a_copy_and_release_it(self) -> None:
        engine = self.make_engine(slots=2)
        prefill_to(engine, 0, self.ids(GRID))
        prefill_to(engine, 1, self.ids(2 * GRID, seed=2))
        handle = engine.slots[0].capture_sections()
        expected = as_bytes(exported_sections(engine.slots[1]))

        assert engine.slots[1].capture_sections(into=handle) == handle
        assert as_bytes(copied_sections(engine, handle)) == expected

        engine.slots[1].release_sections(handle)
        assert engine.copies.counts().sections == 0

    def test_a_copy_as_bytes_is_the_sections_it_was_captured_from(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))
        expected, sums = exported_sections(state), dict(state.section_sums())
        handle = state.capture_sections()
        prefill_to(engine, 0, self.ids(PROMPT + 2), PROMPT + 2)

        assert as_bytes(copied_sections(engine, handle)) == as_bytes(expected)
        assert list(engine.copies.section_sums(handle)) == list(sums)
        assert dict(engine.copies.section_sums(handle)) == sums == summed(expected)
        assert engine.copies.sections_line(handle) == PROMPT

    def test_a_copy_made_of_bytes_resumes_as_a_captured_one_does(self) -> None:
        ids = self.ids(PROMPT)
        before, after = self.make_engine(), self.make_engine()
        prefill_to(before, 0, ids, 2 * GRID)
        rows = exported_rows(before.slots[0], Span(0, 2 * GRID))
        sections = exported_sections(before.slots[0])

        state = after.slots[0]
        handle = after.copies.new_sections(2 * GRID, sections)
        for data in sections.values():
            data.fill(0x5A)
        state.import_rows(Span(0, 2 * GRID), rows)
        state.restore_sections(handle)
        state.resume_at(2 * GRID)

        assert differences(read(state, prefill_to(after, 0, ids)), self.cold(ids)) == []

    def test_bytes_that_are_no_sections_of_the_layout_make_no_copy(self) -> None:
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(GRID))
        sections = exported_sections(engine.slots[0])
        line = engine.profile.window + 1

        with pytest.raises(REFUSED):
            engine.copies.new_sections(line, sections)
        for name, data in sections.items():
            with pytest.raises(REFUSED):
                engine.copies.new_sections(GRID, {**sections, name: data[:-1]})

        assert engine.copies.counts().sections == 0

    def test_free_buffers_are_given_back_and_live_copies_are_not(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(GRID))
        handles = [state.capture_sections() for _ in range(3)]
        each = engine.copies.counts().section_bytes // 3
        expected = as_bytes(exported_sections(state))
        for handle in handles[:2]:
            engine.copies.release_sections(handle)

        assert engine.copies.give_back() == 2 * each
        assert engine.copies.give_back() == 0
        assert engine.copies.counts() == CopyCounts(0, 0, 1, each, 0)
        assert as_bytes(copied_sections(engine, handles[2])) == expected
