"""Engines and media that fail in the middle of the work: what is kept, and what goes on."""

import pytest

from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.application.disk_service import LANES
from anchorline.application.durability import FlushReport
from anchorline.application.request import Finished
from anchorline.domain.entry import Tier
from anchorline.domain.errors import EngineError, StateError, StorageUnavailable
from anchorline.domain.taint_line import Gate
from anchorline.ports import telemetry as names
from anchorline.simulation.box import GRID, Box
from anchorline.simulation.history import History


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


# --- the engine ---------------------------------------------------------------------------------


def test_a_decode_that_fails_ends_every_answer_it_was_for_and_their_slots_start_cold() -> None:
    server = History(slots=2, grid=GRID)
    prompts = [ids(0, 2 * GRID), ids(50, 2 * GRID)]
    requests = [server.submit(prompt, max_tokens=20) for prompt in prompts]
    while any(slot.running is None or slot.running.prefilling for slot in server.scheduler.slots):
        server.step()

    server.engine.fail_next_forward()
    server.run()

    for request, prompt in zip(requests, prompts, strict=True):
        failed = server.failed(request)
        assert failed is not None
        assert isinstance(failed.error, EngineError)
        assert server.ask(prompt).decision.gate is Gate.COLD


def test_state_that_cannot_be_put_in_place_costs_a_cold_start_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = History(grid=GRID)
    prompt = ids(0, 4 * GRID + 3)
    server.ask(prompt)
    (state,) = server.engine.slots

    def fail(_: object) -> None:
        monkeypatch.undo()
        raise StateError("this copy cannot be restored")

    monkeypatch.setattr(state, "restore_sections", fail)

    decision = server.ask([*prompt[: 3 * GRID + 1], 96, 95]).decision

    assert (decision.cached, decision.gate, decision.tier) == (0, Gate.COLD, Tier.NONE)
    assert decision.reread == 3 * GRID + 3
    assert decision.refused[0].line == 3 * GRID


def test_an_abort_gives_back_what_a_request_had_borrowed_and_serving_goes_on() -> None:
    box = Box()
    prompt = ids(0, 8 * GRID)
    box.server.ask(prompt)
    box.flush()
    box.kill()
    (slot,) = box.server.scheduler.slots
    box.server.submit([*prompt, 1])
    while slot.preparing is None or slot.preparing.restore is None:
        box.server.step()

    box.server.scheduler.abort(EngineError("a fault of our own"))

    assert (slot.idle, box.disk.tier.lent) == (True, 0)
    assert box.server.ask([*prompt, 1]).decision.cached == 8 * GRID


# --- the medium ---------------------------------------------------------------------------------


class Stubborn(MemoryCatalog):
    """A catalog that takes no change while it is told so."""

    refuses = False

    def remove(self, ids: object) -> None:  # type: ignore[override]
        self._refuse()
        super().remove(ids)  # type: ignore[arg-type]

    def put(self, entry: object, replaces: object = ()) -> None:  # type: ignore[override]
        self._refuse()
        super().put(entry, replaces)  # type: ignore[arg-type]

    def set_age_mark(self, mark: object) -> None:  # type: ignore[override]
        self._refuse()
        super().set_age_mark(mark)  # type: ignore[arg-type]

    def _refuse(self) -> None:
        if self.refuses:
            raise StorageUnavailable("the journal cannot be written")


def test_an_entry_that_the_catalog_does_not_let_go_keeps_its_objects() -> None:
    catalog = Stubborn(needs_rebuild=False)
    box = Box(catalog=catalog)
    prompt = ids(0, 6 * GRID)
    box.server.ask(prompt)
    box.flush()
    before = box.names

    catalog.refuses = True
    freed = box.disk.tier.clear()
    tidied = box.disk.tier.tidy()
    kept = box.names
    catalog.refuses = False
    box.kill()

    assert (freed, tidied, kept) == (0, 0, before)
    assert box.server.ask([*prompt, 1]).decision.cached == 6 * GRID


