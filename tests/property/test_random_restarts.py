"""Random lives of a box: agents, stops, kills, power cuts, damage, lost catalogs, small budgets.

No state is ever wrong, the gate that was told is true, what was flushed is there, also when its
catalog is lost, and no object is left that nobody needs. The checks of every step are in
`anchorline.simulation.history.History`.
"""

import random

import pytest

from anchorline.adapters.memory.checkable_state import CheckableState, Parts
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.application import placed_block
from anchorline.application.request import Finished
from anchorline.domain.disk_index import objects_of
from anchorline.domain.disk_retention import Shares
from anchorline.domain.entry import EntryId
from anchorline.domain.grid import Grid
from anchorline.domain.namespace import Namespace
from anchorline.domain.object_header import LINE_BYTES
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.tokens import token_ids
from anchorline.ports.block_storage import ObjectName
from anchorline.simulation.box import GRID, Box
from support.verified import VerifiedBox

WINDOW = 256


class Life:
    """One box and the people who use it, by one source of randomness."""

    def __init__(self, seed: int, box: type[Box] = Box) -> None:
        self.rng = random.Random(seed)
        share = self.rng.choice([1 << 22, 1 << 19])
        self.box = box(
            slots=self.rng.choice([1, 1, 2]),
            window=WINDOW,
            parts=list(Parts)[seed % 3],
            row_invariant=seed % 5 == 4,
            shares=Shares(share, share),
            seed=seed,
        )
        self.heads = [self.words(40, 90) for _ in range(2)]
        self.conversations: list[tuple[str, list[int]]] = []
        self.damaged: set[ObjectName] = set()

    def words(self, low: int, high: int) -> list[int]:
        return [self.rng.randrange(97) for _ in range(self.rng.randint(low, high))]

    def live(self) -> None:
        """One thing that happens."""
        roll = self.rng.random()
        if roll < 0.25 or not self.conversations:
            self.begin()
        elif roll < 0.65:
            self.go_on()
        elif roll < 0.75:
            self.flush()
        elif roll < 0.8:
            self.box.stop()
        elif roll < 0.85:
            self.box.kill()
        elif roll < 0.9:
            self.box.cut_power(self.rng if self.rng.random() < 0.5 else None)
        elif roll < 0.92:
            self.lose_catalog()
        elif roll < 0.96:
            self.damage()
        else:
            self.box.clock.advance(self.rng.choice([1.0, 3600.0, 4 * 86400.0]))
            self.box.disk.tier.tidy()

    def begin(self) -> None:
        salt = self.rng.choice(["", "", "a"])
        self.conversations.append((salt, [*self.rng.choice(self.heads), *self.words(1, 40)]))
        self.ask(len(self.conversations) - 1)

    def go_on(self) -> None:
        which = self.rng.randrange(len(self.conversations))
        salt, ids = self.conversations[which]
        if self.rng.random() < 0.3:
            ids = ids[: self.rng.randint(1, len(ids))]
        if len(ids) > WINDOW - 60:
            ids = ids[:60]
        self.conversations[which] = (salt, [*ids, *self.words(1, 30)])
        self.ask(which)

    def ask(self, which: int) -> Finished | None:
        server = self.box.server
        salt, ids = self.conversations[which]
        if self.rng.random() < 0.03:
            server.engine.fail_next_forward(after=self.rng.randint(0, 6))
        session = self.rng.choice([None, f"s{which}"])
        request = server.submit(ids, max_tokens=self.rng.randint(0, 8), salt=salt, session=session)
        if self.rng.random() < 0.15:
            for _ in range(self.rng.randint(0, 8)):
                server.step()
            server.scheduler.cancel(request)
        server.run()
        for _ in range(self.rng.randint(0, 10)):
            self.box.jobs.step()
            server.step()
        if request in server.sequences and len(server.sequences[request]):
            self.conversations[which] = (salt, server.sequences[request].tolist())
        return server.finished(request)

    def flush(self) -> None:
        report = self.box.flush()
        if report.durable and self.rng.random() < 0.5:
            kept = [
                (slot.resident.namespace.salt, slot.resident.ids.tolist(), slot.resident.end)
                for slot in self.box.server.scheduler.slots
            ]
            if self.rng.random() < 0.5:
                self.box.catalog = MemoryCatalog()
            self.box.cut_power()
            for salt, ids, end in kept:
                if end is not None and len(ids) < WINDOW - 1 and self.holds(salt, ids):
                    self.conversations.append((salt, [*ids, 5]))
                    finished = self.ask(len(self.conversations) - 1)
                    # What was damaged before it was saved again shows only when it is read.
                    if finished is not None and not finished.decision.quarantined:
                        assert finished.decision.cached == len(ids), "what was durable is gone"
                    return

    def holds(self, salt: str, ids: list[int]) -> bool:
        """Whether the tier still has that conversation up to its end: a small one lets some go."""
        chain = PromptChain(token_ids(ids), Namespace(salt=salt), Grid(GRID))
        key = chain.key(len(ids))
        return any(
            entry.end is not None and entry.blocks[-1].key == key
            for entry in self.box.disk.tier.index.entries()
        )

    def lose_catalog(self) -> None:
        """A start that finds no catalog: each end whose objects are there is to come back."""
        before = self.ends(but_for=self.damaged)
        self.box.catalog = MemoryCatalog()
        self.box.kill()
        # More may come back than there was, and some of it may have to go.
        if not self.box.disk.tier.counters.evicted:
            assert before <= self.ends(but_for=set()), "an end is gone with the catalog"

    def ends(self, but_for: set[ObjectName]) -> set[tuple[EntryId, int]]:
        """The ends that the tier holds, but for those that need one of some objects."""
        return {
            (entry.id, entry.end.line)
            for entry in self.box.disk.tier.entries()
            if entry.end is not None and but_for.isdisjoint(objects_of(entry))
        }

    def damage(self) -> None:
        names = self.box.names
        if not names:
            return
        name = ObjectName(self.rng.choice(names))
        self.damaged.add(name)
        content = bytearray(self.box.storage.content(name))
        kind = self.rng.randrange(4)
        if kind == 0:
            content[self.rng.randrange(len(content))] ^= 1 << self.rng.randrange(8)
        elif kind == 1:
            del content[self.rng.randrange(len(content)) :]
        elif kind == 2:
            other = ObjectName(self.rng.choice(names))
            content = bytearray(self.box.storage.content(other))
        else:
            self.box.storage.delete(name)
            return
        self.box.storage.overwrite(name, bytes(content))


