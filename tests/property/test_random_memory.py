"""Random lives of servers that keep conversations in memory, from no room to more than enough.

No state is ever wrong, the gate that was told is true, no copy leaks, and nothing waits for ever:
these checks are in `anchorline.simulation.history.History`, at every forward. Here besides: the
budget counts what there is, and where there is room for all of it no conversation reads its history
again, whoever took its slot.
"""

import random
from dataclasses import dataclass, field
from typing import Final

import pytest

from anchorline.adapters.memory.checkable_state import Parts
from anchorline.application.request import FinishReason
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.disk_retention import Shares
from anchorline.simulation.box import Box

WINDOW: Final = 256
PLENTY: Final = 1 << 20
STEPS_MAX: Final = 10_000
ROOMS: Final = (0, 200, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, PLENTY)
"""From none, over a part of one conversation, to more than all of them take."""


@dataclass
class Client:
    """One conversation.

    Attributes:
        held: all tokens so far, as the server read and wrote them.
        waits: the turn that was asked and is not answered.
        known: that the server must still have it: nothing was done since that may lose it.
    """

    number: int
    salt: str
    session: str | None
    held: list[int] = field(default_factory=list[int])
    waits: str | None = None
    known: bool = False


class Life:
    """A server and its clients, by one source of randomness.

    Attributes:
        bounded: whether there is room for everything, so that re-reads have a bound.
        checked: turns whose re-reads were held against it.
    """

    def __init__(self, seed: int, ram_bytes_max: int, *, disk: bool) -> None:
        self.rng = random.Random(seed)
        self.bounded = ram_bytes_max >= PLENTY
        newest = self.rng.choice([2, 4])
        self.box = Box(
            slots=self.rng.choice([1, 1, 2, 3]),
            window=WINDOW,
            parts=list(Parts)[seed % 3],
            row_invariant=seed % 4 == 3,
            anchors=AnchorBudget(
                bytes_max=0, count_min=newest + self.rng.choice([2, 6]), newest_kept=newest
            ),
            shares=Shares(1 << 22, 1 << 22),
            evicted_tokens_min=self.rng.choice([8, 40]),
            idle_s=self.rng.choice([None, 0.01]),
            disk_enabled=disk,
            lanes_place=self.rng.random() < 0.3,
            ram_bytes_max=ram_bytes_max,
            seed=seed,
        )
        self.checked = 0
        self.heads = [self.words(8, 70) for _ in range(2)]
        self.clients = [
            Client(number, self.rng.choice(["", "", "a"]), self.rng.choice([None, f"s{number}"]))
            for number in range(self.rng.randint(2, 6))
        ]

    def words(self, low: int, high: int) -> list[int]:
        return [self.rng.randrange(97) for _ in range(self.rng.randint(low, high))]

    # --- what happens -----------------------------------------------------------------------------

    def live(self) -> None:
        """One thing that happens."""
        roll = self.rng.random()
        client = self.rng.choice(self.clients)
        if client.waits is not None:
            self.wait_or_leave(client)
        elif roll < 0.5:
            self.turn(client)
        elif roll < 0.62:
            self.helper(client)
        elif roll < 0.72:
            self.stranger(client)
        elif roll < 0.8:
            self.edit(client)
        elif roll < 0.95:
            self.steps(self.rng.randint(1, 40))
        else:
            self.trouble()

    def turn(self, client: Client) -> None:
        """A conversation goes on; if it grew too long it begins anew."""
        new = self.words(1, 25)
        if not client.held or len(client.held) + len(new) > WINDOW - 40:
            client.held, client.known = list(self.rng.choice(self.heads)), False
        self.ask(client, [*client.held, *new], self.rng.randint(0, 14))

    def edit(self, client: Client) -> None:
        """It goes on from somewhere before its end, which nobody promises to have kept."""
        if client.held:
            client.held = client.held[: self.rng.randint(1, len(client.held))]
            client.known = False
            self.ask(client, [*client.held, *self.words(1, 25)], self.rng.randint(0, 14))

    def ask(self, client: Client, ids: list[int], answer: int) -> None:
        client.waits = self.box.server.submit(
            ids, max_tokens=answer, salt=client.salt, session=client.session
        )
        self.run_some()

    def helper(self, client: Client) -> None:
        """A request that goes on from a conversation and is none of its turns; to its end.

        While it runs it has the conversation's slot, and whoever goes on from there meanwhile
        finds it taken.
        """
        if client.held and len(client.held) < WINDOW - 20:
            self.run()
            ids = [*client.held, *self.words(1, 12)]
            session = self.rng.choice([None, client.session])
            self.box.server.submit(ids, max_tokens=4, salt=client.salt, session=session)
            self.run()

    def stranger(self, client: Client) -> None:
        """A title request, or a prompt of nobody's; its client may leave."""
        server = self.box.server
        ids = self.words(1, 30) if self.rng.random() < 0.6 else self.words(60, 200)
        session = self.rng.choice([None, client.session])
        request = server.submit(
            ids, max_tokens=self.rng.randint(0, 12), salt=client.salt, session=session
        )
        if self.rng.random() < 0.3:
            self.steps(self.rng.randint(0, 12))
            server.cancel(request)
        self.run_some()

    def wait_or_leave(self, client: Client) -> None:
        """Its answer is waited for, or its client leaves and asks again later."""
        assert client.waits is not None
        if self.rng.random() < 0.25:
            self.box.server.cancel(client.waits)
        self.run_some()
        self.collect(client)

    def run_some(self) -> None:
        """Until all is answered, or not quite."""
        if self.rng.random() < 0.6:
            self.run()
            for client in self.clients:
                self.collect(client)
        else:
            self.steps(self.rng.randint(0, 25))

    def run(self) -> None:
        """Until all is answered; the medium is now fast and now slow."""
        busy = self.rng.random()
        for _ in range(STEPS_MAX):
            if self.box.server.scheduler.idle:
                return
            self.steps(1, busy)
        raise AssertionError("a request waits for ever")

    def steps(self, count: int, busy: float = 0.4) -> None:
        for _ in range(count):
            if self.rng.random() < busy:
                self.box.jobs.step()
            self.box.server.step()
            self.check_memory()

    def trouble(self) -> None:
        """What loses state: a forward that fails, an order to forget, a process that ends."""
        roll, server = self.rng.random(), self.box.server
        server.run()
        for client in self.clients:
            self.collect(client)
            client.known = False
        if roll < 0.5:
            server.engine.fail_next_forward(after=self.rng.randint(0, 4))
            server.submit(self.words(60, 200), max_tokens=4)
            server.run()
        elif roll < 0.8 or not self.box.disk_enabled:
            server.scheduler.clear_ram()
        elif roll < 0.9:
            self.box.stop()
        else:
            self.box.kill()

    # --- what must hold ---------------------------------------------------------------------------

    def collect(self, client: Client) -> None:
        """Look at an answer, if it has come."""
        server, request = self.box.server, client.waits
        if request is None or not server.ended(request):
            return
        client.waits = None
        finished, ids = server.finished(request), server.requests[request].prompt.ids
        if finished is None:
            return
        if client.known and self.bounded:
            self.checked += 1
            self.check_reread(finished.decision.reread, len(ids) - len(client.held), client)
        held = server.sequences.get(request)
        if finished.reason is FinishReason.CANCELLED:
            return
        # One that was begun and answered within a single step leaves nobody who saw its tokens.
        client.known = held is not None
        if held is not None:
            client.held = held.tolist()

    def check_reread(self, reread: int, new: int, client: Client) -> None:
        assert reread <= new + self.box.grid, (
            f"client {client.number} reads {reread} tokens again of {new} new ones"
        )

    def check_memory(self) -> None:
        ram = self.box.server.scheduler.ram
        if ram is None:
            return
        assert self.box.server.engine.copies.counts().row_bytes <= ram.nbytes <= ram.bytes_max
        for entry in ram.entries:
            assert all(block.needed > 0 and block.is_there for block in entry.blocks)
            assert entry.blocks[-1].span.end == entry.state.anchors[-1].line == entry.line


@pytest.mark.parametrize("disk", [False, True], ids=["memory alone", "with a disk"])
@pytest.mark.parametrize("seed", range(12))
def test_no_life_meets_a_wrong_state_however_little_memory_there_is(
    seed: int, *, disk: bool
) -> None:
    life = Life(seed, ROOMS[seed % len(ROOMS)], disk=disk)
    for _ in range(100):
        life.live()
    life.box.server.run()


@pytest.mark.parametrize("disk", [False, True], ids=["memory alone", "with a disk"])
@pytest.mark.parametrize("seed", range(100, 112))
def test_where_there_is_room_for_all_of_it_no_turn_reads_its_history_again(
    seed: int, *, disk: bool
) -> None:
    life = Life(seed, PLENTY, disk=disk)
    for _ in range(100):
        life.live()
    life.box.server.run()

    assert life.checked > 10
