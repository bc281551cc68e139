"""Many conversations on one slot: what comes between two turns costs neither its state.

`History` holds every state against the oracle, after every forward; so what is asserted here is
where each turn began, and what that took.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.ram_tier import RamTier
from anchorline.application.request import Decision
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.disk_retention import Shares
from anchorline.domain.entry import Role, Source, Tier
from anchorline.domain.taint_line import Gate
from anchorline.simulation.box import GRID, Box
from anchorline.simulation.history import History

PLENTY: Final = 1 << 20
ANSWER: Final = 2 * GRID + 3
"""Longer than a grid step: whoever loses the end of an answer reads more than a step again."""


def words(seed: int, count: int) -> list[int]:
    """Tokens that are no other seed's."""
    chance = random.Random(seed)
    return [chance.randrange(97) for _ in range(count)]


class Talk:
    """One conversation, and what its client knows of it.

    Attributes:
        held: all tokens so far.
        new: tokens of the last turn that the server had not seen of this conversation.
    """

    def __init__(self, server: History, session: str | None = None) -> None:
        self.server = server
        self.session = session
        self.held: list[int] = []
        self.new = 0

    def turn(self, more: Sequence[int], *, answer: int = ANSWER) -> Decision:
        """The next turn."""
        decision, self.held = asked(self.server, [*self.held, *more], answer, self.session)
        self.new = len(more)
        return decision

    def checked_turn(self, more: Sequence[int], *, answer: int = ANSWER) -> Decision:
        """The next turn, which reads its own tokens and less than a grid step again."""
        decision = self.turn(more, answer=answer)
        assert decision.reread <= self.new + GRID
        return decision

    def helper(self, more: Sequence[int], *, session: str | None = None) -> Decision:
        """A request that goes on from the conversation and is none of its turns."""
        decision, _ = asked(self.server, [*self.held, *more], ANSWER, session)
        assert decision.reread <= len(more) + GRID
        return decision


def asked(
    server: History, prompt: list[int], answer: int, session: str | None
) -> tuple[Decision, list[int]]:
    """What was decided, and all tokens that the slot holds afterwards."""
    request = server.submit(prompt, max_tokens=answer, session=session)
    server.run()
    finished = server.finished(request)
    assert finished is not None
    return finished.decision, server.sequences[request].tolist()


def memory(server: History) -> RamTier:
    assert server.scheduler.ram is not None
    return server.scheduler.ram


# --- one slot -----------------------------------------------------------------------------------


@pytest.mark.parametrize("row_invariant", [False, True], ids=["on the grid", "row-invariant"])
@pytest.mark.parametrize("parts", list(Parts))
def test_whatever_comes_between_its_turns_no_conversation_reads_its_history_again(
    parts: Parts, *, row_invariant: bool
) -> None:
    """Titles, tags, another session, a compaction, a short chat; all on one slot."""
    server = History(
        window=2048, grid=GRID, parts=parts, row_invariant=row_invariant, ram_bytes_max=PLENTY
    )
    agent, other, chat = Talk(server, "agent"), Talk(server, "other"), Talk(server, "chat")
    agent.turn(words(0, 36 * GRID + 5))
    other.turn(words(1, 10 * GRID + 1))
    chat.turn(words(2, GRID - 1))

    for number in (100, 200, 300):
        agent.checked_turn(words(number + 1, 9))
        asked(server, words(number + 2, 3 * GRID + 1), 6, None)  # a title
        agent.checked_turn(words(number + 3, 9))
        agent.helper(words(number + 4, 5))  # tags
        agent.checked_turn(words(number + 5, 9))
        agent.helper(words(number + 6, 5), session="agent")  # follow-up questions
        agent.checked_turn(words(number + 7, 9))
        for at in range(3):
            other.checked_turn(words(number + 10 + at, 11))
        agent.checked_turn(words(number + 8, 9))
        quoted = [*words(3, 7), *agent.held[: 20 * GRID], *words(number + 9, 5)]
        asked(server, quoted, ANSWER, "agent")
        agent.checked_turn(words(number + 20, 9))
        for at in range(4):
            chat.checked_turn(words(number + 30 + at, 5))

    ram = memory(server)
    assert (ram.counts.evicted, ram.blocks.counts.lost) == (0, 0)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_conversations_that_take_turns_at_random_read_their_own_tokens_alone(slots: int) -> None:
    chance = random.Random(slots)
    server = History(window=1024, slots=slots, grid=GRID, ram_bytes_max=PLENTY)
    talks = [Talk(server, f"session {number}") for number in range(2 * slots + 2)]
    for number, talk in enumerate(talks):
        talk.turn(words(number, chance.randrange(2, 12 * GRID)))

    for number in range(40):
        chance.choice(talks).checked_turn(words(1000 + number, chance.randrange(1, 14)))

    assert memory(server).blocks.counts.lost == 0


