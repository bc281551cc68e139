"""One seeded world: clients, a machine with faults, and what must always hold of them.

All rules and use cases are the real ones; engine, store, catalog, clock and lanes are verified
fakes. Whatever happens is drawn from the seed, so that a seed and a number of steps name a history
of which every run is the same.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..application.durability import FlushReport
from ..application.prewarm import IN_USE_S
from ..domain.errors import Draining
from ..domain.namespace import Namespace
from ..domain.prompt_chain import PromptChain
from ..domain.tokens import TokenIds
from ..ports.telemetry import QUARANTINED, WRITES_SKIPPED
from .action import Action, Crash, Kind
from .clients import Ask, Clients
from .draw import draw
from .machine import Ended, Machine
from .reread import PROMISES, check_reread
from .serving import JOBS_SHARES, Serving
from .succession import Succession
from .tier_rules import DayState, Spent, check_day, check_order
from .tier_watch import TierState, check_went_on
from .traits import Traits
from .violation import Violation, violated

STATES_MAX: Final = 400_000
"""States that are remembered before the machine gets a new, empty disk."""

PLANNED: Final = 0.8
"""How many of the actions are the plan's, where there is one."""

COUNTERS_EVERY: Final = 8
"""Actions between two looks at the figures."""

AT_ONCE: Final = (Kind.TURN, Kind.TURN, Kind.TITLE, Kind.RETRY, Kind.BEGIN)
KEPT_AT_ONCE: Final = (*AT_ONCE, Kind.TURN, Kind.OTHER, Kind.OTHER, Kind.CHAT, Kind.SUMMARY)
"""What clients ask in a burst; the second where memory keeps conversations."""

JUMPS_S: Final = (-400 * 86_400.0, -86_400.0, -3_600.0, 3_600.0, 86_400.0, 400 * 86_400.0)
FLUSHING: Final = frozenset({Kind.FLUSH, Kind.STOP, Kind.COMEBACK})

READ_SOONER: Final = 4
"""Fewer tokens are read sooner than they are brought in."""

WAITS_S: Final = (1.0, 120.0, 3_600.0, 40_000.0, 4 * 86_400.0)


