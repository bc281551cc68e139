"""Copies of rows: owned, immutable but for a swap, counted, and of the engine."""

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from anchorline.domain.anchor import RowsHandle, SectionsHandle
from anchorline.domain.errors import EngineError
from anchorline.domain.grid import Span
from anchorline.domain.sums import NO_SUMS, Sums
from anchorline.ports.engine import DecodeInput, Engine
from anchorline.ports.gpu_state import RowsPlace
from contract.engine_hooks import GRID, PROMPT, REFUSED, WINDOW, EngineHooks
from contract.readings import (
    Seen,
    as_bytes,
    copied_rows,
    decode_all,
    differences,
    exported_rows,
    exported_sections,
    prefill_to,
    read,
    row_buffers,
    summed,
)

BLOCK = Span(GRID, 2 * GRID)
"""A whole grid step, which has rows on both sides."""


class RowCopiesContract(EngineHooks):
    """Capture, restore, swap, bytes, release."""

    # --- capture and restore --------------------------------------------------------------------

    def test_captured_rows_are_a_copy_that_nothing_written_over_them_changes(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))
        expected = as_bytes(exported_rows(state, BLOCK))
        handle = state.capture_rows(BLOCK)

        state.resume_at(0)
        prefill_to(engine, 0, self.ids(PROMPT, seed=2))
        decode_all(engine, 0, self.ids(3, seed=3))

        assert as_bytes(copied_rows(engine, handle)) == expected
        assert engine.copies.rows_span(handle) == BLOCK
        state.restore_rows(handle)
        assert as_bytes(exported_rows(state, BLOCK)) == expected

    def test_capturing_rows_changes_nothing_in_the_slot(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))
        before = read(state)

        state.capture_rows(Span(0, PROMPT))

        assert differences(read(state), before) == []

    def test_restoring_rows_changes_those_rows_and_nothing_else(self) -> None:
        engine = self.make_engine(slots=2)
        source, target = engine.slots
        prefill_to(engine, 0, self.ids(PROMPT))
        prefill_to(engine, 1, self.ids(PROMPT, seed=2))
        span = Span(GRID + 1, 2 * GRID - 1)
        handle = source.capture_rows(span)
        below, above = Span(0, span.start), Span(span.end, PROMPT)
        rest = [as_bytes(exported_rows(target, each)) for each in (below, above)]
        sections = as_bytes(exported_sections(target))

        for _ in range(2):  # the handle stays live, and unchanged
            target.restore_rows(handle)
            assert as_bytes(exported_rows(target, span)) == as_bytes(exported_rows(source, span))
            target.import_rows(span, row_buffers(target.layout, span))

        assert [as_bytes(exported_rows(target, each)) for each in (below, above)] == rest
        assert as_bytes(exported_sections(target)) == sections
        assert target.length == PROMPT

    def test_rows_above_the_length_are_still_those_that_were_written_last(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))
        above = Span(GRID, PROMPT)
        expected = as_bytes(exported_rows(state, above))

        state.resume_at(0)
        prefill_to(engine, 0, self.ids(GRID, seed=2))

        assert as_bytes(copied_rows(engine, state.capture_rows(above))) == expected

    def test_a_conversation_kept_in_copies_goes_on_in_another_slot(self) -> None:
        ids, tokens = self.ids(PROMPT), self.ids(4, seed=5)
        cold = self.make_engine()
        prefill_to(cold, 0, ids)
        expected = read(cold.slots[0], decode_all(cold, 0, tokens))
        engine = self.make_engine(slots=2)
        prefill_to(engine, 0, ids)
        blocks = [
            engine.slots[0].capture_rows(span) for span in engine.profile.grid.chunks(0, PROMPT)
        ]
        anchor = engine.slots[0].capture_sections()
        for slot in (0, 1):
            engine.slots[slot].resume_at(0)
            prefill_to(engine, slot, self.ids(WINDOW - 1, seed=2 + slot))

        state = engine.slots[1]
        for block in reversed(blocks):
            state.restore_rows(block)
        state.restore_sections(anchor)
        state.resume_at(PROMPT)

        assert differences(read(state, decode_all(engine, 1, tokens)), expected) == []

    # --- swap -----------------------------------------------------------------------------------

    def test_a_swap_exchanges_the_rows_and_changes_nothing_else(self) -> None:
        engine = self.make_engine(slots=2)
        source, target = engine.slots
        prefill_to(engine, 0, self.ids(PROMPT))
        prefill_to(engine, 1, self.ids(PROMPT, seed=2))
        handle = source.capture_rows(BLOCK)
        before, counts = read(target), engine.copies.counts()
        came, went = (as_bytes(exported_rows(state, BLOCK)) for state in (source, target))
        below = as_bytes(exported_rows(target, Span(0, BLOCK.start)))
        above = as_bytes(exported_rows(target, Span(BLOCK.end, PROMPT)))

        target.swap_rows(handle)

        assert as_bytes(exported_rows(target, BLOCK)) == came
        assert as_bytes(copied_rows(engine, handle)) == went
        assert as_bytes(exported_rows(target, Span(0, BLOCK.start))) == below
        assert as_bytes(exported_rows(target, Span(BLOCK.end, PROMPT))) == above
        assert engine.copies.rows_span(handle) == BLOCK
        assert engine.copies.counts() == counts
        target.swap_rows(handle)
        assert differences(read(target), before) == []
        assert as_bytes(copied_rows(engine, handle)) == came

    def test_two_conversations_take_turns_in_one_slot_by_swapping_blocks(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        first, second = self.ids(PROMPT), self.ids(PROMPT, seed=2)
        half = 2 * GRID
        spans = list(engine.profile.grid.chunks(0, half))
        prefill_to(engine, 0, first, half)
        blocks = [state.capture_rows(span) for span in spans]
        anchors = [state.capture_sections()]
        state.resume_at(0)
        prefill_to(engine, 0, second, half)
        anchors.append(state.capture_sections())

        # What comes in stood in the handles; what stood in the slot is there now.
        for ids, anchor in ((first, anchors[0]), (second, anchors[1])):
            for block in blocks:
                state.swap_rows(block)
            state.restore_sections(anchor)
            state.resume_at(half)
            logits = prefill_to(engine, 0, ids)
            assert differences(read(state, logits), self.cold(ids)) == []

    # --- as bytes -------------------------------------------------------------------------------

    @pytest.mark.parametrize("span", [Span(0, PROMPT), Span(1, 2), BLOCK, Span(3, 3)])
    def test_a_copy_as_bytes_is_the_rows_in_place(self, span: Span) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))
        expected, sums = exported_rows(state, span), dict(state.row_sums(span))
        handle = state.capture_rows(span)

        assert as_bytes(copied_rows(engine, handle)) == as_bytes(expected)
        assert list(engine.copies.row_sums(handle)) == list(sums)
        assert dict(engine.copies.row_sums(handle)) == sums == summed(expected)

    def test_a_copy_made_of_bytes_is_restored_as_a_captured_one_is(self) -> None:
        ids = self.ids(PROMPT)
        before, after = self.make_engine(), self.make_engine()
        prefill_to(before, 0, ids, 2 * GRID)
        sections = exported_sections(before.slots[0])
        state = after.slots[0]
        for span in before.profile.grid.chunks(0, 2 * GRID):
            rows = exported_rows(before.slots[0], span)
            handle = after.copies.new_rows(span)
            after.copies.import_rows(handle, rows)
            for data in rows.values():
                data.fill(0x5A)
            state.restore_rows(handle)

        state.import_sections(2 * GRID, sections)
        state.resume_at(2 * GRID)

        assert differences(read(state, prefill_to(after, 0, ids)), self.cold(ids)) == []

    def test_exported_rows_of_a_copy_are_the_callers_own(self) -> None:
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(PROMPT))
        handle = engine.slots[0].capture_rows(BLOCK)
        first = copied_rows(engine, handle)
        expected = as_bytes(first)

        for data in first.values():
            data.fill(0x5A)

        assert as_bytes(copied_rows(engine, handle)) == expected

    def test_buffers_of_another_size_are_refused_by_a_copy(self) -> None:
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(PROMPT))
        handle = engine.slots[0].capture_rows(BLOCK)

        for name in copied_rows(engine, handle):
            cut = row_buffers(engine.profile.layout, BLOCK)
            cut[name] = cut[name][:-1]
            with pytest.raises(REFUSED):
                engine.copies.import_rows(handle, cut)
            with pytest.raises(REFUSED):
                engine.copies.export_rows(handle, cut)
            with pytest.raises(REFUSED):
                engine.copies.export_summed_rows(handle, cut, None)

    def test_rows_that_lanes_bring_into_a_copy_are_its_rows_and_add_up_to_their_sums(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))
        span = Span(GRID, 3 * GRID)
        rows = exported_rows(state, span)
        handle = engine.copies.new_rows(span)
        place = engine.copies.place_rows(handle)
        if place is None:
            pytest.skip("this engine's copies come by the engine thread alone")

        sums = dict.fromkeys(rows, NO_SUMS)
        for name, data in rows.items():  # the last piece first, and none of the same length
            for start, end in ((48, len(data)), (8, 48), (0, 8)):
                piece = data[start:end]
                lane = threading.Thread(target=_bring, args=(place, name, start, piece, sums))
                lane.start()
                lane.join()

        assert as_bytes(copied_rows(engine, handle)) == as_bytes(rows)
        assert sums == dict(engine.copies.row_sums(handle)) == dict(state.row_sums(span))

    def test_rows_of_a_copy_that_are_summed_on_their_way_out_are_its_rows(self) -> None:
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(PROMPT))
        handle = engine.slots[0].capture_rows(BLOCK)
        seen, buffers = Seen(), row_buffers(engine.profile.layout, BLOCK)

        sums = engine.copies.export_summed_rows(handle, buffers, seen.look)

        expected = as_bytes(copied_rows(engine, handle))
        assert as_bytes(buffers) == expected
        assert dict(sums) == dict(engine.copies.row_sums(handle))
        assert seen.parts in ({}, expected)

    # --- counted --------------------------------------------------------------------------------

    def test_buffers_of_whole_blocks_are_used_again_so_bytes_stay_flat(self) -> None:
        engine = self.make_engine()
        state, copies = engine.slots[0], engine.copies
        prefill_to(engine, 0, self.ids(PROMPT))
        blocks = list(engine.profile.grid.chunks(0, 3 * GRID))
        handles = [state.capture_rows(span) for span in blocks]
        full = copies.counts()
        each = full.row_bytes // 3
        assert (full.rows, full.row_bytes, full.free_bytes) == (3, 3 * each, 0)
        assert each >= GRID * state.layout.row_bytes

        for turn in range(20):
            copies.release_rows(handles.pop(0))
            released = copies.counts()
            assert (released.rows, released.row_bytes, released.free_bytes) == (2, 2 * each, each)
            handles.append(state.capture_rows(blocks[turn % 3]))
            assert copies.counts() == full

    def test_memory_that_was_prepared_is_what_the_next_copies_of_blocks_take(self) -> None:
        engine = self.make_engine()
        state, copies = engine.slots[0], engine.copies
        prefill_to(engine, 0, self.ids(PROMPT))
        expected = as_bytes(exported_rows(state, BLOCK))
        copies.release_rows(state.capture_rows(BLOCK))
        each = copies.counts().free_bytes

        copies.prepare_rows()
        copies.prepare_rows()

        assert copies.counts().free_bytes == 3 * each
        handles = [state.capture_rows(BLOCK) for _ in range(3)]
        counts = copies.counts()
        assert (counts.rows, counts.row_bytes, counts.free_bytes) == (3, 3 * each, 0)
        assert all(as_bytes(copied_rows(engine, handle)) == expected for handle in handles)

    def test_buffers_of_other_spans_are_their_own_and_are_freed_at_once(self) -> None:
        engine = self.make_engine()
        state, copies = engine.slots[0], engine.copies
        prefill_to(engine, 0, self.ids(PROMPT))
        copies.release_rows(state.capture_rows(BLOCK))
        before = copies.counts()
        for span in (Span(4 * GRID, PROMPT), Span(0, 2 * GRID), Span(2, 3)):
            handle = state.capture_rows(span)
            assert copies.counts().free_bytes == before.free_bytes
            assert copies.counts().row_bytes >= len(span) * state.layout.row_bytes

            copies.release_rows(handle)

            assert copies.counts() == before

    def test_free_buffers_of_rows_are_given_back_and_live_ones_are_not(self) -> None:
        engine = self.make_engine()
        state, copies = engine.slots[0], engine.copies
        prefill_to(engine, 0, self.ids(PROMPT))
        expected = as_bytes(exported_rows(state, BLOCK))
        handles = [state.capture_rows(BLOCK) for _ in range(3)]
        each = copies.counts().row_bytes // 3
        for handle in handles[:2]:
            copies.release_rows(handle)

        assert copies.give_back() == 2 * each
        assert copies.give_back() == 0
        counts = copies.counts()
        assert (counts.rows, counts.row_bytes, counts.free_bytes) == (1, each, 0)
        assert as_bytes(copied_rows(engine, handles[2])) == expected

    def test_a_buffer_used_again_holds_the_new_rows_and_those_alone(self) -> None:
        engine = self.make_engine()
        state, copies = engine.slots[0], engine.copies
        prefill_to(engine, 0, self.ids(PROMPT))
        spans = list(engine.profile.grid.chunks(0, 4 * GRID))
        expected = {span: as_bytes(exported_rows(state, span)) for span in spans}
        copies.release_rows(state.capture_rows(spans[0]))

        handles = {span: state.capture_rows(span) for span in spans}
        state.resume_at(0)
        prefill_to(engine, 0, self.ids(PROMPT, seed=2))

        assert len(set(handles.values())) == len(spans)
        assert {span: as_bytes(copied_rows(engine, handles[span])) for span in spans} == expected

    def test_a_released_handle_of_rows_is_dead(self) -> None:
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(PROMPT))
        handle = engine.slots[0].capture_rows(BLOCK)
        engine.copies.release_rows(handle)
        again = engine.slots[0].capture_rows(BLOCK)  # its buffer has another owner

        assert again != handle
        for use in _uses(engine, handle):
            with pytest.raises(REFUSED):
                use()
        engine.copies.release_rows(again)

    def test_a_handle_of_rows_names_no_sections(self) -> None:
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(PROMPT))
        rows, sections = engine.slots[0].capture_rows(BLOCK), engine.slots[0].capture_sections()

        with pytest.raises(REFUSED):
            engine.copies.sections_line(SectionsHandle(int(rows)))
        with pytest.raises(REFUSED):
            engine.copies.rows_span(RowsHandle(int(sections)))

    def test_rows_beyond_the_window_are_refused_and_leave_no_handle(self) -> None:
        engine = self.make_engine()
        prefill_to(engine, 0, self.ids(GRID))
        window = engine.profile.window

        for span in (Span(window, window + 1), Span(0, window + 1)):
            with pytest.raises(REFUSED):
                engine.slots[0].capture_rows(span)
            with pytest.raises(REFUSED):
                engine.copies.new_rows(span)

        assert engine.copies.counts().rows == 0

    # --- failure --------------------------------------------------------------------------------

    def test_copies_of_rows_survive_a_failed_forward(self) -> None:
        ids = self.ids(PROMPT)
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, ids, 2 * GRID)
        blocks = [state.capture_rows(span) for span in engine.profile.grid.chunks(0, 2 * GRID)]
        anchor = state.capture_sections()
        self.fail_next_forward(engine)
        with pytest.raises(EngineError):
            engine.prefill(0, self.ids(GRID, seed=3))
        state.resume_at(0)

        for block in blocks:
            state.restore_rows(block)
        state.restore_sections(anchor)
        state.resume_at(2 * GRID)

        assert differences(read(state, prefill_to(engine, 0, ids)), self.cold(ids)) == []

    def test_rows_of_a_slot_whose_forward_failed_are_neither_kept_nor_exchanged(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(2 * GRID))
        handle = state.capture_rows(BLOCK)
        expected = as_bytes(copied_rows(engine, handle))
        self.fail_next_forward(engine)
        with pytest.raises(EngineError):
            engine.decode([DecodeInput(0, 1)])

        for use in (
            lambda: state.capture_rows(BLOCK),
            lambda: state.restore_rows(handle),
            lambda: state.swap_rows(handle),
        ):
            with pytest.raises(REFUSED):
                use()

        assert engine.copies.counts().rows == 1
        assert as_bytes(copied_rows(engine, handle)) == expected
        state.resume_at(0)
        state.restore_rows(handle)
        assert as_bytes(exported_rows(state, BLOCK)) == expected


def _uses(engine: Engine, handle: RowsHandle) -> list[Callable[[], object]]:
    """Everything that can be done with a handle of rows of `BLOCK`."""
    state, copies = engine.slots[0], engine.copies
    buffers = row_buffers(engine.profile.layout, BLOCK)
    return [
        lambda: state.restore_rows(handle),
        lambda: state.swap_rows(handle),
        lambda: copies.rows_span(handle),
        lambda: copies.import_rows(handle, buffers),
        lambda: copies.export_rows(handle, buffers),
        lambda: copies.export_summed_rows(handle, buffers, None),
        lambda: copies.place_rows(handle),
        lambda: copies.row_sums(handle),
        lambda: copies.release_rows(handle),
    ]


def _bring(
    place: RowsPlace, view: str, start: int, data: npt.NDArray[np.uint8], sums: dict[str, Sums]
) -> None:
    place.memory(view)[start : start + len(data)] = data
    sums[view] += place.sums(view, start, start + len(data))
