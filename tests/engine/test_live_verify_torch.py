"""Verifying what is kept on the torch engine: bits that moved are found, honest ones are not."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch

from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.limits import Limits
from anchorline.application.live_verify_cold import exported_rows
from anchorline.application.live_verify_report import LiveReport, VerifyMode, VerifyPolicy
from anchorline.application.ram_entry import RamEntry
from anchorline.application.request import Event, Finished
from anchorline.application.scheduler import Scheduler
from anchorline.domain.anchor import Anchor, RowsHandle
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.fingerprint import Fingerprint
from anchorline.domain.grid import Span
from anchorline.domain.tokens import TokenIds
from contract.readings import some_ids
from support import tiny_models
from support.builders import a_prompt, a_request
from support.sections import with_sections_of
from support.torch_serving import SteadyEngine

GRID, WINDOW = 16, 96
HYBRIDS = ("qwen3_5_text", "olmo_hybrid", "llama")


@cache
def engine_of(architecture: str, dtype: str) -> SteadyEngine:
    """Two slots, of which requests get one."""
    model = tiny_models.tiny_model(architecture, getattr(torch, dtype))
    return SteadyEngine(model, window=WINDOW, grid=GRID, slots=2)


class Kept:
    """A scheduler that verifies, with a conversation in its one slot."""

    def __init__(self, architecture: str, dtype: str = "float32") -> None:
        self.engine = engine_of(architecture, dtype)
        policy = VerifyPolicy(VerifyMode.ON, None, Fingerprint("00" * 32), lambda _: None)
        self.scheduler = Scheduler(
            self.engine,
            ToyTokenizer(),
            ManualClock(),
            RecordingTelemetry(),
            Limits(
                queue_max=1,
                anchors=AnchorBudget(bytes_max=1 << 20),
                cache_enabled=True,
                ram_bytes_max=1 << 30,
            ),
            verify=policy,
        )
        self.resident = self.scheduler.slots[0].resident
        self.state = self.engine.slots[0]
        self.ask(some_ids(53, seed=1, vocabulary=tiny_models.VOCABULARY))

    def ask(self, prompt: Sequence[int] | TokenIds) -> Finished:
        request = a_request(a_prompt(prompt), max_tokens=7)
        events: list[Event] = []
        self.scheduler.submit(request, events.append)
        while not self.scheduler.idle:
            self.scheduler.step()
        assert isinstance(events[-1], Finished), events[-1]
        return events[-1]

    def displaced(self) -> RamEntry:
        """Have another one take the slot; its entry, whose last rows still stand there."""
        self.ask(some_ids(40, seed=2, vocabulary=tiny_models.VOCABULARY))
        assert self.scheduler.ram is not None
        (entry,) = self.scheduler.ram.entries
        return entry

    def verify(self, entry: str | None = None) -> LiveReport:
        answers: list[LiveReport] = []
        self.scheduler.verify(1, entry, answers.append)
        while not answers:
            self.scheduler.step()
        return answers[0]

    def spoil_row(self, row: int) -> str:
        """Turn the lowest bit of a row's first number; the view it is in."""
        span, views = Span(row, row + 1), self.state.layout.views
        rows = exported_rows(self.state, views, span)
        rows[views[-1].name][0] ^= 1
        self.state.import_rows(span, rows)
        return views[-1].name

    def spoil_sections(self, anchor: Anchor | None) -> str:
        """Turn the lowest bit of the first number of an anchor's copy; the section it is in."""
        assert anchor is not None
        state, line, sections = self.state, anchor.line, self.state.layout.sections

        def change() -> None:
            buffers = {one.name: np.empty(one.nbytes, np.uint8) for one in sections}
            state.export_sections(buffers)
            buffers[sections[0].name][0] ^= 1
            state.import_sections(line, buffers)
            state.capture_sections(anchor.handle)

        with_sections_of(state, anchor, change)
        return sections[0].name


