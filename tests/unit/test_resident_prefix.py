"""What a slot keeps of a conversation, and what the next prompt resumes from."""

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.entry import Source, Tier
from anchorline.domain.taint_line import Gate
from anchorline.simulation.history import History

GRID = 8


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def test_the_next_turn_resumes_where_the_generation_ended() -> None:
    history = History()
    first = history.submit(ids(0, 20), max_tokens=6)
    history.run()
    conversation = history.sequences[first].tolist()

    answer = history.ask([*conversation, *ids(50, 9)])

    assert answer.decision.source is Source.END
    assert answer.decision.tier is Tier.SLOT
    assert answer.decision.gate is Gate.PRESERVED
    assert answer.decision.cached == len(conversation) == 20 + 5
    assert answer.decision.reread == 9


def test_an_edit_resumes_at_the_grid_line_below_it() -> None:
    history = History()
    history.ask(ids(0, 40))

    answer = history.ask([*ids(0, 29), 96, 95, 94])

    assert answer.decision.source is Source.RESIDENT
    assert answer.decision.gate is Gate.BITWISE
    assert answer.decision.cached == 24
    assert answer.decision.shared == 29


def test_the_same_prompt_again_forwards_its_last_chunk_for_its_logits() -> None:
    history = History()
    history.ask(ids(0, 32))

    answer = history.ask(ids(0, 32))

    assert answer.decision.cached == 24
    assert answer.decision.gate is Gate.BITWISE


def test_anchors_above_an_end_that_was_resumed_are_preserved_not_bitwise() -> None:
    history = History()
    first = history.submit(ids(0, 20), max_tokens=6)
    history.run()
    longer = [*history.sequences[first].tolist(), *ids(50, 30)]
    history.ask(longer)

    answer = history.ask([*longer[:45], 1, 2, 3])

    assert answer.decision.source is Source.RESIDENT
    assert answer.decision.cached == 40
    assert answer.decision.gate is Gate.PRESERVED


def test_anchors_below_the_taint_line_stay_bitwise_after_a_resumed_end() -> None:
    history = History()
    first = history.submit(ids(0, 20), max_tokens=6)
    history.run()
    longer = [*history.sequences[first].tolist(), *ids(50, 30)]
    history.ask(longer)

    answer = history.ask([*longer[:18], 1, 2, 3])

    assert answer.decision.cached == 16
    assert answer.decision.gate is Gate.BITWISE


def test_a_row_invariant_engine_resumes_its_ends_under_the_bitwise_gate() -> None:
    history = History(row_invariant=True)
    first = history.submit(ids(0, 20), max_tokens=6)
    history.run()

    answer = history.ask([*history.sequences[first].tolist(), *ids(50, 9)])

    assert answer.decision.source is Source.END
    assert answer.decision.gate is Gate.BITWISE


@pytest.mark.parametrize("parts", list(Parts))
def test_models_with_any_kinds_of_parts_resume_alike(parts: Parts) -> None:
    history = History(parts=parts)
    first = history.submit(ids(0, 20), max_tokens=6)
    history.run()

    answer = history.ask([*history.sequences[first].tolist(), *ids(50, 9)])

    assert answer.decision.cached == 25


def test_state_of_another_salt_is_invisible() -> None:
    history = History()
    history.ask(ids(0, 40), salt="alice")

    answer = history.ask(ids(0, 40), salt="bob")

    assert answer.decision.gate is Gate.COLD
    assert answer.decision.cached == 0
    assert answer.decision.shared == 0


def test_a_cancelled_prefill_keeps_the_anchors_it_took() -> None:
    history = History()
    request = history.submit(ids(0, 80))
    for _ in range(3):
        history.step()
    history.scheduler.cancel(request)

    answer = history.ask(ids(0, 80))

    assert answer.decision.cached == 24
    assert answer.decision.gate is Gate.BITWISE


def test_a_failed_forward_makes_the_slot_forget_everything() -> None:
    history = History()
    history.ask(ids(0, 40))
    history.engine.fail_next_forward()
    failing = history.submit(ids(0, 60))
    history.run()

    answer = history.ask(ids(0, 40))

    assert history.failed(failing) is not None
    assert answer.decision.gate is Gate.COLD


def test_a_generation_of_no_tokens_keeps_its_prompt() -> None:
    history = History()
    history.ask(ids(0, 20), max_tokens=0)

    answer = history.ask([*ids(0, 20), 1])

    assert answer.decision.source is Source.END
    assert answer.decision.cached == 20


def test_the_newest_anchors_stay_and_the_rest_are_spread() -> None:
    history = History(anchors=AnchorBudget(bytes_max=0, count_min=6, count_max=6, newest_kept=3))
    history.ask(ids(0, 200), last_user=0)

    lines = [anchor.line for anchor in history.scheduler.slots[0].resident.anchors]

    assert lines[-3:] == [184, 192, 200]
    assert len(lines) == 6
    assert lines[0] <= 200 // 2