def test_a_title_request_moves_no_row_that_it_cannot_reach() -> None:
    server = History(window=1024, grid=GRID, ram_bytes_max=PLENTY)
    agent = Talk(server)
    agent.turn(words(0, 60 * GRID))

    asked(server, words(1, 3 * GRID), GRID, None)
    moved = memory(server).blocks.counts.captured
    decision = agent.turn(words(2, 5))

    assert moved == 4
    assert (decision.tier, decision.source) == (Tier.RAM, Source.STASH)
    assert memory(server).blocks.counts.restored == 4
    assert decision.cached == 60 * GRID + ANSWER - 1


def test_a_row_that_went_out_once_does_not_go_out_again() -> None:
    """What a conversation was before is shared with what it is now."""
    server = History(window=1024, grid=GRID, ram_bytes_max=PLENTY)
    agent = Talk(server, "agent")
    agent.turn(words(0, 40 * GRID), answer=1)
    asked(server, words(1, 44 * GRID), 1, None)
    agent.turn(words(2, GRID), answer=1)
    before = memory(server).blocks.counts.captured

    asked(server, words(3, 44 * GRID), 1, None)

    # Its own new step, and three steps of the other prompt, which it had not reached.
    assert memory(server).blocks.counts.captured - before == 1 + 3
    assert [entry.role for entry in memory(server).entries].count(Role.PARK) == 2


def test_the_next_turn_after_a_helper_went_on_from_the_answer_reads_no_answer_again() -> None:
    """With and without a tier in memory: the end before the newest one stays with its slot."""
    for ram_bytes_max in (0, PLENTY):
        server = History(window=1024, grid=GRID, ram_bytes_max=ram_bytes_max)
        agent = Talk(server, "agent")
        agent.turn(words(0, 10 * GRID), answer=5 * GRID)
        end = len(agent.held)

        agent.helper(words(1, 4))
        agent.helper(words(2, 4))
        decision = agent.turn(words(3, 4))

        assert (decision.cached, decision.gate) == (end, Gate.PRESERVED)


def test_the_conversation_and_what_a_helper_made_of_it_both_come_back() -> None:
    server = History(window=1024, grid=GRID, ram_bytes_max=PLENTY)
    agent = Talk(server, "agent")
    agent.turn(words(0, 20 * GRID), answer=5 * GRID)
    branch = Talk(server, "agent")
    branch.held = list(agent.held)
    branch.turn(words(1, 4))

    for talk in (agent, branch, agent, branch):
        asked(server, words(2, 40 * GRID), 1, None)
        at = len(talk.held)
        assert talk.turn(words(3, 4)).cached == at


def test_a_conversation_that_was_compacted_goes_on_from_its_summary_and_from_before_it() -> None:
    anchors = AnchorBudget(bytes_max=0, count_min=24)
    server = History(window=2048, grid=GRID, anchors=anchors, ram_bytes_max=PLENTY)
    head = words(0, 12 * GRID)  # tools and system text
    agent = Talk(server, "agent")
    agent.turn([*head, *words(1, 50 * GRID)])
    asked(server, [*words(2, 7), *agent.held[12 * GRID :]], ANSWER, "agent")
    compacted = Talk(server, "agent")

    first = compacted.turn([*head, *words(3, 4 * GRID)])
    compacted.checked_turn(words(4, 9))
    agent.checked_turn(words(5, 9))
    compacted.checked_turn(words(6, 9))

    assert (first.gate, first.cached) == (Gate.BITWISE, 12 * GRID)


