"""What copies of a torch engine's state promise beyond the port's contract."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from anchorline.adapters.gpu.alignment import PAGE_BYTES
from anchorline.adapters.gpu.host_threads import SHARED_BYTES_MIN
from anchorline.adapters.gpu.owned_layer import OwnedLayer, RowBuffer
from anchorline.adapters.gpu.part_bytes import Bytes
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.adapters.gpu.torch_state import TorchSlotState
from anchorline.domain.grid import Span
from contract.readings import (
    Seen,
    as_bytes,
    copied_rows,
    copied_sections,
    decode_all,
    differences,
    exported_rows,
    exported_sections,
    prefill_to,
    read,
    row_buffers,
    some_ids,
    summed,
)
from support.made_up_model import VOCABULARY, MadeUpModel, made_up_layers

GRID = 16
WINDOW = 4 * GRID


def made_up_engine() -> TorchEngine:
    return TorchEngine(MadeUpModel(), window=WINDOW, grid=GRID, slots=2, layers=made_up_layers)


class LargeRows(OwnedLayer):
    """Rows of 32 KiB that no model writes."""

    def __init__(self, window: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        numbers = random.integers(0, 256, (window, 1 << 15), dtype=np.uint8)
        self.rows = torch.tensor(numbers)

    def row_buffers(self) -> Sequence[RowBuffer]:
        return [RowBuffer("rows", self.rows, "kv:plain")]


def differing(one: dict[str, Bytes], other: dict[str, Bytes]) -> list[str]:
    """The parts that are not equal: what they hold is too long to be told."""
    return [name for name in one if not np.array_equal(one[name], other[name])]


def test_the_slots_of_an_engine_have_one_place_for_copies() -> None:
    engine = made_up_engine()

    assert all(state.copies is engine.copies for state in engine.slots)


def test_views_of_odd_sizes_are_kept_each_from_a_page_on() -> None:
    engine = made_up_engine()
    ids = some_ids(GRID + 3, seed=1, vocabulary=VOCABULARY)
    prefill_to(engine, 0, ids)
    state, span = engine.slots[0], Span(2, GRID + 1)
    expected = exported_rows(state, span)

    handle = state.capture_rows(span)

    assert any(len(data) % PAGE_BYTES for data in expected.values())
    assert as_bytes(copied_rows(engine, handle)) == as_bytes(expected)
    assert dict(engine.copies.row_sums(handle)) == summed(expected)
    parts = engine.copies.rows_copy(handle).buffer.parts
    assert [part.in_place(0, len(part)).data_ptr() % PAGE_BYTES for part in parts] == [0] * 4
    added = engine.copies.counts().row_bytes - len(span) * state.layout.row_bytes
    assert 0 < added < PAGE_BYTES * (len(parts) + 1)


def test_on_the_host_every_byte_is_shown_as_it_is_copied() -> None:
    """Checksums that are not taken there are taken by lanes, from memory: slower, and unnoticed."""
    engine = made_up_engine()
    prefill_to(engine, 0, some_ids(GRID + 3, seed=1, vocabulary=VOCABULARY))
    state, span, seen = engine.slots[0], Span(2, GRID + 1), Seen()

    state.export_summed_rows(span, row_buffers(state.layout, span), seen.look)

    assert seen.parts == as_bytes(exported_rows(state, span))


def test_sections_of_odd_sizes_are_made_of_bytes_and_become_bytes() -> None:
    engine = made_up_engine()
    ids, tokens = (some_ids(count, seed=count, vocabulary=VOCABULARY) for count in (GRID + 3, 4))
    prefill_to(engine, 0, ids)
    source, target = engine.slots
    rows, sections = source.capture_rows(Span(0, len(ids))), exported_sections(source)

    handle = engine.copies.new_sections(len(ids), sections)
    target.restore_rows(rows)
    target.restore_sections(handle)
    target.resume_at(len(ids))

    assert as_bytes(copied_sections(engine, handle)) == as_bytes(sections)
    assert dict(engine.copies.section_sums(handle)) == summed(sections)
    expected = read(source, decode_all(engine, 0, tokens))
    assert differences(read(target, decode_all(engine, 1, tokens)), expected) == []


def test_large_copies_are_shared_out_among_threads_and_are_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    layers = [LargeRows(80, seed) for seed in range(4)]
    state = TorchSlotState(layers, 80, torch.device("cpu"), grid=64)
    copies, span = state.copies, Span(3, 67)
    assert len(span) * state.layout.row_bytes >= SHARED_BYTES_MIN
    first = exported_rows(state, span)
    whole = exported_rows(state, Span(0, 80))

    handle = state.capture_rows(span)
    for layer in layers:
        layer.rows[span.start : span.end] += 1
    second = exported_rows(state, span)
    state.swap_rows(handle)

    held = row_buffers(state.layout, span)
    copies.export_rows(handle, held)
    assert len(differing(first, second)) == len(layers)
    assert differing(held, second) == []
    assert dict(copies.row_sums(handle)) == summed(second)
    assert differing(exported_rows(state, Span(0, 80)), whole) == []
    state.restore_rows(handle)
    assert differing(exported_rows(state, span), second) == []
