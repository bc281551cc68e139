"""Faults of caches that were met in the field elsewhere, and are excluded from the tier in memory.

As in `test_field_cases`: each test is named for its rule, every state is held against the oracle
after every step, and so most of what is asserted is what was resumed, and how far.
"""

import random
from typing import Final

import pytest

from anchorline.adapters.memory.checkable_engine import exported
from anchorline.adapters.memory.checkable_state import Parts, layout_of
from anchorline.application.ram_tier import RamTier
from anchorline.application.request import Decision
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.entry import Role, Source, Tier
from anchorline.domain.grid import Grid
from anchorline.domain.taint_line import Gate
from anchorline.simulation.box import GRID, Box
from anchorline.simulation.history import History
from support.builders import random_ids

STEP: Final = Grid(GRID)
PLENTY: Final = 1 << 20


def ids(seed: int, count: int) -> list[int]:
    return random_ids(count, seed=seed).tolist()


def a_server(
    *,
    slots: int = 1,
    parts: Parts = Parts.HYBRID,
    row_invariant: bool = False,
    window: int = 512,
    ram_bytes_max: int = PLENTY,
) -> History:
    return History(
        slots=slots,
        window=window,
        grid=GRID,
        parts=parts,
        row_invariant=row_invariant,
        ram_bytes_max=ram_bytes_max,
    )


def turn(
    server: History, prompt: list[int], *, max_tokens: int = 4, session: str | None = None
) -> tuple[Decision, list[int]]:
    """Ask, and give back what was decided and all tokens that the slot holds afterwards."""
    request = server.submit(prompt, max_tokens=max_tokens, session=session)
    server.run()
    finished = server.finished(request)
    assert finished is not None
    return finished.decision, server.sequences[request].tolist()


def pushed_out(server: History) -> None:
    """Somebody else reads a long prompt in every slot."""
    requests = [
        server.submit(ids(900 + slot.index, 12 * GRID), max_tokens=2)
        for slot in server.scheduler.slots
    ]
    server.run()
    assert all(server.finished(request) is not None for request in requests)


def memory(server: History) -> RamTier:
    assert server.scheduler.ram is not None
    return server.scheduler.ram


def bytes_of(rows: int, anchors: int = 7, *, parts: Parts = Parts.HYBRID) -> int:
    """What a conversation of so many rows takes."""
    layout = layout_of(parts)
    return rows * layout.row_bytes + anchors * layout.section_bytes


every_kind = pytest.mark.parametrize("parts", list(Parts))
every_arithmetic = pytest.mark.parametrize(
    "row_invariant", [False, True], ids=["on the grid", "row-invariant"]
)


# --- a wrong state after a hit ------------------------------------------------------------------


@every_arithmetic
@every_kind
def test_what_was_pushed_out_and_brought_back_again_and_again_is_what_it_was(
    parts: Parts, *, row_invariant: bool
) -> None:
    server = a_server(parts=parts, row_invariant=row_invariant)
    alone = a_server(parts=parts, row_invariant=row_invariant)
    held = expected = ids(0, 11 * GRID + 3)

    for number in range(4):
        new = ids(number, 5)
        decision, held = turn(server, [*held, *new])
        _, expected = turn(alone, [*expected, *new])
        state = exported(server.engine.slots[0])
        pushed_out(server)

        assert held == expected
        assert state == exported(alone.engine.slots[0])
        assert decision.tier is (Tier.RAM if number else Tier.NONE)


