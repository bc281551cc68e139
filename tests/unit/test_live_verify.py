"""Verifying what stands in slots: every kind of wrong state is found, and nothing else is."""

import itertools

import pytest

from anchorline.adapters.memory.checkable_engine import Forward
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.live_verify import AGAIN_S, SHARE_OF_IDLE
from anchorline.application.live_verify_report import LiveReport, VerifyMode
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.errors import EngineError
from anchorline.domain.grid import Span
from anchorline.domain.mismatch import Kind
from anchorline.domain.taint_line import Gate, TaintLine
from anchorline.ports import telemetry as names
from support.verified import GRID, VerifiedServer


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def verified_forwards(server: VerifiedServer) -> list[Forward]:
    return [forward for forward in server.engine.forwards if forward.slot == server.spare]


# --- what is right --------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", list(Parts))
@pytest.mark.parametrize("row_invariant", [False, True])
def test_an_honest_conversation_is_found_whole(parts: Parts, row_invariant: bool) -> None:
    server = VerifiedServer(parts=parts, row_invariant=row_invariant, disk_enabled=False)
    server.ask(ids(0, 61), max_tokens=9)
    server.ask([*server.slot.resident.ids.tolist(), *ids(5, 20)], max_tokens=5)

    report = server.verify()

    assert (report.samples, report.mismatches, report.skipped) == (1, (), ())
    clean = server.slot.resident.taint.line
    assert report.tokens == clean
    assert report.finished


def test_a_cold_recompute_runs_the_chunks_of_a_cold_prefill() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 20))

    server.verify()

    spans = [(forward.span.start, forward.span.end) for forward in verified_forwards(server)]
    assert spans == [(0, 8), (8, 16), (16, 20)]


def test_what_no_request_can_resume_is_not_recomputed() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.submit(ids(0, 100))
    for _ in range(4):
        server.scheduler.step()
    server.scheduler.cancel("r0")

    assert server.verify().tokens == server.slot.resident.highest < 100


def test_verifying_leaves_a_conversation_as_it_was() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 50), max_tokens=6)
    whole = server.slot.resident.ids.tolist()

    server.verify()
    answer = server.ask([*whole, 5])

    assert answer.decision.cached == len(whole)
    assert answer.decision.gate is Gate.PRESERVED


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [0, 13, 55])
def test_a_row_that_was_changed_in_place_is_found(row: int) -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 60))
    server.spoil_row(row)

    (found,) = server.verify().mismatches

    assert (found.entry, found.kind) == ("slot-0", Kind.BITWISE_ROWS.value)
    assert (found.part, found.row, found.gate) == ("bits", row, "bitwise")
    assert found.line == min((row // GRID + 1) * GRID, 60)


def test_a_row_that_a_decode_wrote_and_that_was_changed_is_found() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 60), max_tokens=9)
    server.spoil_row(64, view="prefix")

    (found,) = server.verify().mismatches

    assert (found.kind, found.part, found.gate) == ("preserved_rows", "prefix", "preserved")
    assert found.row is not None
    assert found.row <= 64 < found.line


