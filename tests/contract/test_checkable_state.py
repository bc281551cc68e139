"""What the in-memory engine is for: every wrong state is seen, and every gate can be judged."""

from typing import Final

import numpy as np
import pytest

from anchorline.adapters.memory.checkable_engine import (
    CheckableEngine,
    Forward,
    cold_state,
    exported,
)
from anchorline.adapters.memory.checkable_state import (
    Parts,
    expected_prefix_hash,
    expected_prefixes,
)
from anchorline.domain.errors import EngineError, WrongLine
from anchorline.domain.grid import Span
from anchorline.domain.taint_line import Writer
from anchorline.domain.tokens import TokenIds
from anchorline.ports.engine import DecodeInput
from contract.readings import (
    decode_all,
    exported_rows,
    exported_sections,
    move_rows,
    move_state,
    prefill_to,
    row_buffers,
)
from support.builders import random_ids

GRID = 8
IDS = random_ids(3 * GRID + 5, seed=1)
OTHER = random_ids(len(IDS), seed=2)


def an_engine(*, parts: Parts = Parts.HYBRID, row_invariant: bool = False) -> CheckableEngine:
    return CheckableEngine(slots=2, window=64, grid=GRID, parts=parts, row_invariant=row_invariant)


def bits_of(engine: CheckableEngine, start: int = 0) -> list[int]:
    state = engine.slots[0]
    return exported_rows(state, Span(start, state.length))["bits"].view(np.uint64).tolist()


def greedy(engine: CheckableEngine, slot: int, ids: TokenIds, count: int = 8) -> list[int]:
    """The text the engine goes on with after prefilling `ids`."""
    tokens = [int(prefill_to(engine, slot, ids).argmax())]
    for _ in range(count - 1):
        (logits,) = engine.decode([DecodeInput(slot, tokens[-1])])
        tokens.append(int(logits.argmax()))
    return tokens


# --- what a state says ----------------------------------------------------------------------------


def test_a_prefix_hash_is_a_sum_of_one_mixed_word_per_token() -> None:
    word = (1 << 64) - 1
    total = 0
    for position, token in enumerate(IDS.tolist()):
        z = position << 32 | token
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & word
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & word
        total = (total + (z ^ z >> 31)) & word

    assert expected_prefix_hash(IDS) == total
    assert expected_prefixes(IDS)[-1] == total
    assert expected_prefix_hash(IDS[:0]) == 0


def test_a_state_names_the_tokens_it_has_absorbed() -> None:
    engine = an_engine()
    prefill_to(engine, 0, IDS)

    state = exported(engine.slots[0])

    assert state.rows["prefix"] == expected_prefixes(IDS).tobytes()
    assert state.sections["tokens"] == expected_prefixes(IDS)[-1:].tobytes()
    assert state.sections["count"] == np.array([len(IDS)]).tobytes()


def test_rows_say_who_wrote_them() -> None:
    engine = an_engine()
    prefill_to(engine, 0, IDS[:10])
    decode_all(engine, 0, IDS[10:13])

    rows = exported_rows(engine.slots[0], Span(0, 13))

    assert rows["writer"].tolist() == [1] * 10 + [2] * 3


@pytest.mark.parametrize("parts", Parts)
@pytest.mark.parametrize("row_invariant", [False, True])
def test_a_cold_state_is_what_a_cold_prefill_leaves(parts: Parts, *, row_invariant: bool) -> None:
    engine = an_engine(parts=parts, row_invariant=row_invariant)
    prefill_to(engine, 0, IDS)

    assert exported(engine.slots[0]) == cold_state(
        IDS, GRID, parts=parts, row_invariant=row_invariant
    )


# --- how a state was computed ---------------------------------------------------------------------


def test_decode_writes_other_bits_than_prefill_and_the_same_text() -> None:
    prefilled, decoded = an_engine(), an_engine()
    expected = prefill_to(prefilled, 0, IDS)
    prefill_to(decoded, 0, IDS[:GRID])

    logits = decode_all(decoded, 0, IDS[GRID:])

    assert np.array_equal(logits, expected)
    assert bits_of(decoded)[:GRID] == bits_of(prefilled)[:GRID]
    assert not set(bits_of(decoded, GRID)) & set(bits_of(prefilled, GRID))


def test_a_short_chunk_writes_other_bits_than_a_whole_one() -> None:
    whole, cut = an_engine(), an_engine()
    prefill_to(whole, 0, IDS[:GRID])

    prefill_to(cut, 0, IDS[: GRID - 1])
    prefill_to(cut, 0, IDS[:GRID])

    assert not set(bits_of(whole)) & set(bits_of(cut))


def test_everything_above_other_bits_has_other_bits() -> None:
    clean, tainted = an_engine(), an_engine()
    prefill_to(clean, 0, IDS)

    prefill_to(tainted, 0, IDS[: GRID - 1])
    decode_all(tainted, 0, IDS[GRID - 1 : GRID])
    prefill_to(tainted, 0, IDS)

    assert not set(bits_of(clean, GRID)) & set(bits_of(tainted, GRID))