def test_two_long_conversations_change_places_where_there_is_room_for_one() -> None:
    """Block by block: neither stands in memory whole while the other one comes in."""
    server = History(window=1024, grid=GRID, ram_bytes_max=PLENTY)
    row_bytes = server.engine.profile.layout.row_bytes
    server = History(window=1024, grid=GRID, ram_bytes_max=60 * GRID * row_bytes)
    talks = [Talk(server, "one"), Talk(server, "two")]
    for number, talk in enumerate(talks):
        talk.turn(words(number, 40 * GRID))

    for number in range(8):
        talks[number % 2].checked_turn(words(10 + number, 5), answer=3)

    counts = memory(server).blocks.counts
    assert counts.lost == 0
    assert counts.swapped > 0


# --- more conversations than memory has room for -------------------------------------------------

SESSIONS: Final = 40
IN_MEMORY: Final = 3
FIRST: Final = 12 * GRID + 3


def room_for_three() -> int:
    """Bytes of three of the conversations below, at their longest."""
    layout = History(grid=GRID).engine.profile.layout
    rows = FIRST + 3 * (ANSWER + 8)
    return IN_MEMORY * (rows * layout.row_bytes + 13 * layout.section_bytes)


@pytest.mark.parametrize(
    ("slots", "busy"), [(1, True), (2, False)], ids=["writes under way", "writes done"]
)
def test_forty_sessions_with_memory_for_three_come_back_from_wherever_they_are(
    slots: int, *, busy: bool
) -> None:
    chance = random.Random(slots)
    box = Box(
        slots=slots,
        window=512,
        ram_bytes_max=room_for_three(),
        shares=Shares(1 << 24, 1 << 24),
        evicted_tokens_min=GRID,
    )
    talks = [Talk(box.server, f"session {number}") for number in range(SESSIONS)]
    for number, talk in enumerate(talks):
        talk.turn(words(number, FIRST))
        if not busy:
            box.settle()

    tiers: Counter[Tier] = Counter()
    for number in range(SESSIONS + 20):
        talk = chance.choice([*talks, *talks[-3:]]) if number >= SESSIONS else talks[number]
        decision = talk.checked_turn(words(1000 + number, 5))
        tiers[decision.tier] += 1
        for _ in range(chance.randrange(4) if busy else 0):
            box.jobs.step()
        if not busy:
            box.settle()

    assert tiers[Tier.DISK] > 20
    assert tiers[Tier.RAM] > 0
    assert tiers[Tier.NONE] == 0


def test_forty_sessions_with_memory_for_three_and_no_disk_are_told_what_was_not_kept() -> None:
    chance = random.Random(7)
    server = History(window=512, grid=GRID, ram_bytes_max=room_for_three())
    talks = [Talk(server, f"session {number}") for number in range(SESSIONS)]
    for number, talk in enumerate(talks):
        talk.turn(words(number, FIRST))

    tiers: Counter[Tier] = Counter()
    for number in range(2 * SESSIONS):
        talk = chance.choice(talks[:5])
        at = len(talk.held)
        decision = talk.turn(words(1000 + number, 2), answer=2)
        tiers[decision.tier] += 1
        told = (decision.tier, decision.gate, decision.cached)
        assert told == (Tier.NONE, Gate.COLD, 0) or decision.cached in (at, *heads_of(server, talk))

    assert tiers[Tier.RAM] > SESSIONS // 2
    assert tiers[Tier.NONE] > 0


def heads_of(server: History, talk: Talk) -> list[int]:
    """The grid lines at which a head of a conversation may have been pinned."""
    return list(server.engine.profile.grid.lines(0, len(talk.held)))