@pytest.fixture
def never_tainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that takes every row for one that a cold grid prefill wrote."""

    def forwarded(self: TaintLine, span: Span, *_: object) -> TaintLine:
        return TaintLine(span.end)

    monkeypatch.setattr(TaintLine, "forwarded", forwarded)


@pytest.mark.usefixtures("never_tainted")
def test_a_taint_line_that_was_told_too_high_is_found() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 60), max_tokens=9)

    (found,) = server.verify().mismatches

    # The last chunk below the end runs over rows that a decode wrote.
    assert (found.kind, found.row) == ("bitwise_rows", 56)


@pytest.mark.usefixtures("never_tainted")
def test_a_grid_anchor_above_the_taint_line_that_is_told_bitwise_is_found() -> None:
    server = VerifiedServer(parts=Parts.RECURRENT, disk_enabled=False)
    server.ask(ids(0, 20), max_tokens=3)
    server.ask([*server.slot.resident.ids.tolist(), *ids(5, 30)])

    (found,) = server.verify().mismatches

    assert (found.kind, found.line, found.row) == ("bitwise_sections", 24, None)


def test_anchors_that_were_exchanged_are_found() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 60))
    server.exchange_copies(*server.slot.resident.anchors[1:3])

    (found,) = server.verify().mismatches

    assert (found.kind, found.line) == ("bitwise_sections", 16)


def test_an_end_whose_copy_was_overwritten_is_found() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 60), max_tokens=9)
    end = server.slot.resident.end_anchor
    assert end is not None
    server.spoil_copy(end)

    (found,) = server.verify().mismatches

    assert (found.kind, found.line) == ("preserved_sections", end.line)


def test_in_row_invariant_arithmetic_an_end_is_held_against_a_cold_prefill() -> None:
    server = VerifiedServer(row_invariant=True, disk_enabled=False)
    server.ask(ids(0, 60), max_tokens=9)
    end = server.slot.resident.end_anchor
    assert end is not None
    server.spoil_copy(end)

    (found,) = server.verify().mismatches

    assert (found.kind, found.line) == ("bitwise_sections", end.line)


# --- what becomes of it ---------------------------------------------------------------------------


def test_what_was_wrong_is_not_resumed_again() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 60))
    server.spoil_row(13)
    server.verify()

    answer = server.ask(ids(0, 60))

    assert answer.decision.gate is Gate.COLD
    assert server.verify().mismatches == ()


def test_only_the_slot_that_is_wrong_forgets() -> None:
    server = VerifiedServer(slots=2, disk_enabled=False)
    server.ask(ids(0, 60))
    server.ask(ids(50, 40))
    wrong = next(slot for slot in server.scheduler.slots if slot.resident.length > 50)
    server.spoil_row(13, slot=wrong.index)

    report = server.verify()

    assert report.samples == 2
    assert [slot.resident.length > 0 for slot in server.scheduler.slots].count(True) == 1
    assert wrong.resident.length == 0


def test_a_mismatch_is_counted_and_journalled_and_written_down_with_its_tokens() -> None:
    server = VerifiedServer(salt="a secret", disk_enabled=False)
    server.ask(ids(0, 60))
    server.spoil_row(13)

    (found,) = server.verify().mismatches

    stats = server.scheduler.stats().verify
    assert stats is not None
    assert (stats.samples, stats.mismatches) == (1, {"bitwise_rows": 1})
    labels = {"tier": "slot", "kind": "bitwise_rows"}
    assert server.telemetry.counted(names.VERIFY_MISMATCHES, labels) == 1
    assert server.telemetry.counted(names.VERIFY_SAMPLES, {"tier": "slot"}) == 1
    (told,) = server.told
    assert told.ids.tolist() == ids(0, 16)
    (row,) = [one for one in server.telemetry.records if one.get("event") == "verify_mismatch"]
    assert (row["line"], row["row"], row["part"]) == (16, 13, "bits")
    assert row["dump"] == found.dump == "1-verify.json"
    assert row["namespace"] == told.namespace_digest
    assert "a secret" not in repr(row)


def test_strict_serves_every_later_request_cold() -> None:
    server = VerifiedServer(mode=VerifyMode.STRICT)
    server.ask(ids(50, 60))
    server.flush()
    server.ask(ids(0, 60))
    server.spoil_row(13)
    server.verify()

    answers = [server.ask(ids(start, 60)) for start in (50, 0, 0)]

    assert [answer.decision.gate for answer in answers] == [Gate.COLD] * 3
    stats = server.scheduler.stats()
    assert stats.verify is not None
    assert (stats.enabled, stats.verify.serves_cold) == (False, True)
    assert server.slot.resident.length == 0


def test_strict_serves_from_what_is_kept_while_all_is_right() -> None:
    server = VerifiedServer(mode=VerifyMode.STRICT)
    server.ask(ids(0, 60))
    server.verify()

    assert server.ask(ids(0, 60)).decision.cached == 56


# --- giving way -----------------------------------------------------------------------------------


def test_a_request_waits_for_no_more_than_one_chunk() -> None:
    server = VerifiedServer(disk_enabled=False, idle_s=0.0)
    server.ask(ids(0, 200))
    while not verified_forwards(server):
        server.scheduler.step()
    before = len(verified_forwards(server))

    server.submit(ids(50, 40), max_tokens=2)
    server.scheduler.step()

    assert server.engine.forwards[-1].slot == 0
    while not server.scheduler.idle:
        server.scheduler.step()
    assert len(verified_forwards(server)) == before


def test_each_step_of_a_sample_forwards_at_most_one_chunk() -> None:
    server = VerifiedServer(disk_enabled=False, idle_s=0.0)
    server.ask(ids(0, 200))
    counts = [len(verified_forwards(server))]
    while server.scheduler.step():
        counts.append(len(verified_forwards(server)))

    assert counts[-1] == 25
    assert max(after - before for before, after in itertools.pairwise(counts)) == 1


def test_a_sample_goes_on_after_a_request_that_left_its_entry_alone() -> None:
    server = VerifiedServer(slots=2, disk_enabled=False, idle_s=0.0)
    server.ask(ids(0, 200))
    while len(verified_forwards(server)) < 5:
        server.scheduler.step()
    server.ask(ids(50, 20))
    server.rest()

    starts = [forward.span.start for forward in verified_forwards(server)]
    assert starts.count(0) == 2  # one for each slot
    stats = server.scheduler.stats().verify
    assert stats is not None
    assert (stats.samples, stats.skipped) == (2, 0)


def test_a_sample_goes_on_where_the_conversation_only_grew() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 200), max_tokens=3)
    answers: list[LiveReport] = []
    server.scheduler.verify(1, None, answers.append)
    while len(verified_forwards(server)) < 5:
        server.scheduler.step()
    server.ask([*server.slot.resident.ids.tolist(), 5, 6])
    server.rest()

    stats = server.scheduler.stats().verify
    assert stats is not None
    assert (stats.samples, stats.skipped, stats.mismatches) == (1, 0, {})


def test_anchors_that_had_to_make_room_meanwhile_are_left_out() -> None:
    server = VerifiedServer(disk_enabled=False, anchors=AnchorBudget(bytes_max=0))
    server.ask(ids(0, 100), max_tokens=3)
    server.scheduler.verify(1, None, lambda _: None)
    server.scheduler.step()
    before = server.slot.resident.anchors
    server.ask([*server.slot.resident.ids.tolist(), *ids(5, 80)])
    assert set(before[1:]) - set(server.slot.resident.anchors)

    server.rest()

    stats = server.scheduler.stats().verify
    assert stats is not None
    assert (stats.samples, stats.skipped, stats.mismatches) == (1, 0, {})


def test_an_entry_that_is_replaced_meanwhile_is_dropped_and_not_judged() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 200))
    server.spoil_row(190)
    answers: list[LiveReport] = []
    server.scheduler.verify(1, None, answers.append)
    while len(verified_forwards(server)) < 5:
        server.scheduler.step()
    server.ask(ids(50, 20))
    server.rest()

    stats = server.scheduler.stats().verify
    assert stats is not None
    assert (stats.samples, stats.skipped, stats.mismatches) == (0, 1, {})
    assert server.slot.resident.length > 0


def test_a_forward_that_fails_judges_nothing() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 60))
    server.engine.fail_next_forward(after=2)

    report = server.verify()

    assert report.samples == 0
    assert [(one.entry, one.why) for one in report.skipped] == [
        ("slot-0", "this forward was told to fail")
    ]
    assert server.verify().samples == 1


# --- when -----------------------------------------------------------------------------------------


def test_nothing_is_sampled_before_the_server_has_been_idle_for_a_while() -> None:
    server = VerifiedServer(disk_enabled=False, idle_s=30.0)
    server.ask(ids(0, 60))
    server.rest()
    assert not verified_forwards(server)

    server.clock.advance(30.0)
    server.rest()

    assert len(verified_forwards(server)) == 8


def test_what_has_not_changed_is_not_sampled_again_for_an_hour() -> None:
    server = VerifiedServer(disk_enabled=False, idle_s=0.0)
    server.ask(ids(0, 60))
    server.rest()
    server.clock.advance(AGAIN_S / 2)
    server.rest()
    assert len(verified_forwards(server)) == 8

    server.clock.advance(AGAIN_S / 2)
    server.rest()

    assert len(verified_forwards(server)) == 16


def test_samples_take_only_a_share_of_the_idle_time() -> None:
    server = VerifiedServer(disk_enabled=False, idle_s=0.0, forward_s=1.0)
    server.ask(ids(0, 160))
    began_s = server.clock.monotonic()
    while len(verified_forwards(server)) < 20:
        if not server.scheduler.step():
            server.clock.advance(0.125)

    spent_s = server.clock.monotonic() - began_s

    assert 20 / spent_s <= SHARE_OF_IDLE * 1.1


def test_without_an_idle_time_only_calls_are_answered() -> None:
    server = VerifiedServer(disk_enabled=False, idle_s=None)
    server.ask(ids(0, 60))
    server.clock.advance(1e6)
    server.rest()
    assert not verified_forwards(server)

    assert server.verify().samples == 1


def test_a_call_takes_no_entry_twice() -> None:
    server = VerifiedServer(slots=2, disk_enabled=False)
    server.ask(ids(0, 60))
    server.ask(ids(50, 40))

    assert server.verify(samples=5).samples == 2
    assert server.verify(samples=1).samples == 1


def test_an_entry_that_is_not_there_is_told() -> None:
    server = VerifiedServer(disk_enabled=False)

    report = server.verify(entry="slot-7")

    assert (report.finished, report.samples) == (True, 0)
    assert [one.entry for one in report.skipped] == ["slot-7"]


def test_a_server_that_stops_answers_those_who_wait_for_a_sample() -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 200))
    answers: list[LiveReport] = []
    server.scheduler.verify(1, None, answers.append)
    server.scheduler.step()

    server.scheduler.drain()
    server.scheduler.verify(1, None, answers.append)

    assert [answer.finished for answer in answers] == [False, False]
    assert not server.scheduler.step()


def test_a_fault_of_ours_in_a_sample_does_not_come_back_with_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = VerifiedServer(disk_enabled=False)
    server.ask(ids(0, 60))

    def fails(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(server.state, "row_sums", fails)
    answers: list[LiveReport] = []
    server.scheduler.verify(1, None, answers.append)
    with pytest.raises(AssertionError):
        server.rest()

    server.scheduler.abort(EngineError("internal error"))
    server.rest()

    monkeypatch.undo()
    assert [one.why for one in answers[0].skipped] == ["internal error"]
    assert server.ask(ids(0, 60)).decision.gate is Gate.COLD
