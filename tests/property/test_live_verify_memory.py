"""What memory keeps is verified: whatever is changed in it is found, and an honest life never."""

import random
from dataclasses import replace

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.ram_entry import RamEntry
from anchorline.domain.anchor import AnchorKind
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.ports import telemetry as names
from anchorline.simulation.history import History
from support.verified import VerifiedBox, VerifiedHistory, VerifiedServer

WINDOW = 256
PLENTY = 1 << 20
BUDGETS = (1_500, 4_000, 8_000, PLENTY)
"""From what keeps parts of one conversation to what keeps all."""


class People:
    """Conversations that grow, are edited and left, helpers' requests among them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        head = self.words(20, 40)
        self.held = [[*head, *self.words(5, 80)] for _ in range(3)]

    def words(self, low: int, high: int) -> list[int]:
        return [self.rng.randrange(97) for _ in range(self.rng.randint(low, high))]

    def prompt(self) -> tuple[int | None, list[int]]:
        """Whose turn it is, and its prompt; a helper's is of nobody, and short."""
        rng = self.rng
        if rng.random() < 0.2:
            return None, self.words(1, 30)
        who = rng.randrange(len(self.held))
        held = self.held[who]
        if rng.random() < 0.2 or len(held) > WINDOW - 60:
            held = held[: rng.randint(5, 60)]
        self.held[who] = [*held, *self.words(1, 30)]
        return who, self.held[who]


# --- nothing is found where nothing is wrong ------------------------------------------------------


def lived(history: History, rng: random.Random, turns: int) -> None:
    """Some turns, with rests of any length between them."""
    people = People(rng)
    for _ in range(turns):
        who, prompt = people.prompt()
        if rng.random() < 0.04:
            history.engine.fail_next_forward(after=rng.randint(0, 6))
        request = history.submit(
            prompt, max_tokens=rng.randint(0, 20), session=None if who is None else f"s{who}"
        )
        if rng.random() < 0.1:
            for _ in range(rng.randint(0, 6)):
                history.step()
            history.scheduler.cancel(request)
        elif rng.random() < 0.8:
            history.run()
        if who is not None and request in history.sequences:
            people.held[who] = history.sequences[request].tolist() or people.held[who]
        for _ in range(rng.choice([0, 20, 200])):
            history.step()
        if rng.random() < 0.03:
            history.scheduler.clear(ram=True, disk=False)
    history.run()


def found_nothing(history: History) -> int:
    """How many entries in memory were judged."""
    stats = history.scheduler.stats().verify
    assert stats is not None
    assert stats.mismatches == {}
    return int(history.telemetry.counted(names.VERIFY_SAMPLES, {"tier": "ram"}))


@pytest.mark.parametrize("seed", range(12))
def test_no_life_with_memory_is_told_to_be_wrong(seed: int) -> None:
    rng = random.Random(seed)
    history = VerifiedHistory(
        slots=rng.choice([1, 1, 2, 3]),
        window=WINDOW,
        parts=list(Parts)[seed % 3],
        row_invariant=seed % 5 == 4,
        anchors=AnchorBudget(bytes_max=0, count_min=4, count_max=rng.choice([4, 8]), newest_kept=2),
        ram_bytes_max=BUDGETS[seed % 4],
    )

    lived(history, rng, turns=50)

    assert found_nothing(history) >= 3


@pytest.mark.parametrize("seed", range(6))
def test_no_life_with_memory_and_a_medium_is_told_to_be_wrong(seed: int) -> None:
    rng = random.Random(seed)
    box = VerifiedBox(
        slots=rng.choice([1, 1, 2]),
        window=WINDOW,
        parts=list(Parts)[seed % 3],
        row_invariant=seed % 5 == 4,
        seed=seed,
        ram_bytes_max=BUDGETS[1 + seed % 3],
    )
    judged = 0
    for _ in range(4):
        lived(box.server, rng, turns=12)
        box.settle()
        judged += found_nothing(box.server)
        rng.choice([box.stop, box.kill, box.cut_power])()

    assert judged >= 8


# --- whatever is wrong is found -------------------------------------------------------------------