@pytest.mark.parametrize("seed", range(16))
def test_no_life_of_a_box_meets_a_wrong_state(seed: int) -> None:
    life = Life(seed)
    for _ in range(60):
        life.live()
        life.box.server.run()
        assert life.box.storage.space().used <= life.box.shares.pool, "the cap is exceeded"

    life.box.settle()
    assert life.box.disk.pool.lent == 0, "a staging buffer was not given back"
    life.box.kill()
    needed = {
        part.name
        for entry in life.box.disk.tier.entries()
        for part in (*entry.blocks, *entry.anchors)
    }
    assert {ObjectName(name) for name in life.box.names} <= needed, "a stray object is left"


@pytest.mark.parametrize("seed", range(12))
def test_no_life_of_a_box_whose_rows_lanes_bring_in_meets_a_wrong_state(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckableState, "lanes_place", True)
    monkeypatch.setattr(placed_block, "RUN_BYTES", LINE_BYTES)

    test_no_life_of_a_box_meets_a_wrong_state(seed)


@pytest.mark.parametrize("seed", range(6))
def test_no_life_of_a_box_that_verifies_what_it_keeps_finds_anything(seed: int) -> None:
    life = Life(seed, VerifiedBox)
    for _ in range(50):
        life.live()
        life.box.server.run()
        for _ in range(life.rng.randint(0, 60)):
            life.box.jobs.step()
            life.box.server.step()

    life.box.settle()
    assert life.box.disk.pool.lent == 0, "a staging buffer was not given back"
    stats = life.box.server.scheduler.stats().verify
    assert stats is not None
    assert (stats.mismatches, stats.samples > 0) == ({}, True)
