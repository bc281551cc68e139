"""A conversation is brought back before its next request comes, and is in nobody's way."""

from collections.abc import Sequence

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.prewarm import IN_USE_S, NotWarmed, PrewarmReport
from anchorline.application.ram_tier import RamTier
from anchorline.domain.entry import Source, Tier
from anchorline.domain.errors import EngineError
from anchorline.domain.namespace import Namespace
from anchorline.domain.sampling import Logits
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import TokenIds
from anchorline.simulation.box import Box
from support.builders import a_prompt, a_request

PLENTY = 1 << 20


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at + at * at) % 97 for at in range(count)]


def stored(box: Box, *prompts: Sequence[int]) -> list[list[int]]:
    """Conversations that are on the medium only: their tokens, up to their ends."""
    ends: list[list[int]] = []
    for number, prompt in enumerate(prompts):
        request = box.server.submit(prompt, session=f"s{number}")
        box.server.run()
        ends.append(box.server.sequences[request].tolist())
        assert box.flush().durable
    box.kill()
    return ends


def begin(box: Box, prompt: Sequence[int], session: str | None = None) -> list[PrewarmReport]:
    """Where the answer will stand."""
    reports: list[PrewarmReport] = []
    request = a_request(a_prompt(list(prompt)), session=session, namespace=Namespace())
    box.server.scheduler.prewarm(request, reports.append)
    return reports


def prewarm(box: Box, prompt: Sequence[int], session: str | None = None) -> PrewarmReport:
    reports = begin(box, prompt, session)
    box.server.run()
    (report,) = reports
    return report


def why(box: Box, prompt: Sequence[int], session: str | None = None) -> NotWarmed | None:
    return prewarm(box, prompt, session).why


def assert_nothing_is_held(box: Box) -> None:
    box.settle()
    assert (box.disk.pool.lent, box.disk.tier.lent) == (0, 0)
    ram: RamTier | None = box.server.scheduler.ram
    assert ram is None or not any(entry.lent for entry in ram.entries)


@pytest.mark.parametrize("parts", list(Parts))
@pytest.mark.parametrize("ram_bytes_max", [0, PLENTY])
def test_the_next_turn_finds_its_conversation_in_the_slot(parts: Parts, ram_bytes_max: int) -> None:
    box = Box(parts=parts, ram_bytes_max=ram_bytes_max)
    [end] = stored(box, ids(0, 60))

    report = prewarm(box, [*end, 5], session="s0")
    read = box.disk.tier.counters.bytes_read
    finished = box.server.ask([*end, 5], session="s0")

    assert report.why is None
    assert report.warmed is not None
    assert (report.warmed.tier, report.warmed.line) == (Tier.DISK, len(end))
    assert 0 < report.warmed.nbytes == read
    assert report.warmed.seconds > 0
    assert (finished.decision.cached, finished.decision.gate) == (len(end), Gate.PRESERVED)
    told = (finished.decision.tier, finished.decision.source)
    assert told == (Tier.DISK, Source.CONVERSATION), "told is where it came from"
    assert box.disk.tier.counters.bytes_read == read
    assert_nothing_is_held(box)


def test_a_peek_says_what_the_next_turn_will_be_told() -> None:
    box = Box()
    [end] = stored(box, ids(0, 60))
    prewarm(box, [*end, 5])

    peeked = box.server.scheduler.peek(a_request(a_prompt([*end, 5])))

    assert (peeked.tier, peeked.source, peeked.restore_s) == (Tier.DISK, Source.CONVERSATION, 0.0)
    assert peeked.line == len(end)


def test_what_the_medium_does_not_have_is_not_prewarmed() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    box.server.ask([*end, 5])
    in_slot = box.server.scheduler.slots[0].resident.ids.tolist()

    assert why(box, ids(40, 30)) is NotWarmed.NOT_ON_DISK
    assert why(box, [*in_slot, 5]) is NotWarmed.NOT_ON_DISK, "it stands in the slot"
    box.server.ask(ids(80, 100))
    box.clock.advance(2 * IN_USE_S)
    assert why(box, [*in_slot, 5]) is NotWarmed.NOT_ON_DISK, "it is in memory"
    assert why(Box(disk_enabled=False), end) is NotWarmed.NOT_ON_DISK


def test_a_conversation_that_was_used_a_moment_ago_keeps_its_slot() -> None:
    box = Box()
    [end] = stored(box, ids(0, 60))
    box.server.ask(ids(40, 30), session="other")
    resident = box.server.scheduler.slots[0].resident.ids.tolist()

    assert why(box, [*end, 5], session="s0") is NotWarmed.RESIDENT_IN_USE
    assert box.server.scheduler.slots[0].resident.ids.tolist() == resident
    box.clock.advance(IN_USE_S - 1)
    assert why(box, [*end, 5], session="s0") is NotWarmed.RESIDENT_IN_USE
    box.clock.advance(1)
    assert why(box, [*end, 5], session="s0") is None


def test_a_session_may_part_from_its_own_conversation() -> None:
    box = Box()
    [end] = stored(box, ids(0, 60))
    box.server.ask(ids(40, 30), session="s0")

    assert why(box, [*end, 5], session="s0") is None


def test_another_idle_slot_is_taken_where_there_is_one() -> None:
    box = Box(slots=2)
    [end] = stored(box, ids(0, 60))
    box.server.ask(ids(40, 30), session="other")
    resident = box.server.scheduler.slots[0].resident.ids.tolist()

    assert why(box, [*end, 5]) is None

    held = [slot.resident.ids.tolist() for slot in box.server.scheduler.slots]
    assert held == [resident, end]