def test_another_grid_writes_other_bits() -> None:
    assert cold_state(IDS, GRID).rows["bits"] != cold_state(IDS, 2 * GRID).rows["bits"]


def test_row_invariant_arithmetic_knows_no_difference() -> None:
    engine = an_engine(row_invariant=True)
    prefill_to(engine, 0, IDS[:3])
    decode_all(engine, 0, IDS[3:20])
    prefill_to(engine, 0, IDS)

    assert exported(engine.slots[0]) == cold_state(IDS, 5, row_invariant=True)


# --- wrong states are seen ------------------------------------------------------------------------


@pytest.mark.parametrize("row_invariant", [False, True])
@pytest.mark.parametrize("row", [0, 1, GRID, 2 * GRID - 1])
@pytest.mark.parametrize("parts", [Parts.HYBRID, Parts.ATTENTION])
def test_a_row_of_other_tokens_changes_the_text(
    parts: Parts, row: int, *, row_invariant: bool
) -> None:
    engine = an_engine(parts=parts, row_invariant=row_invariant)
    prefill_to(engine, 0, IDS, 2 * GRID)
    prefill_to(engine, 1, OTHER, 2 * GRID)

    move_rows(engine.slots[1], engine.slots[0], Span(row, row + 1))

    assert greedy(engine, 0, IDS) != greedy(an_engine(), 0, IDS)


def test_rows_at_another_position_change_the_text() -> None:
    engine = an_engine()
    prefill_to(engine, 0, IDS, 2 * GRID)

    rows = exported_rows(engine.slots[0], Span(0, GRID))
    engine.slots[0].import_rows(Span(GRID, 2 * GRID), rows)

    assert greedy(engine, 0, IDS) != greedy(an_engine(), 0, IDS)


@pytest.mark.parametrize("parts", [Parts.HYBRID, Parts.RECURRENT])
def test_sections_of_other_tokens_change_the_text(parts: Parts) -> None:
    engine = an_engine(parts=parts)
    prefill_to(engine, 0, IDS, 2 * GRID)
    prefill_to(engine, 1, OTHER, 2 * GRID)
    state = engine.slots[0]

    state.import_sections(2 * GRID, exported_sections(engine.slots[1]))
    state.resume_at(2 * GRID)

    assert greedy(engine, 0, IDS) != greedy(an_engine(), 0, IDS)


@pytest.mark.parametrize("parts", [Parts.HYBRID, Parts.RECURRENT])
def test_sections_declared_to_be_of_another_line_change_the_text(parts: Parts) -> None:
    engine = an_engine(parts=parts)
    prefill_to(engine, 1, IDS, GRID)
    prefill_to(engine, 0, IDS, 2 * GRID)
    state = engine.slots[0]

    state.import_sections(2 * GRID, exported_sections(engine.slots[1]))
    state.resume_at(2 * GRID)

    assert greedy(engine, 0, IDS) != greedy(an_engine(), 0, IDS)


EXACT_PARTS: Final = ("prefix", "bits", "writer", "tokens", "count", "tile", "open_rows")


@pytest.mark.parametrize(
    ("part", "row_invariant"),
    [(part, False) for part in ("prefix", "bits", "writer", "tokens", "bits_after", "count")]
    # Row-invariant rows depend on the tokens alone, so no forward reads `bits_after`.
    + [(part, True) for part in EXACT_PARTS],
)
def test_every_changed_byte_changes_what_is_computed_on_top(
    part: str, *, row_invariant: bool
) -> None:
    engine = an_engine(row_invariant=row_invariant)
    prefill_to(engine, 0, IDS, 2 * GRID)
    state, span = engine.slots[0], Span(0, 2 * GRID)
    rows, sections = exported_rows(state, span), exported_sections(state)

    (rows | sections)[part][0] ^= 0x04
    state.import_rows(span, rows)
    state.import_sections(2 * GRID, sections)
    state.resume_at(2 * GRID)
    prefill_to(engine, 0, IDS)

    cold = np.frombuffer(cold_state(IDS, GRID, row_invariant=row_invariant).rows["bits"], np.uint64)
    assert not set(bits_of(engine, 2 * GRID)) & set(cold.tolist())


def test_a_wrong_state_stays_wrong_when_its_cause_is_gone() -> None:
    engine = an_engine()
    prefill_to(engine, 0, IDS, 2 * GRID)
    state = engine.slots[0]
    right = exported_rows(state, Span(0, GRID))
    prefill_to(engine, 1, OTHER, GRID)
    move_rows(engine.slots[1], state, Span(0, GRID))
    prefill_to(engine, 0, IDS, 3 * GRID)

    state.import_rows(Span(0, GRID), right)

    assert greedy(engine, 0, IDS) != greedy(an_engine(), 0, IDS)


def test_a_right_state_by_any_way_leads_to_the_same_text() -> None:
    expected = greedy(an_engine(), 0, IDS)
    engine = an_engine()
    prefill_to(engine, 0, OTHER)
    prefill_to(engine, 1, IDS, GRID)
    decode_all(engine, 1, IDS[GRID : GRID + 5])

    move_state(engine.slots[1], engine.slots[0])

    assert greedy(engine, 0, IDS) == expected