@every_kind
def test_what_leaves_memory_for_the_disk_is_what_it_was_when_it_comes_back(parts: Parts) -> None:
    """Prompts worth more than memory holds push it down; it is read up again, and once more."""
    room = bytes_of(40 * GRID, 14, parts=parts)
    box = Box(window=512, parts=parts, ram_bytes_max=room, evicted_tokens_min=GRID)
    _, held = turn(box.server, ids(0, 11 * GRID + 3))

    tiers: list[Tier] = []
    for number, others in enumerate([5, 5, 1]):
        for other in range(others):
            turn(box.server, ids(1000 + 100 * number + other, 20 * GRID))
            box.settle()
        at = len(held)
        decision, held = turn(box.server, [*held, 5])
        box.settle()
        tiers.append(decision.tier)

        assert decision.cached > at - GRID  # a short block is read again as soon as it is fetched

    assert (tiers[0], tiers[-1]) == (Tier.DISK, Tier.RAM)
    assert Tier.NONE not in tiers


@every_kind
def test_a_prefill_beside_a_generation_leaves_in_memory_what_each_is_alone(parts: Parts) -> None:
    server = a_server(slots=2, parts=parts)
    first = server.submit(ids(0, 3 * GRID), max_tokens=20)
    while server.scheduler.slots[0].running is None or server.scheduler.slots[0].running.prefilling:
        server.step()
    second = server.submit(ids(40, 6 * GRID + 1), max_tokens=5)
    server.run()
    pushed_out(server)

    for request in (first, second):
        held = server.sequences[request].tolist()
        decision, _ = turn(server, [*held, 1, 2])

        assert (decision.tier, decision.cached) == (Tier.RAM, len(held))


@pytest.mark.parametrize("chunks", range(6))
def test_memory_keeps_of_a_prefill_that_was_cancelled_what_it_has_reached(chunks: int) -> None:
    server = a_server()
    prompt = ids(0, 5 * GRID + 3)
    request = server.submit(prompt, max_tokens=4)
    for _ in range(chunks):
        server.step()
    server.cancel(request)
    pushed_out(server)

    decision, _ = turn(server, prompt)

    assert decision.cached == chunks * GRID
    assert decision.tier is (Tier.RAM if chunks else Tier.NONE)


@pytest.mark.parametrize("chunks", range(6))
def test_memory_keeps_nothing_of_a_forward_that_failed(chunks: int) -> None:
    """And of a conversation whose rows stood above it what had been moved out before."""
    server = a_server()
    _, held = turn(server, ids(1, 12 * GRID))
    server.engine.fail_next_forward(after=chunks)
    failing = server.submit(ids(0, 5 * GRID + 3), max_tokens=4)
    server.run()

    decision, _ = turn(server, ids(0, 5 * GRID + 3))
    kept, _ = turn(server, [*held, 1])

    assert server.failed(failing) is not None
    assert decision.gate is Gate.COLD
    lines = [line for line in (2 * GRID, 4 * GRID) if line <= chunks * GRID]
    assert kept.cached in (0, *lines, *range(GRID, (chunks + 2) * GRID, GRID))


@pytest.mark.parametrize("slots", [1, 2])
def test_many_sessions_that_return_in_any_order_find_their_own_state(slots: int) -> None:
    """Each says something that no other does; memory has room for three, and forgets the rest."""
    chance = random.Random(slots)
    server = a_server(slots=slots, ram_bytes_max=3 * bytes_of(6 * GRID))
    alone = {number: answer_alone(number) for number in range(40)}

    order = [*range(40), *chance.sample(range(40), 40), *chance.choices(range(5), k=20)]
    for number in order:
        request = server.submit(fact(number), max_tokens=6)
        server.run()

        assert server.text(request) == alone[number]

    for entry in memory(server).entries:
        [owner] = [number for number in range(40) if entry.ids[0] == number]
        assert entry.ids[: len(fact(owner))].tolist() == fact(owner)[: len(entry.ids)]


def fact(number: int) -> list[int]:
    """A prompt that begins with what only its session knows."""
    return [number, *ids(number, 4 * GRID)]


def answer_alone(number: int) -> str:
    server = History(grid=GRID)
    request = server.submit(fact(number), max_tokens=6)
    server.run()
    return server.text(request)


