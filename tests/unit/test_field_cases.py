"""Faults of caches that were met in the field elsewhere, and are excluded here.

Each test is named for its rule. The engine's state says what it is the state of, and `History`
holds every state against it, after every step; so most of what is asserted here is what was
resumed, and how far. docs/testing.md lists the rules with their tests.
"""

import random
from itertools import chain

import pytest

from anchorline.adapters.memory.checkable_engine import exported
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.request import Decision
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.disk_retention import Shares
from anchorline.domain.entry import Tier
from anchorline.domain.grid import Grid
from anchorline.domain.namespace import Namespace
from anchorline.domain.prompt import Prompt
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import token_ids
from anchorline.simulation.box import GRID, Box
from anchorline.simulation.history import History
from support.builders import a_request

STEP = Grid(GRID)


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def turn(server: History, prompt: list[int], *, max_tokens: int = 4) -> tuple[Decision, list[int]]:
    """Ask, and give back what was decided and all tokens that the slot holds afterwards."""
    request = server.submit(prompt, max_tokens=max_tokens)
    server.run()
    finished = server.finished(request)
    assert finished is not None
    return finished.decision, server.sequences[request].tolist()


def ask_as(server: History, prompt: Prompt, namespace: Namespace) -> Decision:
    """Ask with key ids or a namespace of its own."""
    request = a_request(
        prompt,
        id=f"own {len(server.requests)}",
        namespace=namespace,
        max_tokens=2,
        arrived_s=server.clock.monotonic(),
    )
    server.requests[request.id] = request
    server.scheduler.submit(request, server.events.setdefault(request.id, []).append)
    server.run()
    finished = server.finished(request.id)
    assert finished is not None
    return finished.decision


# --- a wrong state after a hit ------------------------------------------------------------------


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 5, 8, 9])
@pytest.mark.parametrize("parts", list(Parts))
def test_whatever_a_generation_leaves_that_was_cut_short_can_be_resumed(
    parts: Parts, max_tokens: int
) -> None:
    prompt = ids(0, 4 * GRID - 3)
    first = History(grid=GRID, parts=parts)
    _, held = turn(first, prompt, max_tokens=max_tokens)
    lines = {anchor.line for anchor in first.scheduler.slots[0].resident.anchors} | {len(held)}

    for line in sorted(lines):
        server = History(grid=GRID, parts=parts)
        turn(server, prompt, max_tokens=max_tokens)
        decision, _ = turn(server, [*held[:line], 96, 95, 94])

        assert decision.cached == line


