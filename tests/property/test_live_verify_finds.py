"""Whatever byte of what a server keeps is changed behind its back: verifying finds it."""

import random

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.domain.anchor import Anchor
from support.verified import VerifiedServer

WINDOW = 256


class Agent:
    """One conversation that grows and is edited, by one source of randomness."""

    def __init__(self, server: VerifiedServer, rng: random.Random) -> None:
        self.server = server
        self.rng = rng
        self.conversation = self._words(20, 80)

    def act(self) -> None:
        rng = self.rng
        self.server.ask(self.conversation, max_tokens=rng.randint(0, 9))
        kept = [slot.resident.ids.tolist() for slot in self.server.scheduler.slots]
        own = max(kept, key=lambda ids: ids[: len(self.conversation)] == self.conversation)
        self.conversation = [*own, *self._words(1, 20)]
        if rng.random() < 0.3 or len(self.conversation) > WINDOW - 40:
            self.conversation = self.conversation[: rng.randint(10, 60)]

    def _words(self, low: int, high: int) -> list[int]:
        return [self.rng.randrange(97) for _ in range(self.rng.randint(low, high))]


def served(seed: int) -> tuple[VerifiedServer, random.Random]:
    """A server after some turns, all of which it has found right."""
    rng = random.Random(seed)
    server = VerifiedServer(
        slots=1 + seed % 2,
        window=WINDOW,
        parts=(Parts.HYBRID, Parts.ATTENTION)[seed % 3 == 2],
        row_invariant=seed % 4 == 3,
    )
    agents = [Agent(server, rng) for _ in range(2)]
    for _ in range(rng.randint(4, 12)):
        rng.choice(agents).act()
    assert server.verify().mismatches == ()
    return server, rng


@pytest.mark.parametrize("seed", range(16))
def test_a_byte_of_any_row_that_can_be_resumed(seed: int) -> None:
    server, rng = served(seed)
    slots = [slot for slot in server.scheduler.slots if slot.resident.highest]
    slot = rng.choice(slots)
    row = rng.randrange(slot.resident.highest)
    view = rng.choice(server.state.layout.views).name
    server.spoil_row(row, slot=slot.index, view=view)

    (found,) = server.verify().mismatches

    assert found.entry == f"slot-{slot.index}"
    assert found.row is not None
    exact = found.kind == "bitwise_rows"
    assert (found.row, found.part) == (row, view) if exact else found.row <= row < found.line


@pytest.mark.parametrize("seed", [seed for seed in range(15) if seed % 3 != 2])
def test_a_byte_of_any_anchor(seed: int) -> None:
    server, rng = served(seed)
    resident = server.slot.resident
    if not resident.highest:
        server.ask(list(range(40)))
    ends: tuple[Anchor, ...] = () if resident.end_anchor is None else (resident.end_anchor,)
    anchor = rng.choice((*resident.anchors, *ends))
    server.spoil_copy(anchor)

    (found,) = server.verify().mismatches

    assert (found.entry, found.line) == ("slot-0", anchor.line)
    assert found.kind in ("bitwise_sections", "preserved_sections")


@pytest.mark.parametrize("seed", range(8))
def test_a_byte_of_any_clean_row_that_was_stored_so(seed: int) -> None:
    server, rng = served(seed)
    server.scheduler.clear(ram=True, disk=True)
    words = [rng.randrange(97) for _ in range(rng.randint(30, 120))]
    server.ask(words, max_tokens=rng.randint(1, 9))
    slot = next(slot for slot in server.scheduler.slots if slot.resident.highest)
    row = rng.randrange(slot.resident.taint.line)
    server.spoil_row(row, slot=slot.index)
    assert server.flush().durable
    server.scheduler.clear(ram=True, disk=False)

    (found,) = server.verify().mismatches

    assert (found.tier, found.kind, found.row) == ("disk", "bitwise_rows", row)
    assert server.verify().mismatches == ()
