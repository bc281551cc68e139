"""A state as bytes, and the sums over them."""

import threading

import numpy as np
import numpy.typing as npt
import pytest

from anchorline.domain.grid import Span
from anchorline.domain.sums import NO_SUMS, Sums
from anchorline.ports.gpu_state import RowsPlace
from contract.engine_hooks import GRID, PROMPT, WINDOW, EngineHooks
from contract.readings import (
    Seen,
    as_bytes,
    differences,
    exported_rows,
    exported_sections,
    move_rows,
    move_state,
    parted,
    prefill_to,
    read,
    row_buffers,
    summed,
)


class StateBytesContract(EngineHooks):
    """Export, import, sums."""

    # --- bytes ----------------------------------------------------------------------------------

    def test_rows_are_token_major_so_spans_can_be_exported_in_pieces(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))
        whole = exported_rows(state, Span(0, PROMPT))
        pieces = [
            exported_rows(state, span)
            for span in (
                Span(0, 1),
                Span(1, GRID),
                Span(GRID, PROMPT - 1),
                Span(PROMPT - 1, PROMPT),
            )
        ]

        joined = {
            view.name: np.concatenate([piece[view.name] for piece in pieces])
            for view in state.layout.views
        }

        assert as_bytes(joined) == as_bytes(whole)

    def test_a_state_goes_on_in_another_slot_after_a_passage_through_bytes(self) -> None:
        ids = self.ids(PROMPT)
        engine = self.make_engine(slots=2)
        prefill_to(engine, 0, ids, 2 * GRID)
        prefill_to(engine, 1, self.ids(WINDOW - 1, seed=2))

        move_state(engine.slots[0], engine.slots[1])
        logits = prefill_to(engine, 1, ids)

        assert differences(read(engine.slots[1], logits), self.cold(ids)) == []

    def test_a_state_goes_on_in_another_engine_after_a_passage_through_bytes(self) -> None:
        ids = self.ids(PROMPT)
        before, after = self.make_engine(), self.make_engine()
        prefill_to(before, 0, ids, 3 * GRID)

        move_state(before.slots[0], after.slots[0])
        logits = prefill_to(after, 0, ids)

        assert differences(read(after.slots[0], logits), self.cold(ids)) == []

    def test_importing_rows_changes_those_rows_and_nothing_else(self) -> None:
        engine = self.make_engine(slots=2)
        source, target = engine.slots
        prefill_to(engine, 0, self.ids(PROMPT))
        prefill_to(engine, 1, self.ids(PROMPT, seed=2))
        span = Span(GRID + 1, 2 * GRID - 1)
        before, sections = read(target), as_bytes(exported_sections(target))

        move_rows(source, target, span)

        assert target.length == PROMPT
        assert as_bytes(exported_sections(target)) == sections
        assert as_bytes(exported_rows(target, span)) == as_bytes(exported_rows(source, span))
        for rest in (Span(0, span.start), Span(span.end, PROMPT)):
            assert as_bytes(exported_rows(target, rest)) == {
                view.name: before.rows[view.name][
                    rest.start * view.row_bytes : rest.end * view.row_bytes
                ]
                for view in target.layout.views
            }

    def test_imported_bytes_are_copied(self) -> None:
        ids = self.ids(PROMPT)
        engine = self.make_engine(slots=2)
        source, target = engine.slots
        prefill_to(engine, 0, ids, 2 * GRID)
        rows = exported_rows(source, Span(0, 2 * GRID))
        sections = exported_sections(source)

        target.import_rows(Span(0, 2 * GRID), rows)
        target.import_sections(2 * GRID, sections)
        for data in (*rows.values(), *sections.values()):
            data.fill(0x5A)
        target.resume_at(2 * GRID)

        logits = prefill_to(engine, 1, ids)
        assert differences(read(target, logits), self.cold(ids)) == []

    def test_exported_bytes_are_the_callers_own(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))
        rows, sections = exported_rows(state, Span(0, PROMPT)), exported_sections(state)
        kept = as_bytes(rows), as_bytes(sections)

        state.resume_at(0)
        prefill_to(engine, 0, self.ids(PROMPT, seed=2))

        assert (as_bytes(rows), as_bytes(sections)) == kept

    def test_every_byte_of_a_buffer_is_written(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(GRID))
        span = Span(0, GRID)
        marked = row_buffers(state.layout, span)
        for data in marked.values():
            data.fill(0x3C)

        state.export_rows(span, marked)

        assert as_bytes(marked) == as_bytes(exported_rows(state, span))

    def test_rows_that_lanes_bring_in_are_the_rows_and_add_up_to_their_sums(self) -> None:
        engine = self.make_engine(slots=2)
        source, target = engine.slots
        prefill_to(engine, 0, self.ids(PROMPT))
        prefill_to(engine, 1, self.ids(PROMPT, seed=2))
        span = Span(GRID, 3 * GRID)
        rows, before = exported_rows(source, span), read(target)
        place = target.place_rows(span)
        if place is None:
            pytest.skip("this state's rows come by the engine thread alone")

        sums = dict.fromkeys(rows, NO_SUMS)
        for name, data in rows.items():  # the last piece first, and none of the same length
            for start, end in ((48, len(data)), (8, 48), (0, 8)):
                lane = threading.Thread(
                    target=_bring, args=(place, name, start, data[start:end], sums)
                )
                lane.start()
                lane.join()

        assert as_bytes(exported_rows(target, span)) == as_bytes(rows)
        assert sums == dict(source.row_sums(span))
        for rest in (Span(0, span.start), Span(span.end, PROMPT)):
            assert as_bytes(exported_rows(target, rest)) == {
                view.name: before.rows[view.name][
                    rest.start * view.row_bytes : rest.end * view.row_bytes
                ]
                for view in target.layout.views
            }
        assert target.length == PROMPT

    @pytest.mark.parametrize("span", [Span(0, PROMPT), Span(1, 2), Span(GRID, GRID + 5)])
    def test_rows_that_are_summed_on_their_way_out_are_the_rows(self, span: Span) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))
        seen, buffers = Seen(), row_buffers(state.layout, span)

        sums = state.export_summed_rows(span, buffers, seen.look)

        expected = as_bytes(exported_rows(state, span))
        assert as_bytes(buffers) == expected
        assert dict(sums) == dict(state.row_sums(span))
        assert seen.parts in ({}, expected)  # a device shows nothing
        assert dict(state.export_summed_rows(span, buffers, None)) == dict(sums)

    def test_less_memory_is_still_to_come_the_more_rows_there_are(self) -> None:
        engine = self.make_engine()
        state, window = engine.slots[0], engine.profile.window
        row_bytes = state.layout.row_bytes

        left = [state.unwritten_bytes(line) for line in range(window + 1)]

        assert left == sorted(left, reverse=True)
        assert all(have <= (window - line) * row_bytes for line, have in enumerate(left))
        assert (left[0], left[-1]) == (window * row_bytes, 0)

    # --- sums -----------------------------------------------------------------------------------

    @pytest.mark.parametrize("span", [Span(0, PROMPT), Span(1, 2), Span(GRID, GRID + 5)])
    def test_row_sums_are_the_sums_of_the_exported_bytes(self, span: Span) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))

        assert dict(state.row_sums(span)) == summed(exported_rows(state, span))

    def test_the_sums_of_no_rows_are_zero(self) -> None:
        state = self.make_engine().slots[0]

        sums = state.row_sums(Span(3, 3))

        assert dict(sums) == {view.name: Sums(0, 0) for view in state.layout.views}

    def test_section_sums_are_the_sums_of_the_exported_bytes(self) -> None:
        engine = self.make_engine()
        state = engine.slots[0]
        prefill_to(engine, 0, self.ids(PROMPT))

        assert dict(state.section_sums()) == summed(exported_sections(state))

    def test_a_changed_byte_changes_the_sums_of_its_part_before_anything_resumes(self) -> None:
        engine = self.make_engine(slots=2)
        source, target = engine.slots
        prefill_to(engine, 0, self.ids(2 * GRID))
        span = Span(0, 2 * GRID)
        rows, sections = exported_rows(source, span), exported_sections(source)
        row_sums, section_sums = dict(source.row_sums(span)), dict(source.section_sums())

        for name in rows:
            broken = {other: data.copy() for other, data in rows.items()}
            broken[name][len(broken[name]) // 2] ^= 0x10
            target.import_rows(span, broken)
            assert parted(target.row_sums(span), row_sums) == [name]
        for name in sections:
            broken = {other: data.copy() for other, data in sections.items()}
            broken[name][-1] ^= 0x01
            target.import_sections(2 * GRID, broken)
            assert parted(target.section_sums(), section_sums) == [name]

        assert target.length == 0


def _bring(
    place: RowsPlace, view: str, start: int, data: npt.NDArray[np.uint8], sums: dict[str, Sums]
) -> None:
    place.memory(view)[start : start + len(data)] = data
    sums[view] += place.sums(view, start, start + len(data))