def test_an_answer_that_a_stop_string_cuts_in_the_middle_of_a_token_can_be_continued() -> None:
    prompt = ids(0, 2 * GRID + 3)
    whole = History(grid=GRID)
    text = whole.text(_submitted(whole, prompt))
    server = History(grid=GRID)
    request = server.submit(prompt, max_tokens=12, stop=(text[len(text) // 2 :][:2],))
    server.run()
    held = server.sequences[request].tolist()

    decision, _ = turn(server, [*held, 1, 2, 3])

    assert text.startswith(server.text(request))
    assert len(server.text(request)) < len(text)
    assert decision.cached == len(held)


def _submitted(server: History, prompt: list[int]) -> str:
    request = server.submit(prompt, max_tokens=12)
    server.run()
    return request


@pytest.mark.parametrize("parts", list(Parts))
def test_a_prompt_that_was_pushed_out_and_brought_back_is_the_state_it_was(parts: Parts) -> None:
    box = Box(parts=parts, evicted_tokens_min=1)
    prompt = ids(0, 11 * GRID + 3)

    tiers: list[Tier] = []
    for start in range(1, 4):
        turn(box.server, prompt)
        decision, _ = turn(box.server, [*prompt, 5])
        tiers.append(decision.tier)
        for other in range(3):
            turn(box.server, ids(10 * start + other, 12 * GRID))
            box.settle()
        decision, _ = turn(box.server, [*prompt, 6])
        tiers.append(decision.tier)

        assert decision.cached >= len(prompt) - GRID

    assert tiers == [Tier.SLOT, Tier.DISK] * 3


def test_a_prefill_beside_a_generation_leaves_both_what_they_are_alone() -> None:
    server = History(slots=2, grid=GRID)
    first = server.submit(ids(0, 3 * GRID), max_tokens=20)
    while server.scheduler.slots[0].running is None or server.scheduler.slots[0].running.prefilling:
        server.step()
    second = server.submit(ids(40, 6 * GRID + 1), max_tokens=5)
    server.run()

    for request in (first, second):
        held = server.sequences[request].tolist()
        decision, _ = turn(server, [*held, 1, 2])

        assert decision.cached == len(held)


@pytest.mark.parametrize("chunks", range(5))
@pytest.mark.parametrize("parts", list(Parts))
def test_a_client_that_leaves_after_a_chunk_costs_the_retry_what_was_not_read_and_a_grid_step(
    parts: Parts, chunks: int
) -> None:
    server = History(grid=GRID, parts=parts)
    prompt = ids(0, 5 * GRID + 3)
    request = server.submit(prompt)
    while server.scheduler.slots[0].resident.length < chunks * GRID:
        server.step()
    server.scheduler.cancel(request)
    forwarded = server.engine.tokens_forwarded
    server.run()

    decision, _ = turn(server, prompt)

    assert server.engine.tokens_forwarded - forwarded == decision.reread + 4 - 1
    assert decision.cached == chunks * GRID


@pytest.mark.parametrize("chunks", range(5))
def test_nothing_of_a_prefill_that_failed_is_resumed(chunks: int) -> None:
    server = History(grid=GRID)
    prompt = ids(0, 5 * GRID + 3)
    server.engine.fail_next_forward(after=chunks)
    request = server.submit(prompt)
    server.run()

    decision, _ = turn(server, prompt)

    assert server.failed(request) is not None
    assert decision.gate is Gate.COLD


def test_many_sessions_that_return_in_any_order_find_their_own_state() -> None:
    chance = random.Random(0)
    box = Box(slots=3, window=128, evicted_tokens_min=1)
    sessions = [[chance.randrange(97) for _ in range(5 * GRID + at % GRID)] for at in range(40)]
    for at, prompt in enumerate(sessions):
        _, sessions[at] = turn(box.server, prompt)
    chance.shuffle(sessions)

    resumed = 0
    for at in range(0, len(sessions), 3):
        asked = {box.server.submit([*held, 1, 2]): held for held in sessions[at : at + 3]}
        box.server.run()
        for request, held in asked.items():
            finished = box.server.finished(request)
            assert finished is not None
            assert box.server.sequences[request].tolist()[: len(held)] == held
            resumed += finished.decision.cached == len(held)

    assert resumed > len(sessions) // 2


@pytest.mark.parametrize("max_tokens", [0, 5])
@pytest.mark.parametrize("parts", list(Parts))
def test_who_shares_a_prefix_and_then_parts_changes_nothing_of_what_it_shared(
    parts: Parts, max_tokens: int
) -> None:
    box = Box(parts=parts, evicted_tokens_min=1)
    one = ids(0, 8 * GRID + 5)
    other = [*one[: 5 * GRID + 2], *ids(50, 3 * GRID)]
    turn(box.server, one, max_tokens=0)
    before = exported(box.server.engine.slots[0])

    turn(box.server, other, max_tokens=max_tokens)
    decision, _ = turn(box.server, one, max_tokens=0)

    assert decision.gate is Gate.BITWISE
    assert exported(box.server.engine.slots[0]) == before


def test_two_prompts_with_one_head_and_room_for_one_never_answer_for_each_other() -> None:
    head = ids(0, 4 * GRID)
    prompts = [[*head, *ids(start, 5)] for start in (30, 60)]
    alone: list[str] = []
    for prompt in prompts:
        server = History(grid=GRID)
        alone.append(server.text(_submitted(server, prompt)))
    server = History(grid=GRID)

    answers = [server.text(_submitted(server, prompt)) for prompt in (*prompts, *prompts)]

    assert answers == alone + alone
    assert alone[0] != alone[1]


@pytest.mark.parametrize("line", [2 * GRID + 1, 4 * GRID, 7 * GRID + 3, 11 * GRID])
def test_rows_without_their_anchor_are_no_offer(line: int) -> None:
    """Anchors beyond the budget go while all rows stay: the usable line is the lower of both."""
    server = History(grid=GRID, anchors=AnchorBudget(bytes_max=0, count_min=6))
    prompt = ids(0, 12 * GRID)
    turn(server, prompt, max_tokens=0)
    anchors = [anchor.line for anchor in server.scheduler.slots[0].resident.anchors]
    assert len(anchors) == 6

    decision, _ = turn(server, [*prompt[:line], 96, 95])

    assert decision.cached == max([at for at in anchors if at <= line], default=0)


# --- identity -----------------------------------------------------------------------------------


def test_state_of_an_adapter_serves_that_adapter_at_that_scale_alone() -> None:
    box = Box(evicted_tokens_min=1)
    tokens = token_ids(ids(0, 6 * GRID + 1))
    prompt = Prompt(tokens, tokens)
    names = ["", "a:3f1c:1.0", "b:77e0:1.0", "a:3f1c:0.5"]

    first = [ask_as(box.server, prompt, Namespace(adapter=name)).gate for name in names]
    box.stop()
    again = [ask_as(box.server, prompt, Namespace(adapter=name)).cached for name in names]

    assert first == [Gate.COLD] * 4
    assert again == [6 * GRID] * 4


MEDIA = slice(20, 29)
"""Where the image stands; the model reads the same placeholder in every row."""


def with_image(*, digest: int, offset: int = 0) -> Prompt:
    """Text around an image, which caches know by ids from its digest and its place."""
    text = ids(0, 6 * GRID)
    before, after = text[: MEDIA.start + offset], text[MEDIA.stop + offset :]
    rows = range(MEDIA.stop - MEDIA.start)
    return Prompt(
        token_ids([*before, *(96 for _ in rows), *after]),
        token_ids([*before, *((1 << 31) + 1000 * digest + row for row in rows), *after]),
    )


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (with_image(digest=2), MEDIA.start),  # another image, or another resize of the same one
        (with_image(digest=1, offset=GRID), MEDIA.start),
        (with_image(digest=1), 6 * GRID - 1),
    ],
    ids=["other bytes", "other place", "the same"],
)
def test_what_is_resumed_ends_before_an_image_that_is_not_the_same(
    other: Prompt, shared: int
) -> None:
    server = History(grid=GRID)
    ask_as(server, with_image(digest=1), Namespace())

    decision = ask_as(server, other, Namespace())

    assert decision.cached == STEP.floor(shared)


def test_state_of_weights_that_were_changed_in_place_is_not_resumed() -> None:
    box = Box()
    prompt = ids(0, 6 * GRID + 1)
    turn(box.server, prompt)
    box.flush()

    box.weights = "two"
    box.kill()
    changed, _ = turn(box.server, [*prompt, 1])
    box.weights = "one"
    box.kill()
    back, _ = turn(box.server, [*prompt, 1])

    assert (changed.cached, changed.gate) == (0, Gate.COLD)
    assert back.cached == 6 * GRID


# --- agents -------------------------------------------------------------------------------------


def test_a_client_that_strips_the_reasoning_rereads_an_answer_a_question_and_a_grid_step() -> None:
    server = History(window=512, grid=GRID)
    prompt = ids(0, 6 * GRID + 3)

    for number in range(6):
        decision, held = turn(server, prompt, max_tokens=14)
        answer = held[len(prompt) + 9 :]  # nine tokens of it were reasoning
        new = [*answer, *ids(number, 10)]
        if number:
            assert decision.reread <= len(new) + 1 + GRID
        prompt = [*prompt, *new]


@pytest.mark.parametrize("length", [1, GRID - 1, GRID, GRID + 1])
def test_a_prompt_shorter_than_a_grid_step_is_continued_at_its_end(length: int) -> None:
    server = History(grid=GRID)
    _, held = turn(server, ids(0, length))

    decision, _ = turn(server, [*held, 1, 2])

    assert decision.cached == len(held)


@pytest.mark.parametrize("retokenised", [False, True], ids=["as it came", "retokenised"])
def test_thirty_turns_reread_their_own_tokens_and_less_than_a_grid_step(
    *, retokenised: bool
) -> None:
    """Where the client's text gives other ids than were sampled, the grid is all there is."""
    server = History(window=2048, grid=GRID)
    prompt = new = ids(0, 30)
    before = 0

    for number in range(30):
        decision, held = turn(server, prompt)
        answer = held[len(prompt) :]
        assert decision.reread <= len(new) + 1 + GRID
        assert decision.cached >= before
        before = decision.cached
        new = [*(reversed(answer) if retokenised else answer), *ids(number, 30)]
        prompt = [*prompt, *new]


@pytest.mark.parametrize("length", range(3 * GRID, 4 * GRID + 2))
def test_a_length_that_is_no_multiple_of_the_grid_costs_less_than_a_step(length: int) -> None:
    box = Box(evicted_tokens_min=1)
    prompt = ids(0, length)
    turn(box.server, prompt, max_tokens=0)
    box.stop()

    decision, _ = turn(box.server, [*prompt, 1, 2, 3])

    assert decision.cached >= STEP.floor(length)
    assert decision.reread <= 3 + GRID


@pytest.mark.parametrize("at", [3, 40, 60])
def test_a_tool_output_that_is_blanked_leaves_what_stands_before_it(at: int) -> None:
    server = History(window=1024, grid=GRID, anchors=AnchorBudget(bytes_max=0, count_min=40))
    messages = [ids(start, 11) for start in range(80)]
    turn(server, [*chain(*messages)])
    blanked = [*messages[:at], [0, 0], *messages[at + 1 :]]

    decision, _ = turn(server, [*chain(*blanked)])

    before = 11 * at
    assert STEP.floor(before) - 2 * GRID <= decision.cached <= before


def test_helpers_of_a_chat_leave_the_chat_a_hit() -> None:
    box = Box(evicted_tokens_min=1)
    _, held = turn(box.server, ids(0, 6 * GRID))

    for start in (30, 50, 70):  # a title, tags, follow-up questions
        turn(box.server, ids(start, 3 * GRID))
        box.settle()
    decision, _ = turn(box.server, [*held, 1, 2, 3])

    assert (decision.tier, decision.cached) == (Tier.DISK, len(held))


def test_a_date_in_a_system_prompt_costs_what_follows_it() -> None:
    server = History(grid=GRID)
    instructions, rest = ids(0, 3 * GRID), ids(50, 4 * GRID)
    turn(server, [*instructions, 11, 12, *rest])

    decision, _ = turn(server, [*instructions, 11, 13, *rest])

    assert decision.cached == 3 * GRID


def test_a_clock_that_is_set_back_makes_no_age_negative_and_keeps_the_order() -> None:
    box = Box(evicted_tokens_min=1)
    for start, jump_s in ((0, 0.0), (20, 86_400.0), (40, -2 * 86_400.0)):
        box.clock.jump(jump_s)
        box.clock.advance(10.0)
        turn(box.server, ids(start, 4 * GRID))
        box.stop()

    kept = box.disk.tier.entry_stats()
    newest = box.disk.tier.latest_conversations(3)

    assert len(kept) == 3
    assert all(entry.age_s >= 0 for entry in kept)
    created = [entry.created_s for entry in newest]
    assert created == sorted(created, reverse=True)


def test_a_generation_prefix_that_clients_do_not_send_back_costs_less_than_a_grid_step() -> None:
    """The prompt ends in tokens that open a block; the stored turn has others there."""
    server = History(grid=GRID)
    history, opening = ids(0, 5 * GRID + 3), [91, 92, 93]
    _, held = turn(server, [*history, *opening])
    answer = held[len(history) + len(opening) :]

    decision, _ = turn(server, [*history, 90, *answer, *ids(40, 9), *opening])

    assert (decision.gate, decision.cached) == (Gate.BITWISE, 5 * GRID)


def test_sessions_that_take_turns_on_one_slot_lose_nothing_of_each_other() -> None:
    box = Box(window=1024, evicted_tokens_min=1)
    sessions = {"one": ids(0, 30), "two": ids(50, 30)}

    for number in range(20):
        for name, held in sessions.items():
            prompt = [*held, *ids(number, 7)]
            decision, sessions[name] = turn(box.server, prompt)
            box.settle()
            if number:
                assert decision.cached == len(held)


@pytest.mark.parametrize("slots", [1, 2])
def test_cached_and_reread_add_up_to_the_prompt_on_misses_and_on_hits(slots: int) -> None:
    chance = random.Random(slots)
    server = History(slots=slots, grid=GRID)
    prompt = ids(0, 5)

    for _ in range(30):
        prompt = prompt[: chance.randrange(len(prompt) + 1)] + ids(chance.randrange(97), 9)
        decision, prompt = turn(server, prompt[:200])
        assert decision.cached + decision.reread == len(prompt) - 4 + 1
        assert (decision.cached == 0) == (decision.gate is Gate.COLD)


# --- budgets ------------------------------------------------------------------------------------


def test_thousands_of_small_prompts_leave_no_more_than_the_budgets_hold() -> None:
    shares = Shares(200_000, 400_000)
    box = Box(shares=shares, evicted_tokens_min=1)
    chance = random.Random(5)

    for _ in range(300):
        turn(box.server, [chance.randrange(97) for _ in range(chance.randrange(1, 40))])
        assert box.storage.space().used <= shares.pool
        live = box.server.engine.copies.counts().sections
        assert live <= box.server.anchors.capacity(1) + 1

    assert box.disk.tier.counters.evicted > 0


def test_an_entry_larger_than_its_budget_is_refused_and_serving_goes_on() -> None:
    box = Box(shares=Shares(0, 50_000), evicted_tokens_min=1)
    prompt = ids(0, 24 * GRID)
    turn(box.server, prompt)

    report = box.flush()
    decision, _ = turn(box.server, [*prompt, 1])

    assert (report.durable, report.missing, box.names) == (False, 1, [])
    assert decision.cached == 24 * GRID
