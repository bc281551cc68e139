"""What is foreseen of a request is what it is then told, whatever the server has been through.

A thousand histories with ANCHORLINE_EXHAUSTIVE set, fewer without.
"""

import os
import random
from collections.abc import Sequence
from typing import Final

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.peek import Peeked
from anchorline.application.preparing import NO_ROOM
from anchorline.application.prewarm import PrewarmReport
from anchorline.application.request import Decision, GenerationRequest
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.entry import Source, Tier
from anchorline.domain.namespace import Namespace
from anchorline.simulation.box import GRID, Box
from support.builders import a_prompt, a_request

WINDOW: Final = 256
HISTORIES: Final = 1000 if os.environ.get("ANCHORLINE_EXHAUSTIVE") else 20
LIVES_AT_ONCE: Final = 10
CONVERSATION: Final = (Tier.DISK, Source.CONVERSATION)
RAM_BYTES: Final = (0, 2_000, 5_000, 12_000, 1 << 20)


class Life:
    """Clients of one box; each request that finds an idle slot is foreseen first."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.box = Box(
            slots=self.rng.choice([1, 2, 2, 3]),
            window=WINDOW,
            parts=list(Parts)[seed % 3],
            row_invariant=seed % 5 == 4,
            anchors=AnchorBudget(bytes_max=0, count_min=4, count_max=8, newest_kept=2),
            ram_bytes_max=self.rng.choice(RAM_BYTES),
            disk_enabled=self.rng.random() < 0.8,
            lanes_place=self.rng.random() < 0.5,
            evicted_tokens_min=self.rng.choice([16, 64]),
            seed=seed,
        )
        self.head = self.words(20, 50)
        self.conversations: list[tuple[str, list[int]]] = []
        self.foreseen: dict[str, Peeked] = {}
        self.priced: set[str] = set()
        self.beside: set[str] = set()
        self.told: list[tuple[Peeked, Decision]] = []

    def words(self, low: int, high: int) -> list[int]:
        return [self.rng.randrange(97) for _ in range(self.rng.randint(low, high))]

    def live(self) -> None:
        """One thing that happens."""
        roll = self.rng.random()
        if roll < 0.25 or not self.conversations:
            self.begin()
        elif roll < 0.6:
            self.go_on()
        elif roll < 0.7:
            self.crowd()
        elif roll < 0.8:
            self.time_passes()
        elif roll < 0.85:
            self.prewarm()
        elif roll < 0.9 and self.box.disk_enabled:
            self.box.flush()
        elif roll < 0.93:
            self.settle(self.box.stop if self.rng.random() < 0.5 else self.box.kill)
        elif roll < 0.96:
            self.box.server.scheduler.clear(ram=True, disk=self.rng.random() < 0.3)
        else:
            self.box.clock.advance(self.rng.choice([1.0, 200.0, 3600.0]))

    def begin(self) -> None:
        head = self.head if self.rng.random() < 0.5 else []
        self.conversations.append((self.rng.choice(["", "", "a"]), [*head, *self.words(1, 60)]))
        self.ask(len(self.conversations) - 1)

    def go_on(self, *, waits: bool = True) -> None:
        which = self.rng.randrange(len(self.conversations))
        salt, ids = self.conversations[which]
        if self.rng.random() < 0.3:
            ids = ids[: self.rng.randint(1, len(ids))]
        if len(ids) > WINDOW - 60:
            ids = ids[:60]
        self.conversations[which] = (salt, [*ids, *self.words(1, 30)])
        self.ask(which, waits=waits)

    def crowd(self) -> None:
        """Several at once: what the last ones resume from is read while the first ones run."""
        for _ in range(self.rng.randint(2, 5)):
            self.go_on(waits=False)
        self.time_passes()

    def ask(self, which: int, *, waits: bool = True) -> None:
        salt, ids = self.conversations[which]
        server, session = self.box.server, self.rng.choice([None, f"s{which}"])
        tokens = self.rng.randint(0, 12)
        idle = self.has_an_idle_slot()
        beside = any(slot.running for slot in server.scheduler.slots)
        peeked = self.peek(ids, salt, session, tokens)
        request = server.submit(ids, max_tokens=tokens, salt=salt, session=session)
        server.step()
        if idle:
            self.foreseen[request] = peeked
        if any(slot.preparing and slot.preparing.awaited for slot in server.scheduler.slots):
            self.priced.add(request)
        if beside:
            self.beside.add(request)
        if not waits or self.rng.random() < 0.2:
            self.time_passes()
        else:
            self.box.server.run()
            self.judge()
        if self.rng.random() < 0.1:
            server.cancel(request)
        if request in server.sequences and len(server.sequences[request]):
            self.conversations[which] = (salt, server.sequences[request].tolist())

    def has_an_idle_slot(self) -> bool:
        """Whether a request would be placed at once, and nothing has to stop for it."""
        scheduler = self.box.server.scheduler
        warms = any(slot.warming is not None for slot in scheduler.slots)
        waits = scheduler.stats().queued > 0
        return not waits and not warms and any(slot.idle for slot in scheduler.slots)

    def peek(self, ids: Sequence[int], salt: str, session: str | None, tokens: int) -> Peeked:
        """Foresee a request, and find that nothing is other than before."""
        before = self.seen()
        peeked = self.box.server.scheduler.peek(self.asked(ids, salt, session, tokens))
        assert self.seen() == before, "a question left a trace"
        return peeked

    def seen(self) -> tuple[object, ...]:
        """What anybody can see of the server."""
        scheduler, telemetry = self.box.server.scheduler, self.box.server.telemetry
        return scheduler.stats(), scheduler.entries(), len(telemetry.records)

    def asked(
        self, ids: Sequence[int], salt: str, session: str | None, tokens: int
    ) -> GenerationRequest:
        return a_request(
            a_prompt(list(ids)),
            namespace=Namespace(salt=salt),
            session=session,
            max_tokens=min(tokens, WINDOW - len(ids)),
        )

    def prewarm(self) -> None:
        salt, ids = self.rng.choice(self.conversations)
        request = self.asked([*ids, 5][: WINDOW - 1], salt, None, 4)
        reports: list[PrewarmReport] = []
        self.box.server.scheduler.prewarm(request, reports.append)
        for _ in range(self.rng.randint(0, 60)):
            self.box.server.step()

    def time_passes(self) -> None:
        for _ in range(self.rng.randint(0, 30)):
            self.box.jobs.step()
            self.box.server.step()

    def settle(self, end: object) -> None:
        """The process ends, and what it had begun is judged before."""
        assert callable(end)
        self.box.server.run()
        self.judge()
        end()

    def judge(self) -> None:
        """Hold what was foreseen against what was told, once all have begun."""
        server = self.box.server
        for request, peeked in self.foreseen.items():
            finished = server.finished(request)
            decision = server.started.get(request) or (finished.decision if finished else None)
            if decision is None:
                continue  # it was cancelled before it began
            found = (decision.tier, decision.source, decision.gate, decision.cached)
            told = (peeked.tier, peeked.source, peeked.gate, peeked.line)
            if request in self.priced and found != told:
                # What was being written then was not priced to the byte: an end, or the grid line
                # below it.
                assert (told[0], told[1]) == (found[0], found[1]) == CONVERSATION, (told, found)
                assert abs(told[3] - found[3]) < GRID, (told, found)
                continue
            gone = any(refused.why == NO_ROOM for refused in decision.refused)
            if request in self.beside and gone:
                continue  # another request wrote over rows in between, with no room for a copy
            assert told == found, f"{request}: foreseen {told}, and was {found}: {decision}"
            assert peeked.reread == decision.reread
            self.told.append((peeked, decision))
        self.foreseen.clear()
        self.priced.clear()
        self.beside.clear()


@pytest.mark.parametrize("first", range(0, HISTORIES, LIVES_AT_ONCE))
def test_what_is_foreseen_of_a_request_is_what_it_is_then_told(first: int) -> None:
    tiers: set[Tier] = set()
    for seed in range(first, first + LIVES_AT_ONCE):
        life = Life(seed)
        for _ in range(30):
            life.live()
        life.box.server.run()
        life.judge()
        tiers |= {decision.tier for _, decision in life.told}

    assert tiers == {Tier.SLOT, Tier.RAM, Tier.DISK, Tier.NONE}