def test_damage_that_the_catalog_cannot_note_is_not_read_twice() -> None:
    catalog = Stubborn(needs_rebuild=False)
    box = Box(catalog=catalog)
    prompt = ids(0, 6 * GRID)
    box.server.ask(prompt)
    box.flush()
    (entry,) = box.disk.tier.entries()
    bad = entry.blocks[-2].name
    box.storage.overwrite(bad, bytes(4096))
    box.server.scheduler.clear_ram()

    catalog.refuses = True
    decision = box.server.ask([*prompt, 1]).decision

    assert (decision.quarantined, decision.cached < 6 * GRID) == (1, True)
    assert bad not in box.names
    assert box.server.telemetry.counted(names.STORAGE_ERRORS) > 0


@pytest.mark.parametrize("damaged", ["block", "anchor"])
def test_a_conversation_that_is_damaged_is_not_read_back_and_the_server_starts_without_it(
    damaged: str,
) -> None:
    box = Box()
    prompt = ids(0, 6 * GRID)
    box.server.ask(prompt)
    box.flush()
    (entry,) = box.disk.tier.entries()
    bad = entry.blocks[2] if damaged == "block" else entry.anchors[-1]
    content = bytearray(box.storage.content(bad.name))
    content[-1] ^= 1
    box.storage.overwrite(bad.name, bytes(content))
    box.kill()

    tokens = box.server.scheduler.read_back()

    assert (tokens, box.disk.tier.lent) == (0, 0)
    assert bad.name not in box.names
    assert box.server.ask([*prompt, 1]).decision.cached < entry.anchors[-1].line


def test_a_write_that_a_full_lane_refuses_is_skipped_and_made_the_next_time() -> None:
    box = Box()
    prompt = ids(0, 6 * GRID)
    box.server.ask(prompt)
    for lane, room in LANES.items():
        for _ in range(room):
            box.jobs.submit(lane, lambda: None)

    refused = box.flush()
    box.settle()
    taken = box.flush()

    assert (refused.durable, refused.failed) == (False, 1)
    assert taken.durable


# --- what is done while nobody asks ---------------------------------------------------------------


def test_a_conversation_that_nobody_used_for_a_while_outlives_a_kill() -> None:
    box = Box(idle_s=30.0)
    prompt = ids(0, 4 * GRID)
    box.server.ask(prompt)
    box.settle()
    at_once = box.names

    box.clock.advance(31.0)
    box.settle()
    box.kill()

    assert at_once == []
    assert box.server.ask([*prompt, 1]).decision.cached == 4 * GRID


def test_what_expires_while_nobody_asks_goes_within_a_minute() -> None:
    box = Box()
    box.server.ask(ids(0, 4 * GRID))
    box.flush()
    box.clock.advance(3 * 86_400.0)

    box.settle()

    assert (box.disk.tier.entries(), box.names) == ((), [])


def test_copying_takes_only_a_share_of_the_time_in_which_requests_run() -> None:
    box = Box(slots=2)
    box.server.ask(ids(0, 8 * GRID))
    answers: list[FlushReport] = []
    box.server.scheduler.flush(answers.append)
    request = box.server.submit(ids(50, 4 * GRID), max_tokens=30)

    def finished() -> Finished | None:
        return box.server.finished(request)

    while finished() is None:
        box.jobs.step()
        box.server.step()
    box.settle()

    assert answers[0].durable


def test_a_server_without_a_disk_has_nothing_to_flush_to_read_back_or_to_list() -> None:
    server = History(grid=GRID)
    answers: list[FlushReport] = []
    empty = server.scheduler.entries()
    server.ask(ids(0, 3))

    server.scheduler.flush(answers.append)

    assert [(answer.durable, answer.tier) for answer in answers] == [(False, False)]
    assert server.scheduler.read_back() == 0
    assert server.scheduler.disk is None
    (listed,) = server.scheduler.entries()
    assert (empty, listed.id, listed.role, listed.tokens) == ((), "slot-0", "resident", 6)