def test_it_goes_on_beside_a_request_that_runs_in_another_slot() -> None:
    box = Box(slots=2)
    [end] = stored(box, ids(0, 60))
    running = box.server.submit(ids(40, 30), max_tokens=60)
    box.server.step()

    reports = begin(box, [*end, 5])
    for _ in range(40):
        box.jobs.step()
        box.server.step()

    assert [report.why for report in reports] == [None]
    assert not box.server.ended(running)


def test_what_would_take_too_long_is_left_to_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box()
    [end] = stored(box, ids(0, 60))
    engine, prefill = box.server.engine, box.server.engine.prefill

    def slow(slot: int, chunk: TokenIds) -> Logits:
        box.clock.advance(1.0)
        return prefill(slot, chunk)

    monkeypatch.setattr(engine, "prefill", slow)
    box.server.ask(ids(40, 30))
    box.clock.advance(2 * IN_USE_S)
    for seconds, answer in ((6.0, NotWarmed.TOO_LONG), (2.0, None)):
        for _ in range(9):
            box.disk.tier.rate.observe(box.disk.tier.index.nbytes, 0, seconds)

        assert why(box, [*end, 5]) is answer


@pytest.mark.parametrize("steps", range(24))
@pytest.mark.parametrize("ram_bytes_max", [0, PLENTY])
def test_it_gives_way_between_any_two_blocks(steps: int, ram_bytes_max: int) -> None:
    box = Box(ram_bytes_max=ram_bytes_max)
    [end] = stored(box, ids(0, 60))
    box.server.ask(ids(40, 50), session="other")
    resident = box.server.scheduler.slots[0].resident.ids.tolist()
    box.clock.advance(2 * IN_USE_S)
    reports = begin(box, [*end, 5])
    for _ in range(steps):
        box.server.step()
    done = bool(reports)

    request = box.server.submit([*resident, 5], session="other")
    box.server.step()
    box.server.run()

    assert [report.why for report in reports] == [None if done else NotWarmed.YIELDED]
    finished = box.server.finished(request)
    assert finished is not None
    assert finished.decision.cached == len(resident), "what it displaced has been kept"
    assert box.server.ask([*end, 5]).decision.cached == len(end), "and so has the entry"
    assert_nothing_is_held(box)


def test_a_conversation_stays_in_its_slot_until_it_is_kept_elsewhere() -> None:
    box = Box()
    [end] = stored(box, ids(0, 60))
    box.server.ask(ids(40, 50), session="other")
    (slot,) = box.server.scheduler.slots
    resident = slot.resident.ids.tolist()
    box.clock.advance(2 * IN_USE_S)
    reports = begin(box, [*end, 5])
    assert slot.warming is not None
    assert slot.warming.save is not None, "it is being written"

    request = box.server.submit([*resident, 5], session="other")
    box.server.run()

    assert [report.why for report in reports] == [NotWarmed.YIELDED]
    finished = box.server.finished(request)
    assert finished is not None
    assert (finished.decision.tier, finished.decision.cached) == (Tier.SLOT, len(resident))


def test_it_is_not_begun_while_anybody_needs_the_server() -> None:
    box = Box()
    first, second = stored(box, ids(0, 60), ids(40, 60))
    running = box.server.submit(ids(80, 30), max_tokens=20)
    box.server.step()
    while_one_runs = begin(box, [*first, 5])
    box.server.cancel(running)
    box.server.submit(ids(80, 30))
    while_one_waits = begin(box, [*first, 5])
    box.server.run()
    box.clock.advance(2 * IN_USE_S)
    under_way, another = begin(box, [*first, 5]), begin(box, [*second, 5])
    box.server.run()

    for reports in (while_one_runs, while_one_waits, another):
        assert [report.why for report in reports] == [NotWarmed.BUSY]
    assert [report.why for report in under_way] == [None]


def test_a_server_that_stops_stops_it_and_begins_none() -> None:
    box = Box()
    [end] = stored(box, ids(0, 60))
    under_way = begin(box, [*end, 5])
    box.server.step()

    box.server.scheduler.drain()

    assert [report.why for report in under_way] == [NotWarmed.YIELDED]
    assert why(box, [*end, 5]) is NotWarmed.BUSY
    assert_nothing_is_held(box)


def test_a_fault_of_the_server_ends_it() -> None:
    box = Box(ram_bytes_max=PLENTY)
    [end] = stored(box, ids(0, 60))
    reports = begin(box, [*end, 5])
    box.server.step()

    box.server.scheduler.abort(EngineError("a fault"))

    assert [report.why for report in reports] == [NotWarmed.YIELDED]
    assert_nothing_is_held(box)


def test_what_is_damaged_is_never_left_in_a_slot() -> None:
    box = Box()
    [end] = stored(box, ids(0, 60))
    (entry,) = box.disk.tier.entries()
    for block in entry.blocks:
        content = box.storage.content(block.name)
        box.storage.overwrite(block.name, bytes(100) + content[100:])

    assert why(box, [*end, 5]) is NotWarmed.NOT_ON_DISK
    assert box.server.ask([*end, 5]).decision.cached == 0
    assert_nothing_is_held(box)


def test_it_is_no_request_in_any_figure() -> None:
    box = Box()
    [end] = stored(box, ids(0, 60))
    before = box.server.scheduler.stats()
    records = len(box.server.telemetry.records)

    assert why(box, [*end, 5]) is None

    after = box.server.scheduler.stats()
    assert (after.requests, after.misses, after.hits) == (before.requests, before.misses, {})
    assert len(box.server.telemetry.records) == records
