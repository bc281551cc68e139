"""Many conversations on one slot, where bits matter: tiny hybrids on torch.

Each conversation's state is held against an engine of the same weights that does nothing but that
one conversation, in the same chunks.
"""

import pytest

from anchorline.application.ram_tier import RamTier
from anchorline.application.request import Decision
from anchorline.domain.entry import Source, Tier
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import TokenIds, token_ids
from contract.readings import Reading, differences, prefill_to, read, some_ids, without_logits
from support import tiny_models
from support.torch_serving import GRID, HYBRIDS, Serving, alone, engine_of

WINDOW = 40 * GRID
PLENTY = 1 << 28
ANSWER = GRID + 3
"""Longer than a grid step."""

hybrids = pytest.mark.parametrize("architecture", HYBRIDS)


def words(seed: int, count: int) -> TokenIds:
    return some_ids(count, seed=seed, vocabulary=tiny_models.VOCABULARY)


def memory(serving: Serving) -> RamTier:
    assert serving.scheduler.ram is not None
    return serving.scheduler.ram


def push_out(serving: Serving, *seeds: int) -> None:
    """Somebody else reads a long prompt in every slot."""
    for seed in seeds:
        serving.submit(words(seed, 7 * GRID), max_tokens=0)
    serving.run()


class Talk:
    """One conversation on a server, and what it would be without any other.

    Attributes:
        held: all tokens so far.
        parts: the first prompt, then in turn what was written and what was asked.
        reading: the state when the last turn ended.
    """

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.held: list[int] = []
        self.parts: list[TokenIds] = []
        self.reading: Reading | None = None

    def turn(self, more: TokenIds, answer: int = ANSWER) -> Decision:
        prompt = [*self.held, *more.tolist()]
        decision = self.serving.ask(prompt, max_tokens=answer)
        assert decision.cached == len(self.held)
        assert self.held == [] or decision.gate is Gate.PRESERVED
        self.held = self.serving.held(decision.slot).tolist()
        self.parts += [more, token_ids(self.held[len(prompt) :])]
        self.reading = read(self.serving.engine.slots[decision.slot])
        return decision

    def assert_as_alone(self, architecture: str) -> None:
        assert self.reading is not None
        first, *rest = self.parts
        expected = alone(engine_of(architecture, 1, WINDOW), first, *rest)
        assert differences(self.reading, without_logits(expected)) == []


@hybrids
@pytest.mark.parametrize("slots", [1, 2])
def test_no_conversation_departs_by_a_bit_whatever_comes_between_its_turns(
    architecture: str, slots: int
) -> None:
    """A title, tags, another session, a compaction, a short chat; each then goes on."""
    serving = Serving(engine_of(architecture, slots, WINDOW), ram_bytes_max=PLENTY)
    agent, other, chat = Talk(serving), Talk(serving), Talk(serving)
    agent.turn(words(1, 12 * GRID + 5))

    serving.ask(words(2, GRID + 3), max_tokens=5)  # a title
    agent.turn(words(3, 7))
    serving.ask([*agent.held, *words(4, 5)], max_tokens=5)  # tags
    agent.turn(words(5, 7))
    for number in range(3):
        other.turn(words(10 + number, 2 * GRID + 5), answer=6)
    agent.turn(words(6, 7))
    serving.ask([*words(7, 5), *agent.held, *words(8, 5)], max_tokens=5)  # a compaction
    agent.turn(words(9, 7))
    for number in range(4):
        chat.turn(words(20 + number, 9), answer=4)
    agent.turn(words(30, 7))
    other.turn(words(31, 7))
    chat.turn(words(32, 7))

    for talk in (agent, other, chat):
        talk.assert_as_alone(architecture)


@hybrids
def test_rows_that_change_places_with_a_guests_come_back_bit_for_bit(architecture: str) -> None:
    """There is room for one conversation beside the slot: each block is swapped."""
    serving = Serving(engine_of(architecture, 1, WINDOW), ram_bytes_max=PLENTY)
    talks = [Talk(serving), Talk(serving)]
    for at, talk in enumerate(talks):
        talk.turn(words(at, 14 * GRID + 5), answer=6)
    ram = memory(serving)
    [slot], layout = serving.scheduler.slots, serving.engine.profile.layout
    # For the anchors of both, and for what each turn adds before what it was can go.
    more = 3 * layout.section_bytes + 2 * GRID * layout.row_bytes
    room = ram.nbytes + ram.sections_needed(slot.resident) + more
    ram.limit = lambda held: room

    for number in range(1, 3):
        for at, talk in enumerate(talks):
            talk.turn(words(10 * number + at, 5), answer=2)

    assert ram.blocks.counts.swapped > 0
    for talk in talks:
        talk.assert_as_alone(architecture)


@hybrids
def test_a_shared_head_of_two_conversations_is_the_same_bits_for_both(architecture: str) -> None:
    """Who reads it cold on another slot writes what stands in memory: it is kept once."""
    serving = Serving(engine_of(architecture, 2, WINDOW), ram_bytes_max=PLENTY)
    head = words(1, 4 * GRID)
    prompts = [[*head, *words(2, GRID + 3)], [*head, *words(3, GRID + 3)]]
    for prompt in prompts:
        serving.submit(prompt, max_tokens=0)
    serving.run()
    push_out(serving, 4, 5)
    one, other = memory(serving).entries
    found: list[Reading] = []
    for seed, prompt in enumerate(prompts):
        push_out(serving, 10 + seed, 20 + seed)
        decision = serving.ask([*prompt, 1])
        assert decision.source is Source.SNAPSHOT
        found.append(read(serving.engine.slots[decision.slot]))

    assert one.blocks[:4] == other.blocks[:4]
    for prompt, reading in zip(prompts, found, strict=True):
        engine = engine_of(architecture, 1, WINDOW)
        state = engine.slots[0]
        state.resume_at(0)
        prefill_to(engine, 0, token_ids(prompt))
        prefill_to(engine, 0, token_ids([*prompt, 1]))
        assert differences(reading, read(state)) == []


@hybrids
def test_a_guest_leaves_a_clean_conversation_bitwise_equal_to_a_cold_run(architecture: str) -> None:
    serving = Serving(engine_of(architecture, 1, WINDOW), ram_bytes_max=PLENTY)
    prompt = words(1, 12 * GRID)
    serving.ask(prompt)
    serving.ask(words(2, 2 * GRID), max_tokens=5)
    question = words(3, 5)

    decision = serving.ask([*prompt, *question])

    told = (decision.tier, decision.gate, decision.cached)
    assert told == (Tier.RAM, Gate.BITWISE, 12 * GRID)
    found = read(serving.engine.slots[0])
    cold = alone(engine_of(architecture, 1, WINDOW), token_ids([*prompt, *question]))
    assert differences(found, without_logits(cold)) == []
