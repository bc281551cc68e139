"""Replays of traces: what turns read again, with and without memory, and that states are right."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.checkable_state import CheckableState
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.limits import Limits
from anchorline.application.scheduler import Scheduler
from anchorline.domain.anchor import RowsHandle
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.errors import StateError
from anchorline.domain.tokens import token_ids
from anchorline.ports.engine import DecodeInput
from anchorline.simulation.agent_trace import Turn, trace_of, turns_of
from anchorline.simulation.replays import Replays
from anchorline.simulation.scripted_answers import ScriptedAnswers
from anchorline.simulation.trace_replay import TraceReplay
from anchorline.simulation.violation import Violation
from support.traces import BLOCK, a_session, a_trace, asked

PLENTY = 1 << 30
ROW, SECTION = 100, 50


def run(
    traces: Mapping[str, object],
    *,
    retention: str = "value",
    ram_bytes: int = PLENTY,
    slots: int = 1,
    window: int = 512,
) -> Mapping[str, Any]:
    shown: list[None] = []
    replay = Replays().read(traces, window)
    figures = replay.run(
        retention,
        slots=slots,
        grid=BLOCK,
        ram_bytes=ram_bytes,
        row_bytes=ROW,
        section_bytes=SECTION,
        shown=lambda: shown.append(None),
    )
    assert len(shown) == replay.requests == figures["requests"]
    return figures


def sessions(count: int, turns: int) -> dict[str, object]:
    """Sessions that take turns."""
    return {f"s{number}": a_session(turns, start_s=number) for number in range(count)}


@pytest.mark.parametrize("slots", [1, 2])
def test_with_memory_for_all_of_them_sessions_read_nothing_twice(slots: int) -> None:
    figures = run(sessions(3, 6), slots=slots)

    assert figures["reread"] == figures["unavoidable"]
    assert figures["ratio"] == 1.0
    assert figures["hits"]["none"] == 3
    assert figures["worst"] == []
    assert figures["evicted"] == 0


def test_without_memory_a_session_that_lost_its_slot_reads_all_again() -> None:
    figures = run(sessions(2, 4), ram_bytes=0)

    assert figures["hits"] == {"none": 8}
    assert figures["reread"] == figures["prompt_tokens"]
    assert (figures["bytes_out"], figures["bytes_in"]) == (0, 0)


def test_a_slot_for_each_session_needs_no_memory() -> None:
    figures = run(sessions(2, 4), ram_bytes=0, slots=2)

    assert figures["ratio"] == 1.0


def test_every_request_and_token_is_told_of_once() -> None:
    figures = run(sessions(4, 5), ram_bytes=30 * BLOCK * ROW)

    assert sum(figures["hits"].values()) == figures["requests"] == 20
    assert sum(figures["cached"].values()) + figures["reread"] == figures["prompt_tokens"]
    assert figures["evicted"] > 0
    assert figures["ratio"] == figures["reread"] / figures["unavoidable"] > 1


def test_the_turns_that_read_most_again_are_told_first() -> None:
    figures = run(sessions(2, 4), ram_bytes=0)

    excess = [one["reread"] - one["unavoidable"] for one in figures["worst"]]
    assert excess == sorted(excess, reverse=True)
    assert sum(excess) == figures["reread"] - figures["unavoidable"]
    assert figures["worst"][0] == {
        "session": "s0",
        "request": 3,
        "prompt": 3 + BLOCK * 19,
        "reread": 3 + BLOCK * 19,
        "unavoidable": 3 + BLOCK * 3 - BLOCK - 3,
        "source": "none",
    }


def test_a_prompt_that_parts_in_its_last_block_reads_less_than_a_step_again() -> None:
    whole = a_session(4)
    parted = asked(100, BLOCK * 22 + 3, 5, *range(1, 19), 77, 78, 79, 80)
    figures = run({"one": a_trace(*whole["requests"], parted), "two": a_session(4, start_s=5)})

    assert figures["unavoidable"] <= figures["reread"] < figures["unavoidable"] + BLOCK


DAY_S = 86_400.0


@pytest.mark.parametrize("days", [0, 3])
def test_policies_keep_different_sessions(days: int) -> None:
    """One came back most often, another one later; two new ones leave room for one of them.

    What came back often is worth less after some days.
    """
    later_s = days * DAY_S
    often = a_session(4, first=20, per_turn=1, every_s=20)
    again = a_trace(*often["requests"], asked(later_s + 130, BLOCK * 25, 1, *range(1, 26)))
    traces = {
        "often": again,
        "titles": a_trace(*(asked(at, 16, 1, 100 + at, 101 + at) for at in (10, 30, 70))),
        "later": a_session(2, first=22, per_turn=1, start_s=later_s + 80, every_s=10),
        "new": a_session(1, first=20, start_s=later_s + 110),
        "newer": a_session(1, first=20, start_s=later_s + 120),
    }

    by_value, by_use = (
        run(traces, retention=policy, ram_bytes=52 * BLOCK * ROW) for policy in ("value", "lru")
    )

    assert [one["session"] for one in by_value["worst"]] == ["often"] * (days > 0)
    assert [one["session"] for one in by_use["worst"]] == ["often"]


def test_what_moved_is_told_in_bytes_of_the_model_that_was_named() -> None:
    figures = run(sessions(2, 2))

    # Each session goes out as it loses the slot, 10 or 13 blocks and the start of another.
    assert figures["bytes_out"] % (BLOCK * ROW) == 0
    assert 20 * BLOCK * ROW <= figures["bytes_out"] <= 30 * BLOCK * ROW
    assert 20 * BLOCK * ROW <= figures["bytes_in"] <= 30 * BLOCK * ROW


def test_a_wrong_state_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def restores_nothing(state: CheckableState, handle: RowsHandle) -> None:
        del state, handle

    monkeypatch.setattr(CheckableState, "restore_rows", restores_nothing)

    with pytest.raises(StateError, match="a wrong state at line"):
        run(sessions(2, 3))


def test_figures_that_cannot_be_end_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them(turns: Sequence[Turn]) -> list[int]:
        return [len(turn.prompt) for turn in turns]

    monkeypatch.setattr("anchorline.simulation.replays.unavoidable", all_of_them)

    with pytest.raises(StateError, match="reread: request 1 of s0 read 16 of 107 tokens"):
        run(sessions(1, 2))


def test_a_trace_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"^second: the trace has no list of requests$"):
        Replays().read({"first": a_session(1), "second": {"block_size": 8}}, 512)


# --- one turn at a time ---------------------------------------------------------------------------


def a_scheduler() -> tuple[Scheduler, ScriptedAnswers]:
    engine = ScriptedAnswers(CheckableEngine(window=512, grid=BLOCK, vocabulary=256))
    limits = Limits(queue_max=1, anchors=AnchorBudget(0), cache_enabled=True)
    clock, telemetry = ManualClock(), RecordingTelemetry()
    return Scheduler(engine, ToyTokenizer(), clock, telemetry, limits), engine


def a_turn() -> Turn:
    return turns_of(trace_of("one", a_session(1)), window=512, below=256)[0]


def test_the_answer_that_was_told_is_written() -> None:
    scheduler, engine = a_scheduler()
    turn = a_turn()

    served = TraceReplay(scheduler, engine).serve(turn, len(turn.prompt), 0.0)

    assert served.excess == 0
    assert np.array_equal(scheduler.slots[0].resident.ids, turn.forwarded)
    assert scheduler.slots[0].session == turn.session


def test_another_answer_than_the_one_that_was_told_is_a_violation() -> None:
    scheduler, engine = a_scheduler()
    turn = a_turn()
    deaf = ScriptedAnswers(CheckableEngine(window=512, grid=BLOCK, vocabulary=256))

    with pytest.raises(Violation, match="state: request 0 of one left other tokens than its"):
        TraceReplay(scheduler, deaf).serve(turn, len(turn.prompt), 0.0)
    assert len(engine.script) == 0


def test_reading_less_than_was_unavoidable_is_a_violation() -> None:
    scheduler, engine = a_scheduler()
    turn = a_turn()

    with pytest.raises(Violation, match="reread: request 0 of one read 83 of 84 tokens"):
        TraceReplay(scheduler, engine).serve(turn, len(turn.prompt) + 1, 0.0)


def test_a_script_that_is_written_says_no_more() -> None:
    bare = CheckableEngine(window=64, grid=BLOCK, vocabulary=256)
    engine = ScriptedAnswers(CheckableEngine(window=64, grid=BLOCK, vocabulary=256))
    engine.script = token_ids([9, 4])

    first = engine.prefill(0, token_ids([1, 2]))
    (second,) = engine.decode([DecodeInput(0, 9)])
    (third,) = engine.decode([DecodeInput(0, 4)])
    bare.prefill(0, token_ids([1, 2]))
    bare.decode([DecodeInput(0, 9)])
    (own,) = bare.decode([DecodeInput(0, 4)])

    assert (int(first.argmax()), int(second.argmax())) == (9, 4)
    assert np.array_equal(third, own)