def served(seed: int) -> tuple[VerifiedServer, RamEntry, random.Random]:
    """A server after some turns, all of which it has found right, and one of its entries."""
    rng = random.Random(seed)
    server = VerifiedServer(
        slots=1 + seed % 2,
        window=WINDOW,
        parts=(Parts.HYBRID, Parts.ATTENTION)[seed % 3 == 2],
        row_invariant=seed % 4 == 3,
        disk_enabled=False,
        ram_bytes_max=BUDGETS[1 + seed % 3],
    )
    people = People(rng)
    for turn in range(40):
        who, prompt = people.prompt()
        server.ask(prompt, max_tokens=rng.randint(0, 20))
        if who is not None:
            held = [slot.resident.ids.tolist() for slot in server.scheduler.slots]
            own = [ids for ids in held if ids[: len(prompt)] == prompt]
            people.held[who] = max([prompt, *own], key=len)
        if turn >= 8 and len(server.memory.entries) > seed % 3:
            break
    assert server.verify().mismatches == ()
    return server, rng.choice(server.memory.entries), rng


@pytest.mark.parametrize("seed", range(24))
def test_a_byte_of_any_row_at_any_place_where_it_stands(seed: int) -> None:
    server, entry, rng = served(seed)
    row = rng.randrange(entry.line)
    block = next(one for one in entry.blocks if one.span.start <= row < one.span.end)
    view = rng.choice(server.state.layout.views).name
    places = [*([None] if block.handle is not None else []), *sorted(block.places)]
    place = rng.choice(places)
    if place is None:
        server.spoil_block(block, row, view=view)
    else:
        server.spoil_row(row, slot=place, view=view)

    found = server.verify(entry=entry.id).mismatches[0]

    assert found.row is not None
    exact = found.kind == "bitwise_rows"
    assert (found.row, found.part) == (row, view) if exact else found.row <= row < found.line
    assert entry not in server.memory.entries
    assert server.verify().mismatches == ()


@pytest.mark.parametrize("seed", [seed for seed in range(24) if seed % 3 != 2])
def test_a_byte_of_any_anchor(seed: int) -> None:
    server, entry, rng = served(seed)
    anchor = rng.choice(entry.state.anchors)
    server.spoil_copy(anchor)

    found = server.verify(entry=entry.id).mismatches[0]

    assert found.line == anchor.line
    assert found.kind in ("bitwise_sections", "preserved_sections")
    assert entry not in server.memory.entries
    assert server.verify().mismatches == ()


@pytest.mark.parametrize("seed", [seed for seed in range(24) if seed % 3 != 2])
def test_any_two_anchors_that_have_each_others_copy(seed: int) -> None:
    server, entry, rng = served(seed)
    anchors = list(entry.state.anchors)
    if len(anchors) < 2:
        server.ask(list(range(40)))
        server.ask(list(range(50, 90)))
        entry = server.memory.entries[-1]
        anchors = list(entry.state.anchors)
    one, other = sorted(rng.sample(range(len(anchors)), 2))
    handles = anchors[one].handle, anchors[other].handle
    anchors[one] = replace(anchors[one], handle=handles[1])
    anchors[other] = replace(anchors[other], handle=handles[0])
    entry.state = replace(entry.state, anchors=tuple(anchors))

    found = server.verify(entry=entry.id).mismatches[0]

    # What is only held to its seal is looked at before what is recomputed.
    assert found.line in (anchors[one].line, anchors[other].line)
    assert entry not in server.memory.entries


@pytest.mark.parametrize("seed", [seed for seed in range(24) if seed % 4 != 3])
def test_a_taint_line_that_is_told_too_high(seed: int) -> None:
    server, entry, _ = served(seed)
    tainted = [one for one in server.memory.entries if one.state.taint < one.line]
    if not tainted:
        server.ask(list(range(40)), max_tokens=20)
        server.ask(list(range(50, 90)))
        tainted = [one for one in server.memory.entries if one.state.taint < one.line]
    entry = tainted[0]
    before = entry.state.taint
    entry.state = replace(entry.state, taint=entry.line)

    found = server.verify(entry=entry.id).mismatches[0]

    assert found.kind in ("bitwise_rows", "bitwise_sections")
    assert found.line > before
    assert any(one.kind is AnchorKind.END or one.line > before for one in entry.state.anchors)
