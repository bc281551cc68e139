"""A flush answers for what memory keeps, too."""

from anchorline.application.durability import FlushReport
from anchorline.domain.disk_retention import Shares
from anchorline.simulation.box import Box

GRID = 8


def conversation(start: int, tokens: int) -> list[int]:
    return [(start * 31 + at * 7) % 97 for at in range(tokens)]


def a_box(stored_bytes_max: int = 1 << 24) -> Box:
    """With room for everything in memory, and nothing that is written before it is asked for."""
    shares = Shares(stored_bytes_max, stored_bytes_max)
    return Box(window=512, grid=GRID, evicted_tokens_min=1000, ram_bytes_max=1 << 20, shares=shares)


def test_what_lost_its_slot_is_made_durable_by_a_flush() -> None:
    box = a_box()
    for number in range(3):
        box.server.ask(conversation(number, 60), max_tokens=4)

    report = box.flush()

    assert report.durable
    assert report.saved == 3
    assert report.missing == 0


def test_after_a_planned_stop_every_conversation_comes_back() -> None:
    box = a_box()
    told: list[list[int]] = []
    for number in range(3):
        request = box.server.submit(conversation(number, 60), max_tokens=4)
        box.server.run()
        told.append(box.server.sequences[request].tolist())

    box.stop()

    for ids in told:
        answer = box.server.ask([*ids, 5, 6], max_tokens=1)
        assert answer.decision.reread == 2


def test_a_flush_that_cannot_write_what_memory_keeps_says_so() -> None:
    box = a_box(stored_bytes_max=4096)
    box.server.ask(conversation(0, 60), max_tokens=4)
    box.server.ask(conversation(1, 60), max_tokens=4)

    report = box.flush()

    assert not report.durable
    assert report.missing == 2


def test_a_conversation_that_loses_its_slot_while_it_is_flushed_is_saved_from_memory() -> None:
    box = a_box()
    box.server.ask(conversation(0, 200), max_tokens=4)
    answers: list[FlushReport] = []
    box.server.scheduler.flush(answers.append)
    box.server.submit(conversation(1, 200), max_tokens=4)
    for _ in range(10_000):
        if answers:
            break
        box.server.step()
        box.jobs.step()

    assert answers[0].durable