@pytest.mark.parametrize("max_tokens", [0, 4], ids=["stores nothing", "answers"])
@pytest.mark.parametrize("slots", [1, 2])
@every_kind
def test_who_borrows_a_prefix_from_memory_and_then_parts_changes_nothing_of_it(
    parts: Parts, slots: int, max_tokens: int
) -> None:
    server = a_server(slots=slots, parts=parts)
    one = ids(0, 6 * GRID + 5)
    turn(server, one, max_tokens=0)
    before = exported(server.engine.slots[0])
    pushed_out(server)

    turn(server, [*one[: 5 * GRID + 2], *ids(50, 3 * GRID)], max_tokens=max_tokens)
    pushed_out(server)
    decision, _ = turn(server, one, max_tokens=0)

    assert (decision.tier, decision.gate) == (Tier.RAM, Gate.BITWISE)
    assert exported(server.engine.slots[decision.slot]) == before


def test_two_prompts_with_one_head_and_memory_for_one_never_answer_for_each_other() -> None:
    head = ids(0, 4 * GRID)
    prompts = [[*head, *ids(start, 5)] for start in (30, 60)]
    server = a_server(ram_bytes_max=bytes_of(5 * GRID))

    answers: list[list[int]] = []
    for prompt in (*prompts, *prompts, *prompts):
        _, held = turn(server, prompt, max_tokens=12)
        answers.append(held[len(prompt) :])
        turn(server, ids(70, 5 * GRID))

    assert answers == answers[:2] * 3
    assert answers[0] != answers[1]


@pytest.mark.parametrize("lost", [1, 3, 6, 9])
@pytest.mark.parametrize("anchors", [6, 24])
def test_the_usable_line_is_the_lowest_of_what_is_left_of_rows_and_of_anchors(
    anchors: int, lost: int
) -> None:
    server = History(
        window=512,
        grid=GRID,
        anchors=AnchorBudget(bytes_max=0, count_min=anchors),
        ram_bytes_max=PLENTY,
    )
    prompt = ids(0, 10 * GRID + 3)
    turn(server, prompt)
    lines = server.scheduler.slots[0].resident.lines
    server.engine.fail_next_forward(after=lost)
    server.submit(ids(1, 30 * GRID))
    server.run()

    decision, _ = turn(server, [*prompt, 1])

    # Chunk by chunk the failing one has moved its rows out of the way, its own chunk's too.
    rows = (lost + 1) * GRID
    assert decision.cached == max([line for line in lines if line <= rows], default=0)


# --- never a hit --------------------------------------------------------------------------------


@every_arithmetic
@every_kind
def test_what_is_said_to_be_brought_back_is_not_read_again(
    parts: Parts, *, row_invariant: bool
) -> None:
    server = a_server(parts=parts, row_invariant=row_invariant)
    _, held = turn(server, ids(0, 9 * GRID + 5), max_tokens=11)
    pushed_out(server)
    before = server.engine.tokens_forwarded

    decision, _ = turn(server, [*held, 1, 2, 3], max_tokens=0)

    assert (decision.cached, decision.reread) == (len(held), 3)
    assert server.engine.tokens_forwarded - before == 3


@pytest.mark.parametrize("length", [1, GRID - 1, GRID, GRID + 1])
def test_a_prompt_shorter_than_a_grid_step_costs_less_than_one_when_it_was_pushed_out(
    length: int,
) -> None:
    """What is shorter is read again sooner than it is kept."""
    server = a_server()
    _, held = turn(server, ids(0, length))
    pushed_out(server)

    decision, _ = turn(server, [*held, 1, 2])

    assert decision.reread < 2 + GRID
    assert decision.cached == (len(held) if len(held) >= GRID else 0)