def test_the_grid_line_below_the_last_user_message_is_kept() -> None:
    history = History(anchors=AnchorBudget(bytes_max=0, count_min=5, count_max=5, newest_kept=2))
    history.ask(ids(0, 200), last_user=77)

    lines = [anchor.line for anchor in history.scheduler.slots[0].resident.anchors]

    assert 72 in lines


def test_without_the_cache_every_request_is_cold() -> None:
    history = History(cache_enabled=False)
    history.ask(ids(0, 40))

    answer = history.ask(ids(0, 40))

    assert answer.decision.gate is Gate.COLD
    assert history.scheduler.slots[0].resident.anchors == ()


def test_steady_state_allocates_no_more_copies() -> None:
    history = History()
    sequence = ids(0, 10)
    sizes: list[int] = []
    for turn in range(12):
        request = history.submit([*sequence, *ids(turn, 9)], max_tokens=4)
        history.run()
        sequence = history.sequences[request].tolist()
        counts = history.engine.copies.counts()
        sizes.append(counts.section_bytes + counts.free_bytes)

    assert len(set(sizes[6:])) == 1


# --- row-invariant arithmetic -------------------------------------------------------------------


def test_in_exact_arithmetic_decode_leaves_anchors_on_the_grid_lines_it_passes() -> None:
    history = History(row_invariant=True)
    first = history.submit(ids(0, 12), max_tokens=30)
    history.run()
    conversation = history.sequences[first].tolist()

    answer = history.ask([*conversation[:35], 96, 95, 94])

    assert answer.decision.cached == 32
    assert answer.decision.gate is Gate.BITWISE


def test_in_exact_arithmetic_an_answer_that_is_left_out_resumes_where_its_prompt_ended() -> None:
    history = History(row_invariant=True)
    history.submit(ids(0, 21), max_tokens=4)
    history.run()

    answer = history.ask([*ids(0, 21), 96, 95, 94])

    assert answer.decision.cached == 21
    assert answer.decision.gate is Gate.BITWISE


@pytest.mark.parametrize("parting", [20, 21, 29])
def test_in_exact_arithmetic_prompts_that_part_where_two_did_resume_there(parting: int) -> None:
    history = History(row_invariant=True)
    history.ask([*ids(0, parting), *ids(1, 20)])
    first = history.ask([*ids(0, parting), *ids(2, 20)])

    second = history.ask([*ids(0, parting), *ids(3, 20)])

    assert first.decision.cached == parting - parting % 8
    assert (second.decision.cached, second.decision.gate) == (parting, Gate.BITWISE)


def test_in_exact_arithmetic_rows_alone_resume_at_each_grid_line_of_an_answer() -> None:
    history = History(row_invariant=True, parts=Parts.ATTENTION)
    first = history.submit(ids(0, 12), max_tokens=100)
    history.run()
    spoken = history.sequences[first].tolist()

    lines = [history.ask([*spoken[:at], 96, 95, 94]).decision.cached for at in (98, 66, 41, 27)]

    assert lines == [96, 64, 40, 24]


def test_in_exact_arithmetic_no_chunk_ends_for_a_few_tokens() -> None:
    history = History(row_invariant=True, grid=32)
    history.ask([*ids(0, 35), *ids(1, 20)])
    history.ask([*ids(0, 35), *ids(2, 20)])

    assert history.ask([*ids(0, 35), *ids(3, 20)]).decision.cached == 32


def test_in_exact_arithmetic_the_last_message_can_be_edited_where_the_answer_before_ended() -> None:
    history = History(row_invariant=True)
    first = history.submit(ids(0, 21), max_tokens=6)
    history.run()
    before = history.sequences[first].tolist()
    history.submit([*before, 90, 91, 92], max_tokens=3)
    history.run()

    answer = history.ask([*before, 93, 94, 95])

    assert answer.decision.source is Source.END
    assert answer.decision.cached == len(before) == 21 + 5
    assert answer.decision.gate is Gate.BITWISE


def test_in_exact_arithmetic_the_anchors_budget_holds_for_earlier_ends_too() -> None:
    history = History(row_invariant=True, anchors=AnchorBudget(bytes_max=0, count_min=6))
    conversation = ids(0, 21)
    for turn in range(12):
        request = history.submit([*conversation, turn, 3, 5], max_tokens=9)
        history.run()
        conversation = history.sequences[request].tolist()

    assert history.engine.copies.counts().sections <= 6 + 1


def test_in_exact_arithmetic_what_decode_leaves_displaces_no_newest_anchor_of_a_prefill() -> None:
    budget = AnchorBudget(bytes_max=0, count_min=3, newest_kept=2)
    history = History(row_invariant=True, anchors=budget)
    history.submit(ids(0, 97), max_tokens=40)
    history.run()

    answer = history.ask([*ids(0, 90), 1, 2, 3])

    assert answer.decision.cached == 88