@pytest.mark.parametrize("architecture", HYBRIDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_honest_conversation_is_found_whole(architecture: str, dtype: str) -> None:
    kept = Kept(architecture, dtype)
    kept.ask([*kept.resident.ids.tolist(), 5, 6, 7])

    report = kept.verify()

    assert (report.samples, report.tokens, report.mismatches) == (1, 53, ())


@pytest.mark.parametrize("row", [0, 37, 52])
def test_one_bit_of_a_clean_row_is_found_where_it_is(row: int) -> None:
    kept = Kept("qwen3_5_text")
    view = kept.spoil_row(row)

    (found,) = kept.verify().mismatches

    assert (found.kind, found.part, found.row) == ("bitwise_rows", view, row)


def test_one_bit_of_a_decoded_row_is_found() -> None:
    kept = Kept("qwen3_5_text")
    view = kept.spoil_row(55)

    (found,) = kept.verify().mismatches

    assert (found.kind, found.part) == ("preserved_rows", view)


def test_one_bit_of_a_grid_anchor_is_found() -> None:
    kept = Kept("qwen3_5_text")
    section = kept.spoil_sections(kept.resident.anchors[1])

    (found,) = kept.verify().mismatches

    assert (found.kind, found.part, found.line) == ("bitwise_sections", section, 32)


def test_one_bit_of_an_end_is_found() -> None:
    kept = Kept("qwen3_5_text")
    section = kept.spoil_sections(kept.resident.end_anchor)

    (found,) = kept.verify().mismatches

    assert (found.kind, found.part) == ("preserved_sections", section)


@pytest.mark.parametrize("architecture", HYBRIDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_honest_entry_in_memory_is_found_whole(architecture: str, dtype: str) -> None:
    kept = Kept(architecture, dtype)
    entry = kept.displaced()
    assert entry.blocks[0].handle is not None
    assert entry.blocks[-1].handle is None

    report = kept.verify(entry.id)

    assert (report.samples, report.tokens, report.mismatches) == (1, 53, ())


@pytest.mark.parametrize(
    ("row", "kind"), [(0, "bitwise_rows"), (37, "bitwise_rows"), (55, "preserved_rows")]
)
@pytest.mark.parametrize("moved", [False, True])
def test_one_bit_of_a_row_in_memory_is_found(row: int, kind: str, moved: bool) -> None:
    kept = Kept("qwen3_5_text")
    entry = kept.displaced()
    if moved:
        kept.ask(some_ids(70, seed=3, vocabulary=tiny_models.VOCABULARY))
    block = entry.blocks[row // GRID]
    if block.handle is None:
        view = kept.spoil_row(row)
    else:
        view = spoil_copy(kept.engine, block.handle, row)

    (found,) = kept.verify(entry.id).mismatches

    assert (found.entry, found.tier, found.kind, found.part) == (entry.id, "ram", kind, view)
    assert found.row is not None
    assert found.row == row if kind == "bitwise_rows" else found.row <= row < found.line


def spoil_copy(engine: SteadyEngine, handle: RowsHandle, row: int) -> str:
    """Turn the lowest bit of a row's first number in a copy; the view it is in."""
    copies, views = engine.copies, engine.profile.layout.views
    span = copies.rows_span(handle)
    rows = {view.name: np.empty(len(span) * view.row_bytes, np.uint8) for view in views}
    copies.export_rows(handle, rows)
    rows[views[-1].name][(row - span.start) * views[-1].row_bytes] ^= 1
    copies.import_rows(handle, rows)
    return views[-1].name


def test_verifying_leaves_the_state_as_it_was_bit_for_bit() -> None:
    kept = Kept("qwen3_5_text")
    prompt = [*kept.resident.ids.tolist(), 5, 6, 7]
    kept.verify()
    verified = kept.ask(prompt)
    sums = kept.state.row_sums(Span(0, kept.resident.length)), kept.state.section_sums()

    again = Kept("qwen3_5_text")
    answer = again.ask(prompt)

    assert answer.decision.cached == verified.decision.cached == len(prompt) - 3
    assert sums == (
        again.state.row_sums(Span(0, again.resident.length)),
        again.state.section_sums(),
    )