@pytest.mark.parametrize("retokenised", [False, True], ids=["as it came", "retokenised"])
def test_thirty_turns_that_lose_their_slot_reread_their_own_tokens_and_less_than_a_step(
    *, retokenised: bool
) -> None:
    server = a_server(window=2048)
    prompt = new = ids(0, 30)
    before = 0

    for number in range(30):
        decision, held = turn(server, prompt, session="s")
        answer = held[len(prompt) :]
        pushed_out(server)

        assert decision.reread <= len(new) + 1 + GRID
        assert decision.cached >= before
        before = decision.cached
        new = [*(reversed(answer) if retokenised else answer), *ids(number, 30)]
        prompt = [*prompt, *new]


@pytest.mark.parametrize("length", range(3 * GRID, 4 * GRID + 2))
def test_a_length_that_is_no_multiple_of_the_grid_is_continued_from_memory(length: int) -> None:
    server = a_server()
    prompt = ids(0, length)
    turn(server, prompt, max_tokens=0)
    pushed_out(server)

    decision, _ = turn(server, [*prompt, 1, 2, 3])

    assert (decision.tier, decision.cached) == (Tier.RAM, length)


@pytest.mark.parametrize("chat", [4 * GRID, 40 * GRID], ids=["a short chat", "a long one"])
def test_titles_tags_and_follow_ups_leave_the_chat_a_hit_without_a_disk(chat: int) -> None:
    server = a_server()
    _, held = turn(server, ids(0, chat))

    for number in range(1, 4):
        for start in (30, 50, 70):  # a title, tags, follow-up questions
            turn(server, ids(10 * number + start, 3 * GRID))
        turn(server, [*held, *ids(number, 6)])  # and one that quotes the chat as it stands
        at = len(held)
        decision, held = turn(server, [*held, 1, 2, 3])

        assert decision.cached == at


def test_sessions_that_take_turns_on_one_slot_lose_nothing_of_each_other_without_a_disk() -> None:
    server = a_server(window=1024)
    sessions = {"one": ids(0, 30), "two": ids(50, 30)}

    for number in range(20):
        for name, held in sessions.items():
            decision, sessions[name] = turn(server, [*held, *ids(number, 7)], session=name)
            if number:
                assert (decision.tier, decision.cached) == (Tier.RAM, len(held))

    assert len(memory(server).entries) <= 2


# --- budgets ------------------------------------------------------------------------------------


def test_thousands_of_small_prompts_leave_no_more_in_memory_than_its_budget() -> None:
    budget = 20_000
    server = a_server(ram_bytes_max=budget)
    chance = random.Random(5)
    most = 0

    for _ in range(250):
        turn(server, [chance.randrange(97) for _ in range(chance.randrange(1, 40))])
        ram, live = memory(server), server.engine.copies.counts()
        resident = server.scheduler.slots[0].resident.kept + 1
        assert ram.nbytes <= budget
        assert live.row_bytes + live.section_bytes <= budget + resident * 24
        most = max(most, len(ram.entries))

    assert memory(server).counts.evicted > 40
    assert most < 100


def test_a_conversation_larger_than_memory_is_refused_but_for_its_head_and_serving_goes_on() -> (
    None
):
    server = a_server(ram_bytes_max=bytes_of(10 * GRID))
    _, held = turn(server, ids(2, 30 * GRID))

    turn(server, ids(3, 31 * GRID))
    [entry] = memory(server).entries
    decision, _ = turn(server, [*held, 1])

    assert (entry.role, decision.source, decision.gate) == (Role.PIN, Source.PIN, Gate.BITWISE)
    assert decision.cached == 8 * GRID


@pytest.mark.parametrize("chunks", range(1, 6))
def test_a_client_that_left_finds_what_was_read_though_another_took_its_slot(chunks: int) -> None:
    server = a_server()
    prompt = ids(0, 8 * GRID + 3)
    request = server.submit(prompt)
    for _ in range(chunks):
        server.step()
    server.cancel(request)
    idle = server.scheduler.idle
    pushed_out(server)

    decision, _ = turn(server, prompt)

    assert idle
    assert decision.reread <= len(prompt) - chunks * GRID + GRID
