"""Requests in the world: sent, served to their end, and held against what was promised."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypedDict

from ..application.disk_service import DiskService
from ..application.peek import Peeked
from ..application.preparing import NO_ROOM
from ..application.prewarm import PrewarmReport
from ..application.request import (
    Decision,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Written,
)
from ..application.slots import Slot
from ..domain.errors import Cancelled, EngineError, MemoryShort, QueueFull
from ..domain.offers import COLD
from ..domain.prompt_chain import PromptChain
from ..domain.sampling import SamplingParams
from ..domain.tokens import token_ids
from .clients import Ask, Clients
from .machine import Machine
from .remembered import Remembered, in_the_way, tokens_in
from .reread import PROMISES, Standing, check_reread, line_in_slots
from .violation import violated

PUMP_MAX: Final = 5_000
"""Small steps in which everything that waits must have been answered."""

ON_MEDIUM: Final = "it stands on the medium"
IN_MEMORY: Final = "memory keeps it"

COLD_LOOKS: Final = 3
"""Of so many grid lines of a prompt, the count of one is looked at."""

JOBS_SHARES: Final = (0.02, 0.2, 0.5, 0.8)
"""How many of the small steps are the background's; with few, the medium is slow."""


class How(TypedDict):
    """What comes with a prompt's tokens; see `GenerationRequest`."""

    max_tokens: int
    salt: str
    adapter: str
    sampling: SamplingParams
    stop: tuple[str, ...]
    last_user: int
    first_answer: int | None
    session: str | None