class World:
    """One world, from its seed.

    Attributes:
        steps: actions so far.
        counts: of actions by kind, and of what came of them.
    """

    def __init__(self, seed: int, *, traits: Traits | None = None) -> None:
        """A machine that was never used, and clients that never asked.

        Args:
            traits: instead of those that the seed draws.
        """
        self.seed = seed
        self.traits = traits or Traits.draw(seed)
        self._rng = random.Random(f"world {seed}")  # noqa: S311 - a world, not a secret
        self.clients = Clients(self.traits, self._rng)
        self.machine = Machine(self.traits, seed)
        self.counts: Counter[str] = Counter()
        self.serving = Serving(self.machine, self.clients, self.counts)
        self.steps = 0
        self._spent = Spent()
        self._drawn: Action | None = None
        self._plan = itertools.cycle(self.traits.plan)

    @property
    def requests(self) -> int:
        """Requests that a prefill began for."""
        return self.serving.requests + len(self.machine.server.started)

    def draw(self) -> Action:
        """The next action of this seed; only drawn, not done."""
        action = draw(self._rng, self.traits, self._drawn)
        if self.traits.plan and self._rng.random() < PLANNED:
            action = replace(action, kind=next(self._plan))
        self._drawn = action
        return action

    def step(self, action: Action | None = None) -> Action:
        """Let one thing happen, and check all that must hold.

        Args:
            action: instead of the one that the seed draws.

        Raises:
            Violation: something does not.
        """
        action = action or self.draw()
        self._judged(lambda: self._do(action))
        self.steps += 1
        return action

    def finish(self) -> None:
        """Let everything come to its end: nothing may be left that nobody needs.

        Raises:
            Violation: something is.
        """
        self._judged(self._finish)

    def _judged(self, act: Callable[[], None]) -> None:
        """Do it; whatever it raises is a violation of this step."""
        try:
            act()
        except Violation as violation:
            violation.step = self.steps
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise Violation("fault", message, self.steps) from error

    # --- what happens -----------------------------------------------------------------------------

    def _do(self, action: Action) -> None:
        rng = random.Random(action.seed)  # noqa: S311
        self.counts[action.kind.value] += 1
        self.machine.arm(action)
        life, before, day = self.machine.box.lives, self._tier_state(), self._day_state()
        began_s = self.machine.box.clock.monotonic()
        spent = self._spent_now(began_s)
        try:
            self._perform(action, rng)
            self.machine.end_if_armed()
        except Ended as ended:
            self.counts[f"cut short by {ended.crash.value}"] += 1
            self._end(ended.crash, rng)
        after = self._tier_state()
        goes_on = self.machine.box.lives == life and action.kind is not Kind.CLEAR
        if before is not None and after is not None and goes_on:
            check_went_on(before, after)
            self._check_rules(before, after)
            self._check_day(day, spent, flushed=action.kind in FLUSHING)
        self._spent_now(began_s)
        self.machine.check()
        if self.steps % COUNTERS_EVERY == 0:
            self.serving.check_counters()
        if self.machine.box.oracle.size > STATES_MAX:
            self._between_processes(self.machine.replace_disk)

    def _perform(self, action: Action, rng: random.Random) -> None:
        if action.kind in PROMISES and action.kind is not Kind.COMEBACK:
            leaves = rng.randint(0, 12) if action.kind is Kind.CANCEL else None
            self.serving.one(self.clients.ask(action, rng), rng, leaves=leaves)
            return
        machine = self.machine
        others: dict[Kind, Callable[[], object]] = {
            Kind.BURST: lambda: self._burst(action, rng),
            Kind.COMEBACK: lambda: self._come_back(rng),
            Kind.IDLE: lambda: self._idle(rng),
            Kind.FLUSH: lambda: self._flush(rng),
            Kind.STOP: lambda: self._stop(rng),
            Kind.KILL: lambda: self._end(Crash.KILL, rng),
            Kind.POWER: lambda: self._end(Crash.POWER, rng),
            Kind.LOSE_CATALOG: lambda: self._between_processes(machine.lose_catalog),
            Kind.NEW_DISK: lambda: self._between_processes(machine.replace_disk),
            Kind.WEIGHTS: lambda: self._between_processes(machine.change_weights),
            Kind.BUDGET: lambda: self._between_processes(lambda: machine.change_budget(rng)),
            Kind.DAMAGE: lambda: machine.damage(rng),
            Kind.TROUBLE: lambda: machine.trouble(rng),
            Kind.MEND: machine.mend,
            Kind.SPOIL: lambda: machine.server.engine.fail_next_forward(after=rng.randint(0, 10)),
            Kind.WAIT: lambda: self._wait(rng),
            Kind.JUMP: lambda: machine.box.clock.jump(rng.choice(JUMPS_S)),
            Kind.CLEAR: lambda: self._clear(rng),
            Kind.PREWARM: lambda: self._prewarm(action, rng),
            Kind.CLOSE: lambda: self._close(action),
            Kind.SHRINK: lambda: self._shrink(rng),
        }
        others[action.kind]()

    def _burst(self, action: Action, rng: random.Random) -> None:
        asks: list[Ask] = []
        for client in self.clients.all:
            kind = rng.choice(KEPT_AT_ONCE if self.traits.ram_bytes else AT_ONCE)
            one = Action(kind, client.number, rng.randint(1, 16), rng.randint(0, 6))
            asks.append(self.clients.ask(one, rng))
        if self.traits.alike:
            asks = [asks[0], *(self._maybe_alike(ask, asks[0], rng) for ask in asks[1:])]
        rng.shuffle(asks)
        self.serving.burst(asks, rng)

    def _maybe_alike(self, ask: Ask, first: Ask, rng: random.Random) -> Ask:
        """What a client asks, or the very prompt of another one: work is given to several."""
        if rng.random() >= self.traits.alike:
            return ask
        return replace(
            first, client=ask.client, talk=ask.talk, session=ask.session, answer=ask.answer
        )

    def _idle(self, rng: random.Random) -> None:
        self.serving.pump(rng, rng.choice(JOBS_SHARES), lambda: False, steps_max=rng.randint(1, 60))

    def _flush(self, rng: random.Random) -> FlushReport:
        """Ask for durability, and hold the answer against what is committed."""
        answers: list[FlushReport] = []
        before, disk = self._setbacks(), self.machine.server.disk
        evicted = 0 if disk is None else disk.tier.counters.evicted
        succession = Succession(None if disk is None else disk.tier, self.machine.box)

        def answered() -> bool:
            succession.look()
            return bool(answers)

        self.machine.server.scheduler.flush(answers.append)
        self.serving.pump(rng, rng.choice(JOBS_SHARES), answered)
        report = answers[0]
        self.counts["flushed durable" if report.durable else "flushed not durable"] += 1
        sound = report.tier and not self.machine.in_trouble and self._setbacks() == before
        left = 0 if disk is None else disk.tier.counters.evicted - evicted
        taken = sum(
            slot.idle and succession.took_place_of(slot.resident)
            for slot in self.machine.server.scheduler.slots
        )
        missing = max(report.missing - taken - left, 0)
        lacks = report.failed + report.dropped + missing
        if sound and not report.durable and lacks:
            violated("durable", f"nothing went wrong, and a flush is not durable: {report}")
        if report.durable and disk is None:
            violated("durable", "called durable without a tier")
        if report.durable and disk is not None and disk.writes.pending:
            violated("durable", "called durable while a write is under way")
        if report.durable:
            self._check_memory_is_durable()
            for namespace, ids in self._kept():
                if self._line_on_medium(namespace, ids) < len(ids):
                    violated("durable", f"{len(ids)} tokens called durable are not committed")
        return report

    def _setbacks(self) -> int:
        """What has gone wrong with the medium in this process, or was held back."""
        server = self.machine.server
        skipped = server.telemetry.counted_in_all(WRITES_SKIPPED)
        failed = 0 if server.disk is None else server.disk.writes.counts.failed
        return skipped + failed + server.telemetry.counted_in_all(QUARANTINED)

    def _kept(self) -> list[tuple[Namespace, TokenIds]]:
        """Up to where each idle slot's conversation can be resumed."""
        found: list[tuple[Namespace, TokenIds]] = []
        for slot in self.machine.server.scheduler.slots:
            resident = slot.resident
            lines = [anchor.line for anchor in resident.anchors]
            lines += [] if resident.end is None else [resident.end.line]
            if slot.idle and lines:
                found.append((resident.namespace, resident.ids[: max(lines)].copy()))
        return found

    def _check_memory_is_durable(self) -> None:
        """What memory keeps is committed; by itself, or as a part of what took its place."""
        ram, disk = self.machine.server.scheduler.ram, self.machine.server.disk
        if ram is None or disk is None:
            return
        for entry in ram.entries:
            line = self._line_on_medium(entry.namespace, entry.ids)
            rows = disk.tier.index.shared_line(entry.chain)
            if line < entry.line and rows < entry.chain.grid.floor(entry.line):
                violated("durable", f"{entry.line} tokens in memory are not committed")

    def _line_on_medium(self, namespace: Namespace, ids: TokenIds) -> int:
        """How far committed state continues a prompt that begins with these ids."""
        server = self.machine.server
        if server.disk is None:
            return 0
        chain = PromptChain(ids, namespace, server.engine.profile.grid)
        found = server.disk.tier.index.continuations(chain, len(ids))
        return max((one.line for one in found), default=0)

    def _come_back(self, rng: random.Random) -> None:
        """What was called durable is served after a sudden end."""
        report = self._flush(rng)
        kept = [(space, ids) for space, ids in self._kept() if len(ids) < self.traits.window - 1]
        self._end(rng.choice([Crash.KILL, Crash.POWER]), rng)
        disk = self.machine.server.disk
        if not report.durable or disk is None or disk.tier.counters.evicted or not kept:
            return
        namespace, ids = rng.choice(kept)
        if self._line_on_medium(namespace, ids) < len(ids):
            violated("durable", f"{len(ids)} tokens were called durable and are not offered")
        if self.machine.in_trouble:
            return
        request = self.machine.server.submit(
            [*ids.tolist(), 5],
            max_tokens=rng.randint(0, 4),
            salt=namespace.salt,
            adapter=namespace.adapter,
        )
        server = self.machine.server
        self.serving.pump(rng, rng.choice(JOBS_SHARES), lambda: server.scheduler.idle)
        finished = server.finished(request)
        if finished is not None and finished.decision.quarantined == 0:
            promised = len(ids) if len(ids) >= READ_SOONER else 0
            check_reread(finished.decision, promised, "it was called durable before the end")
            self.counts["came back"] += 1

    def _stop(self, rng: random.Random) -> None:
        """A planned stop: what can be resumed is written, and read back by the next process."""
        server = self.machine.server
        server.scheduler.drain()
        try:
            server.submit([1, 2, 3])
        except Draining:
            pass
        else:
            violated("progress", "a server that stops took a request")
        report = self._flush(rng)
        self._end(Crash.KILL, rng)
        tokens = self.machine.server.scheduler.read_back()
        disk = self.machine.server.disk
        if report.durable and disk is not None and not self.machine.in_trouble:
            counters = disk.tier.counters
            left = counters.evicted + counters.quarantined
            if disk.tier.latest_conversations(1) and not left and not tokens:
                violated("durable", "a stop saved conversations, and none was read back")
        self.machine.check()

    def _wait(self, rng: random.Random) -> None:
        self.machine.box.clock.advance(rng.choice(WAITS_S))
        if self.machine.server.disk is not None:
            self.machine.server.disk.tier.tidy()

    def _clear(self, rng: random.Random) -> None:
        roll = rng.random()
        self.machine.server.scheduler.clear(ram=roll < 0.6, disk=roll > 0.4)
        self.serving.slots_cleared()

    def _prewarm(self, action: Action, rng: random.Random) -> None:
        """Have the next turn's state brought in; somebody may ask for something before it is."""
        client = self.clients.all[action.client % len(self.clients.all)]
        if client.talk.ids:
            if rng.random() < 0.7:
                self.machine.box.clock.advance(IN_USE_S)
            leaves = rng.random() < 0.3
            ask = self.clients.ask(replace(action, kind=Kind.TURN), rng)
            self.serving.prewarm(ask, rng, steps_max=rng.randint(0, 20) if leaves else None)

    def _close(self, action: Action) -> None:
        """A session is over: what is kept of it stays."""
        scheduler = self.machine.server.scheduler
        client = self.clients.all[action.client % len(self.clients.all)]
        before = () if scheduler.ram is None else scheduler.ram.entries
        if client.talk.session is not None:
            scheduler.close_session(client.talk.session, client.namespace)
        if scheduler.ram is not None and scheduler.ram.entries != before:
            violated("kept", "a session was closed, and what was kept of it is gone")

    def _shrink(self, rng: random.Random) -> None:
        """Somebody else needs memory."""
        self.machine.server.give_memory_back(rng)

    # --- processes --------------------------------------------------------------------------------

    def _end(self, crash: Crash, rng: random.Random) -> None:
        self._between_processes(lambda: self.machine.end(crash, rng))

    def _between_processes(self, act: Callable[[], None]) -> None:
        self.serving.process_ended()
        act()

    def _finish(self) -> None:
        self.serving.process_ended()
        self.machine.finish()

    def _check_rules(self, before: TierState, after: TierState) -> None:
        """What the tier let go is what its rules say."""
        if self.machine.server.disk is not None:
            check_order(before, after, self.machine.box.tier)

    def _check_day(self, before: DayState | None, spent: Spent, *, flushed: bool) -> None:
        """What was written may be, after what had been spent by then."""
        now, clock = self._day_state(), self.machine.box.clock
        if before is not None and now is not None:
            least = spent.least(now.day, clock.monotonic())
            check_day(before, now, least, self.traits.guard, flushed=flushed)

    def _spent_now(self, began_s: float) -> Spent:
        """What has been written; whatever is new, not before this moment."""
        box = self.machine.box
        self._spent = self._spent.then(box.catalog, began_s, box.clock.monotonic())
        return self._spent

    def _day_state(self) -> DayState | None:
        disk = self.machine.server.disk
        if disk is None:
            return None
        return DayState.of(disk.tier, self.machine.box.local_day(), disk.writes.pending)

    def _tier_state(self) -> TierState | None:
        disk = self.machine.server.disk
        return None if disk is None else TierState.of(disk.tier)