# --- stricter than the port -----------------------------------------------------------------------


def test_no_forward_runs_between_restoring_and_resuming() -> None:
    engine = an_engine()
    prefill_to(engine, 0, IDS, GRID)
    anchor = engine.slots[0].capture_sections()
    prefill_to(engine, 0, IDS)

    engine.slots[0].restore_sections(anchor)

    with pytest.raises(WrongLine):
        engine.decode([DecodeInput(0, 1)])


def test_a_failed_forward_leaves_nothing_of_use() -> None:
    engine = an_engine()
    state = engine.slots[0]
    prefill_to(engine, 0, IDS, GRID)
    before = exported(state)
    anchor = state.capture_sections()
    engine.fail_next_forward()
    with pytest.raises(EngineError):
        prefill_to(engine, 0, IDS)

    after = exported(state)
    assert all(after.rows[name] != data for name, data in before.rows.items())
    assert all(after.sections[name] != data for name, data in before.sections.items())
    for use in (
        lambda: engine.decode([DecodeInput(0, 1)]),
        lambda: state.restore_sections(anchor),
        lambda: state.resume_at(GRID),
        lambda: state.trim(0),
        state.capture_sections,
    ):
        with pytest.raises(AssertionError, match="resume at line 0"):
            use()


def test_a_failed_batch_spoils_every_slot_it_names() -> None:
    engine = an_engine()
    prefill_to(engine, 0, IDS)
    prefill_to(engine, 1, OTHER)
    engine.fail_next_forward(after=1)

    with pytest.raises(EngineError):
        engine.decode([DecodeInput(0, 1), DecodeInput(1, 1)])

    for slot in (0, 1):
        with pytest.raises(AssertionError, match="resume at line 0"):
            engine.decode([DecodeInput(slot, 1)])


def test_a_failure_comes_once_and_when_it_is_due() -> None:
    engine = an_engine()
    engine.fail_next_forward(after=2)

    prefill_to(engine, 0, IDS, 2 * GRID)
    with pytest.raises(EngineError):
        prefill_to(engine, 0, IDS)

    engine.slots[0].resume_at(0)
    prefill_to(engine, 0, IDS)


def test_a_copy_into_which_nobody_has_brought_anything_is_not_used() -> None:
    engine = an_engine()
    prefill_to(engine, 0, IDS)
    state, copies = engine.slots[0], engine.copies
    span = Span(0, GRID)
    handle = copies.new_rows(span)

    for use in (
        lambda: state.restore_rows(handle),
        lambda: state.swap_rows(handle),
        lambda: copies.row_sums(handle),
        lambda: copies.export_rows(handle, row_buffers(state.layout, span)),
    ):
        with pytest.raises(AssertionError, match="nobody has brought"):
            use()

    copies.import_rows(handle, exported_rows(state, span))
    state.restore_rows(handle)


def test_lanes_bring_nothing_into_rows_that_were_released() -> None:
    engine = an_engine()
    handle = engine.copies.new_rows(Span(0, GRID))
    place = engine.copies.place_rows(handle)
    engine.copies.release_rows(handle)
    engine.copies.new_rows(Span(0, GRID))

    with pytest.raises(AssertionError, match="were released"):
        place.memory("prefix")


def test_what_is_released_is_overwritten_so_that_whoever_reads_on_is_seen() -> None:
    engine = an_engine()
    prefill_to(engine, 0, IDS)
    handle = engine.slots[0].capture_rows(Span(0, GRID))
    before = engine.copies.rows_of(handle).views["prefix"]

    engine.copies.release_rows(handle)

    assert set(before.tolist()) == {0xDB}


def test_buffers_of_another_size_are_refused() -> None:
    engine = an_engine()
    state = engine.slots[0]
    prefill_to(engine, 0, IDS)
    rows = exported_rows(state, Span(0, 4))

    with pytest.raises(AssertionError, match="prefix"):
        state.import_rows(Span(0, 5), rows)
    with pytest.raises(AssertionError, match="prefix"):
        state.export_rows(Span(0, 3), rows)


# --- for tests ------------------------------------------------------------------------------------


def test_forwards_are_remembered_and_announced() -> None:
    seen: list[Forward] = []
    engine = CheckableEngine(slots=2, window=64, grid=GRID, on_forward=seen.append)

    prefill_to(engine, 1, IDS[: GRID + 2])
    engine.decode([DecodeInput(1, 5)])

    assert seen == [
        Forward(1, Span(0, GRID), Writer.PREFILL),
        Forward(1, Span(GRID, GRID + 2), Writer.PREFILL),
        Forward(1, Span(GRID + 2, GRID + 3), Writer.DECODE),
    ]
    assert list(engine.forwards) == seen
    assert engine.tokens_forwarded == GRID + 3


def test_an_engine_writes_what_it_is_told_to_prefer() -> None:
    engine = CheckableEngine(window=64, grid=GRID, writes=[65, 66])

    assert set(greedy(engine, 0, IDS, count=20)) == {65, 66}


def test_a_text_is_not_always_the_same_token() -> None:
    assert len(set(greedy(an_engine(), 0, IDS, count=20))) > 10