class Serving:
    """The requests of one world.

    Attributes:
        requests: that a prefill began for.
    """

    def __init__(self, machine: Machine, clients: Clients, counts: Counter[str]) -> None:
        """Nobody has asked yet."""
        self._machine = machine
        self._clients = clients
        self._counts = counts
        self._standing: dict[int, Standing] = {}
        self._remembered = Remembered(machine)
        self._given_back = 0
        self._answers: dict[tuple[int, str], tuple[int, ...]] = {}
        self.requests = 0
        self.tokens_cached = 0
        self.tokens_reread = 0

    def process_ended(self) -> None:
        """What stood in slots is gone, and whoever waited is not answered."""
        self._standing.clear()
        self._remembered.forget()
        self._machine.server.ends()
        self._count_begun()

    def slots_cleared(self) -> None:
        """What stood in slots and in memory was forgotten on request."""
        self._standing.clear()
        self._remembered.forget()

    def one(self, ask: Ask, rng: random.Random, *, leaves: int | None = None) -> Finished | None:
        """One request on a machine where no other waits; how it ended, if it ended well.

        Args:
            leaves: the client leaves after so many small steps.
        """
        self._forget_what_was_given_back()
        expected, left = self._expected(ask), self._left()
        peeked = self._peeked(ask)
        request = self._submit(ask)
        if request is None:
            if self._machine.server.host is None:
                violated("progress", "an idle server found its queue full")
            return None
        share = rng.choice(JOBS_SHARES)
        if leaves is not None:
            self.pump(rng, share, self._all_answered, steps_max=leaves)
            self._machine.server.cancel(request)
        self.pump(rng, share, self._all_answered)
        finished = self._ended(request, ask)
        if finished is None:
            self._standing.pop(ask.client, None)
            self._remembered.went_on(ask, None)
            return None
        decision = finished.decision
        had_room = not any(refused.why == NO_ROOM for refused in decision.refused)
        stayed = self._left() == left
        sound = decision.quarantined == 0 and not self._forget_what_was_given_back()
        for promised, why in expected if sound else ():
            # Who is put at a line may find that it left, to make room for who stood in the slot.
            if (stayed or why != ON_MEDIUM) and (had_room or why != IN_MEMORY):
                check_reread(decision, promised, why)
        if peeked is not None and had_room and stayed and sound:
            check_peek(peeked, decision)
        self._stand(ask, finished)
        self._check_cold_counts(ask)
        return finished

    def burst(self, asks: Sequence[Ask], rng: random.Random) -> None:
        """Requests at once; those that find the queue full are not served."""
        sent: list[tuple[str, Ask]] = []
        for ask in asks:
            request = self._submit(ask)
            if request is not None:
                sent.append((request, ask))
            elif len(sent) < self._machine.traits.queue and self._machine.server.host is None:
                violated("progress", f"the queue was full with {len(sent)} requests")
            if rng.random() < 0.3:
                self._machine.micro(rng, 0.0)
        if sent and rng.random() < 0.3:
            self._machine.server.cancel(rng.choice(sent)[0])
        self.pump(rng, rng.choice(JOBS_SHARES), self._all_answered)
        self._standing.clear()
        for request, ask in sent:
            self._remembered.went_on(ask, None)
            self._ended(request, ask)

    def prewarm(self, ask: Ask, rng: random.Random, *, steps_max: int | None) -> None:
        """Bring in what a request would need; the request itself follows.

        Args:
            steps_max: it is sent after so many small steps at the latest.
        """
        server, answers = self._machine.server, list[PrewarmReport]()
        request = server.request(ask.ids, **self._how(ask))
        server.scheduler.prewarm(request, answers.append)
        self._standing.clear()
        self.pump(rng, rng.choice(JOBS_SHARES), lambda: bool(answers), steps_max)
        self.one(ask, rng)
        self.pump(rng, rng.choice(JOBS_SHARES), lambda: bool(answers))
        if len(answers) != 1:
            violated("progress", f"{len(answers)} answers came of one prewarm")
        warmed = answers[0].warmed
        self._counts["prewarmed" if warmed else "not prewarmed"] += 1

    def pump(
        self,
        rng: random.Random,
        jobs_share: float,
        until: Callable[[], bool],
        steps_max: int | None = None,
    ) -> None:
        """Let the process go on in small steps.

        Args:
            steps_max: stop after so many; by default nothing may take longer than `PUMP_MAX`.

        Raises:
            Violation: what was waited for never came.
            Ended: the process ended.
        """
        for _ in range(PUMP_MAX if steps_max is None else steps_max):
            if until():
                return
            self._machine.micro(rng, jobs_share)
        if steps_max is None:
            violated("progress", f"not answered after {PUMP_MAX} steps")

    def check_counters(self) -> None:
        """The figures of the running process are those of its requests.

        Raises:
            Violation: they are not.
        """
        server = self._machine.server
        if not server.scheduler.idle:
            return
        stats = server.scheduler.stats()
        begun = list(server.started.values())
        cached = sum(stats.tokens_cached.values())
        if stats.requests != len(begun) or stats.misses + sum(stats.hits.values()) != len(begun):
            violated("counter", f"{stats.requests} requests counted, {len(begun)} began")
        if cached != sum(decision.cached for decision in begun):
            violated("counter", f"{cached} tokens counted as cached")
        read = sum(count for request, count in server.read.items() if server.finished(request))
        if stats.tokens_reread != read:
            violated("counter", f"{stats.tokens_reread} tokens counted as read again, {read} were")
        disk = stats.disk
        if disk is None:
            return
        figures = {
            "entries": min(disk.entries.values(), default=0),
            "bytes used": disk.bytes_used,
            "bytes free": disk.bytes_free,
            "bytes read": disk.bytes_read,
            "bytes written": disk.bytes_written,
            "saved": disk.saved,
            "foreign": disk.foreign,
        }
        negative = {name: value for name, value in figures.items() if value < 0}
        if negative:
            violated("counter", f"below zero: {negative}")

    # --- private ----------------------------------------------------------------------------------

    def _all_answered(self) -> bool:
        return self._machine.server.scheduler.idle

    def _submit(self, ask: Ask) -> str | None:
        """Send it; None where the queue is full."""
        try:
            return self._machine.server.submit(ask.ids, **self._how(ask))
        except (QueueFull, MemoryShort) as refused:
            self._counts[f"refused {type(refused).__name__}"] += 1
            return None

    def _how(self, ask: Ask) -> How:
        """What comes with the tokens."""
        namespace = self._clients.all[ask.client].namespace
        return {
            "max_tokens": ask.answer,
            "salt": namespace.salt,
            "adapter": namespace.adapter,
            "sampling": ask.sampling,
            "stop": ask.stop,
            "last_user": ask.last_user,
            "first_answer": ask.first_answer,
            "session": ask.session,
        }

    def _expected(self, ask: Ask) -> list[tuple[int, str]]:
        """At which lines the request must start at the latest, and why."""
        machine, server = self._machine, self._machine.server
        if not machine.traits.cache:
            return []
        prompt = token_ids(list(ask.ids))
        namespace = self._clients.all[ask.client].namespace
        slots = server.scheduler.slots
        standing, promise = self._standing.get(ask.client), PROMISES[ask.kind]
        ram = server.scheduler.ram

        def cost(slot: Slot) -> int:
            return 0 if ram is None else in_the_way(ram, slot, len(prompt))

        expected = [(line_in_slots(slots, prompt, namespace, cost), "it stands in a slot")]
        expected.append((self._remembered.line(ask, prompt, namespace), IN_MEMORY))
        if (
            standing is not None
            and standing.namespace == namespace
            and standing.is_undisturbed(slots, machine.box.lives)
        ):
            least = standing.promised(promise, prompt) - cost(slots[standing.slot])
            if machine.traits.heal_idle_s is not None:
                least -= machine.traits.grid  # what is healed ends at a grid line
            expected.append((least, promise.value))
        if machine.in_trouble:
            return []  # a restore that fails costs what stood in its place
        disk = server.disk
        if disk is not None and not machine.slow and disk.writes.pending == 0:
            chain = PromptChain(prompt, namespace, server.engine.profile.grid)
            most = max(cost(slot) for slot in slots)
            expected.append((_line_worth_reading(disk, chain) - most, ON_MEDIUM))
        return expected

    def _forget_what_was_given_back(self) -> bool:
        """Nothing can be promised of what slots and memory gave up for others; whether they did."""
        now = self._machine.server.given_back
        if now == self._given_back:
            return False
        self._given_back = now
        self._standing.clear()
        self._remembered.forget()
        return True

    def _peeked(self, ask: Ask) -> Peeked | None:
        """What is foreseen of a request that is about to be sent, where that can be exact."""
        machine = self._machine
        if machine.in_trouble or machine.ledger.touched:
            return None
        return machine.server.scheduler.peek(machine.server.request(ask.ids, **self._how(ask)))

    def _left(self) -> tuple[int, ...]:
        """Counts that move where entries of the medium leave, or give their place to others."""
        disk = self._machine.server.disk
        if disk is None:
            return ()
        counters = disk.tier.counters
        return counters.evicted, counters.quarantined, counters.saved, counters.heads

    def _ended(self, request: str, ask: Ask) -> Finished | None:
        """What a request came to, and what its client keeps of it."""
        server = self._machine.server
        finished, failed = server.finished(request), server.failed(request)
        if not server.ended(request):
            violated("progress", f"{request} was never answered")
        if failed is not None:
            self._check_failure(failed)
        if finished is None:
            return None
        self._counts[f"served {finished.decision.source.value}"] += 1
        self._counts[f"gate {finished.decision.gate.value}"] += 1
        if finished.reason is FinishReason.CANCELLED:
            self._counts["cancelled"] += 1
            return None
        client = self._clients.all[ask.client]
        answer = self._answer(server.requests[request], finished)
        if answer is None:
            sequence = server.sequences.get(request, token_ids(list(ask.ids))).tolist()
        else:
            sequence = [*ask.ids, *answer]
        if ask.kept:
            client.answered(ask, sequence)
        return finished

    def _check_cold_counts(self, ask: Ask) -> None:
        """No line of the prompt is counted more often than prefills have passed it."""
        server, box = self._machine.server, self._machine.box
        if server.disk is None:
            return
        namespace, grid = self._clients.all[ask.client].namespace, server.engine.profile.grid
        prompt = token_ids(list(ask.ids))
        chain = PromptChain(prompt, namespace, grid)
        for line in list(grid.lines(0, len(prompt)))[::COLD_LOOKS]:
            key = chain.key(line)
            counted = box.catalog.cold_counts([key])[key]
            passed = box.oracle.times_cold(namespace, prompt, line)
            if counted > passed:
                violated("counter", f"line {line} counts {counted} cold passes of {passed}")

    def _check_failure(self, failed: Failed) -> None:
        """Requests fail for a forward that failed, and because their clients left; no other way."""
        if isinstance(failed.error, EngineError | Cancelled | MemoryShort):
            self._counts[f"failed {type(failed.error).__name__}"] += 1
            return
        raise failed.error

    def _answer(self, request: GenerationRequest, finished: Finished) -> tuple[int, ...] | None:
        """The tokens of an answer, where they were told: the same for the same question."""
        if request.sampling.top_logprobs is None:
            return None
        events = self._machine.server.events[request.id]
        written = [event for event in events if isinstance(event, Written)]
        answer = tuple(sampled.token for event in written for sampled in event.tokens)
        if len(answer) != finished.usage.completion:
            violated("sum", f"{len(answer)} tokens told, {finished.usage.completion} counted")
        key = (self._machine.box.oracle.hashed(request.prompt.ids), repr(request.sampling))
        before = self._answers.get(key, ())
        count = min(len(before), len(answer))
        if before[:count] != answer[:count]:
            violated("answer", f"the same question had another answer: {before} and {answer}")
        self._answers[key] = max(before, answer, key=len)
        return answer

    def _stand(self, ask: Ask, finished: Finished) -> None:
        """Remember what the client left in its slot."""
        machine = self._machine
        slot = machine.server.scheduler.slots[finished.decision.slot]
        if machine.traits.cache:
            end = slot.resident.end
            kept = machine.server.given_back or (end and end.line == slot.resident.length)
            if not kept:
                violated("reread", "a generation has ended, and its end was not kept")
            standing = self._standing[ask.client] = Standing.after(
                slot,
                machine.box.lives,
                finished,
                len(ask.ids),
                machine.server.engine.profile.grid,
                machine.traits.newest,
            )
            self._remembered.went_on(ask, standing)

    def _count_begun(self) -> None:
        """Add up what the process that ends has begun."""
        begun = self._machine.server.started.values()
        self.requests += len(begun)
        self.tokens_cached += sum(decision.cached for decision in begun)
        self.tokens_reread += sum(decision.reread for decision in begun)


def check_peek(peeked: Peeked, decision: Decision) -> None:
    """What was foreseen is what was done.

    Raises:
        Violation: it was something else.
    """
    foreseen = (peeked.tier, peeked.source, peeked.gate, peeked.line)
    done = (decision.tier, decision.source, decision.gate, decision.cached)
    if foreseen != done:
        violated("peek", f"foreseen was {peeked}, and done {decision}")


def _line_worth_reading(disk: DiskService, chain: PromptChain) -> int:
    """The line that the medium's best offer must be matched by, what it costs taken off."""
    offers = [one.offer for one in disk.offers(chain, 0)]
    best = max(offers, key=lambda offer: offer.line, default=COLD)
    return best.line - tokens_in(best.move_seconds)
