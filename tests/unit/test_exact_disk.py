"""What row-invariant arithmetic changes on the medium: nothing that decode wrote is set apart."""

from anchorline.domain.entry import Role, Source
from anchorline.domain.taint_line import Gate
from anchorline.simulation.box import GRID, Box


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def test_rows_that_were_prefilled_off_the_grid_can_become_a_head() -> None:
    box = Box(row_invariant=True)
    prompt = ids(0, 26)
    box.server.ask(prompt, max_tokens=1)
    box.flush()
    for start in (9, 50):
        box.server.scheduler.clear_ram()
        box.server.ask([*prompt, *ids(9, 6), *ids(start, 9)])
        box.settle()

    heads = [entry for entry in box.disk.tier.entries() if entry.role is Role.HEAD]

    assert heads != []


def test_what_was_decoded_is_stored_under_the_names_of_what_was_read_cold() -> None:
    talker, reader = Box(row_invariant=True), Box(row_invariant=True)
    request = talker.server.submit(ids(0, 20), max_tokens=41)
    talker.server.run()
    spoken = talker.server.sequences[request].tolist()

    reader.server.ask(spoken[: 7 * GRID], max_tokens=1)
    talker.flush()
    reader.flush()

    assert len(set(talker.names) & set(reader.names)) >= 7


def test_an_edit_inside_an_answer_resumes_bitwise_after_a_restart() -> None:
    box = Box(row_invariant=True)
    request = box.server.submit(ids(0, 12), max_tokens=60)
    box.server.run()
    spoken = box.server.sequences[request].tolist()
    box.flush()
    box.kill()

    answer = box.server.ask([*spoken[:50], 96, 95, 94])

    assert answer.decision.source is Source.CONVERSATION
    assert answer.decision.cached == 40  # four anchors are spread over the answer
    assert answer.decision.gate is Gate.BITWISE
