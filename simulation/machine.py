"""The box of a world with what can go wrong in it: ends at any moment, damage, faulty calls."""

import itertools
import random
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Final

from ..adapters.codec.plane_codec import PlaneCodec
from ..adapters.codec.raw_codec import RawCodec
from ..adapters.memory.crashable_storage import CrashableStorage, CrashedHere
from ..adapters.simulation.faulty_storage import Fault, FaultyStorage
from ..application.disk_counters import DiskCounters
from ..application.disk_tier import DiskTier
from ..domain.disk_index import objects_of
from ..domain.disk_retention import Shares
from ..domain.stored_entry import ObjectName
from ..ports.block_storage import ALIGNMENT, BlockStorage
from .action import Action, Crash
from .box import Box
from .catalog_trouble import CatalogTrouble
from .clean_anchors import CleanAnchors
from .history import History
from .tier_rules import check_age
from .tier_watch import (
    TierState,
    check_budget,
    check_index,
    check_kept,
    check_rebuilt,
    check_survived,
)
from .traits import Traits
from .violation import violated
from .watched_storage import Ledger, WatchedStorage

BUDGETS: Final = (1 << 19, 1 << 20, 1 << 22, 1 << 24)
"""Bytes of a share, as restarts choose them."""

LIES: Final = (Fault.TORN_WRITE, Fault.BIT_FLIP, Fault.SHORT_READ)
"""Faults after which a whole object may look damaged."""

COLLISION: Final = "under the same key"
"""What is said of an object whose key is that of other tokens: it is whole, and of no use."""

BUDGET_LOOKS: Final = 4
"""Of so many objects that are stored, one is looked at in the middle."""

TROUBLES: Final[tuple[Mapping[Fault, float], ...]] = (
    {Fault.FULL: 1.0},
    {Fault.FULL: 0.3},
    {Fault.READ_ONLY: 1.0},
    {Fault.FAILED_WRITE: 0.3},
    {Fault.FAILED_WRITE: 1.0},
    {Fault.TORN_WRITE: 0.3},
    {Fault.FAILED_READ: 0.3},
    {Fault.FAILED_READ: 1.0},
    {Fault.SHORT_READ: 0.2},
    {Fault.BIT_FLIP: 0.2},
    {Fault.SLOW: 0.3},
    {Fault.FAILED_WRITE: 0.1, Fault.FAILED_READ: 0.1, Fault.BIT_FLIP: 0.05, Fault.SLOW: 0.05},
)
"""What a medium may do to calls, until it is mended."""


class Ended(Exception):
    """The process ends here."""

    def __init__(self, crash: Crash) -> None:
        super().__init__(crash.value)
        self.crash = crash


class Machine:
    """One box whose process goes on in small steps, any of which may be its last.

    Attributes:
        slow: the medium has been slow in this life, and is measured as such.
    """

    def __init__(self, traits: Traits, seed: int) -> None:
        """A machine that was just bought."""
        self.traits = traits
        self._seed = seed
        self._rates: Mapping[Fault, float] = {}
        self._crash = Crash.NONE
        self._after = 0
        self._within_put = False
        self._is_over = False
        self._excess = 0
        self._puts = itertools.count()
        self._looked_at: tuple[int, DiskCounters] | None = None
        self._lied = False
        self.ledger = Ledger(traits.quarantined)
        self.slow = False
        self._clean = CleanAnchors()
        self._was_in_trouble = False
        self._storages = 0
        self._faulty: FaultyStorage | None = None
        self._catalog = CatalogTrouble(happens=traits.catalog_fails, seed=seed)
        planes = PlaneCodec()
        self.box = Box(
            slots=traits.slots,
            window=traits.window,
            grid=traits.grid,
            parts=traits.parts,
            row_invariant=traits.row_invariant,
            anchors=traits.anchor_budget,
            queue_max=traits.queue,
            cache_enabled=traits.cache,
            shares=traits.shares,
            guard=traits.guard,
            evicted_tokens_min=traits.save_tokens,
            idle_s=traits.idle_s,
            staging_count=traits.staging,
            seed=seed,
            codec=planes if traits.compress else RawCodec(planes),
            medium=self._medium,
            index=self._catalog.between,
            tolerant=True,
            disk_enabled=traits.disk,
            lanes_place=traits.lanes_place,
            quarantined_max=traits.quarantined,
            ram_bytes_max=traits.ram_bytes,
            heal_idle_s=traits.heal_idle_s,
            step_s=traits.step_s,
            host_bytes=traits.host_bytes,
        )

    @property
    def server(self) -> History:
        """The process that runs now."""
        return self.box.server

    @property
    def in_trouble(self) -> bool:
        """Whether calls to the medium or to the catalog fail."""
        return bool(self._rates or self._catalog)

    # --- small steps ------------------------------------------------------------------------------

    def arm(self, action: Action) -> None:
        """Let the process end as an action says."""
        self._crash, self._after = action.crash, action.after
        self._within_put, self._is_over = action.within_put, False

    def end_if_armed(self) -> None:
        """An action is over before its process was to end: it ends now.

        Raises:
            Ended: so it was.
        """
        if self._crash is not Crash.NONE:
            raise Ended(self._crash)

    def micro(self, rng: random.Random, jobs_share: float) -> bool:
        """One job in the background, or one step of the scheduler; whether there was any work.

        Raises:
            Ended: it was the last one.
        """
        if self._crash is not Crash.NONE and not self._within_put:
            if self._after <= 0:
                raise Ended(self._crash)
            self._after -= 1
        try:
            if rng.random() < jobs_share and self.box.jobs.waiting:
                worked = self.box.jobs.step()
            else:
                worked = self.server.step()
        except CrashedHere:
            raise Ended(self._crash) from None
        if self._is_over:
            raise Ended(self._crash)
        return worked

    def _put_step(self, step: str) -> None:
        """Storing an object goes on: the budget holds there too, and the process may end there."""
        if step == "rename" and not next(self._puts) % BUDGET_LOOKS:
            check_budget(self.ledger.used, self.box.shares.pool + self._excess)
        if self._crash is Crash.NONE or not self._within_put:
            return
        self._after -= 1
        if self._after < 0:
            self._is_over = True
            raise CrashedHere

    # --- ends -------------------------------------------------------------------------------------

    def end(self, crash: Crash, rng: random.Random) -> None:
        """The process is gone, and another one starts; nothing that was durable may be lost.

        Raises:
            Violation: something is.
        """
        if crash is Crash.POWER:
            chance = rng if rng.random() < 0.5 else None
            self._restart(lambda: self.box.cut_power(chance))
        else:
            self._restart(self.box.kill)

    def lose_catalog(self) -> None:
        """The process is gone, and so is the catalog: it is made again from the objects.

        Raises:
            Violation: an entry whose objects are all whole does not come back, or loses some.
        """
        self._disarm()
        before, whole = TierState.of_catalog(self.box.catalog), not self.box.catalog.needs_rebuild
        there, untouched = set(self.box.names), not self.ledger.touched
        # Beside a damaged object of the same tokens an anchor is in doubt, and is left alone; a
        # catalog that failed may name what was moved aside.
        whole = whole and not self._catalog.aside
        sound = not (self.in_trouble or self._has_lied() or self.ledger.touched)
        self.box.lose_catalog()
        self._started()
        after = TierState.of(self.server.disk and self.server.disk.tier)
        if after is not None and whole and sound:
            check_rebuilt(before, after)
        if after is not None and whole and untouched and not self._has_lied():
            check_kept(
                before, after, {ObjectName(name) for name in there.difference(self.box.names)}
            )

    def replace_disk(self) -> None:
        """The process starts again over an empty medium."""
        self._disarm()
        self._faulty, self._lied, self._clean = None, False, CleanAnchors()
        self._catalog.aside.clear()
        self.ledger = Ledger(self.traits.quarantined)
        self.box.replace_disk()
        self._started()

    def change_weights(self) -> None:
        """The process starts again with other weights, or with the first ones."""
        self.box.weights = "two" if self.box.weights == "one" else "one"
        self._restart(self.box.kill)

    def change_budget(self, rng: random.Random) -> None:
        """The process starts again with other shares of the medium."""
        share = rng.choice(BUDGETS)
        self.box.shares = Shares(share, rng.choice([share, share // 2]))
        self._restart(self.box.kill)

    def _restart(self, how: Callable[[], None]) -> None:
        self._disarm()
        before = TierState.of_catalog(self.box.catalog)
        was_whole = not self.box.catalog.needs_rebuild
        aged_s = None if self.server.disk is None else self.server.disk.tier.now_s()
        began_s = self.box.clock.monotonic()
        how()
        self._started()
        if aged_s is not None and self.server.disk is not None:
            took_s = self.box.clock.monotonic() - began_s  # on a slow medium
            check_age(aged_s + took_s, self.server.disk.tier.now_s())
        after = TierState.of(self.server.disk and self.server.disk.tier)
        if after is not None and was_whole:
            check_survived(before, after)

    def _started(self) -> None:
        self.slow, self._was_in_trouble = False, self.in_trouble
        # A smaller budget is kept from the start on, unless the medium lets nothing go.
        over = self.ledger.used - self.box.shares.pool
        self._excess = max(over, 0) if self.in_trouble or self.server.disk is None else 0
        self.check()

    def _disarm(self) -> None:
        self._crash = Crash.NONE

    # --- the medium -------------------------------------------------------------------------------

    def trouble(self, rng: random.Random) -> None:
        """From now on calls to the medium fail at some rate."""
        rates = rng.choice(TROUBLES)
        self._set_rates({} if self._catalog.begin(rng) else rates)

    def mend(self) -> None:
        """Calls to the medium work again, and what could not be noted meanwhile is."""
        failed = self._catalog.end()
        self._set_rates({})
        if failed and self.server.disk is not None:
            self.server.disk.tier.tidy()

    def damage(self, rng: random.Random) -> bool:
        """Some stored object is not what was written any more; whether there was any."""
        names = sorted(self.box.names)
        if not names:
            return False
        name = ObjectName(rng.choice(names))
        self.ledger.touched.add(name)
        content = bytearray(self.box.storage.content(name))
        match rng.randrange(5):
            case 0:
                content[_place(rng, len(content))] ^= 1 << rng.randrange(8)
            case 1:
                del content[rng.randrange(len(content)) :]
            case 2:
                content = bytearray(self.box.storage.content(ObjectName(rng.choice(names))))
            case 3:
                content = bytearray(len(content))
            case _:
                self.box.storage.delete(name)
                self.ledger.found(self.box.storage.names())
                return True
        self.box.storage.overwrite(name, bytes(content))
        self.ledger.found(self.box.storage.names())
        # What grew by itself nobody wrote.
        self._excess = max(self._excess, self.ledger.used - self.box.shares.pool)
        return True

    def _medium(self, storage: CrashableStorage) -> BlockStorage:
        """What stands between a process and its store."""
        storage.on_step = self._put_step
        self._lied = self._has_lied()
        self._storages += 1
        self._faulty = FaultyStorage(
            storage, seed=self._seed + self._storages, rates=self._rates, delay=self._delay
        )
        self.ledger.found(storage.names())
        return WatchedStorage(
            self._faulty, self.ledger, lambda name: any(True for _ in storage.names(name))
        )

    def _delay(self, seconds: float) -> None:
        self.slow = True
        self.box.clock.advance(seconds)

    def _set_rates(self, rates: Mapping[Fault, float]) -> None:
        self._rates = rates
        self._was_in_trouble = self._was_in_trouble or self.in_trouble
        if self._faulty is not None:
            self._faulty.rates = rates

    # --- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold of the medium between two actions.

        Raises:
            Violation: something does not.
        """
        disk = self.server.disk
        if disk is None:
            # The process before it may have ended before its catalog could be told.
            self._catalog.note(self.ledger)
            return
        tier = disk.tier
        check_budget(self.ledger.used, self.box.shares.pool + self._excess)
        if disk.writes.counts.changed:
            violated("damage", "rows changed while a write was copying them")
        if self.server.scheduler.idle and tier.lent:
            violated("leak", f"{tier.lent} entries are lent, and nobody reads them")
        held = (self.ledger.changes, replace(tier.counters, restores=0, bytes_read=0))
        if held != self._looked_at:
            self._looked_at = held
            # Damage that was moved aside may come back in a power cut.
            back = frozenset(self._catalog.aside)
            self._catalog.note(self.ledger)
            self._check_index(tier)
            self._check_quarantine(back)
        if disk.writes.pending == 0 and self.server.scheduler.idle and disk.pool.lent:
            violated("leak", f"{disk.pool.lent} staging buffers are out, and nothing goes on")

    def _has_lied(self) -> bool:
        """Whether the medium ever gave or took other bytes than it said."""
        lied = self._faulty is not None and any(self._faulty.happened[fault] for fault in LIES)
        return self._lied or lied

    def _check_quarantine(self, back: Set[ObjectName]) -> None:
        """What was found damaged is damaged."""
        if self._has_lied():
            self.ledger.moved_aside.clear()
        for name, reason, touched in self.ledger.moved_aside:
            if not touched and name not in back and COLLISION not in reason:
                violated("damage", f"moved aside, and was whole: {name}: {reason}")
        self.ledger.moved_aside.clear()

    def _check_index(self, tier: DiskTier) -> None:
        check_index(tier, self.box.storage, self.ledger.touched | self._catalog.aside)
        if not self.traits.row_invariant:
            self._clean.check(tier, self.box, self.ledger.touched)
        if self._catalog:
            return  # what it could not be told it is told once it works
        kept = {entry.id: entry.anchors for entry in self.box.catalog.entries()}
        if kept != {entry.id: entry.anchors for entry in tier.entries()}:
            violated("index", "the catalog and the index hold different entries")
        disk = self.box.disk
        if not self._was_in_trouble and self.server.scheduler.idle and not disk.writes.pending:
            self._check_strays(tier)

    def finish(self) -> None:
        """Everything has come to its end: what nobody needs is gone, and all of it can go.

        Raises:
            Violation: something is left.
        """
        self.mend()
        self._disarm()
        self.box.settle()
        self.check()
        if self.box.catalog.needs_rebuild:
            # Until a start has read all objects none of them is known to be a stray.
            self._restart(self.box.kill)
        disk = self.server.disk
        if disk is not None and self._catalog.happens:
            disk.tier.tidy()
            self._check_index(disk.tier)
            self._check_strays(disk.tier)
        if disk is not None:
            disk.tier.clear()
        self._restart(self.box.kill)
        if self.server.disk is not None:
            self._check_strays(self.server.disk.tier)

    def _check_strays(self, tier: DiskTier) -> None:
        """Right after a start on a sound medium, or after what failed was made up for."""
        needed = {name for entry in tier.entries() for name in objects_of(entry)}
        strays = set(self.box.names) - needed
        if strays:
            violated("leak", f"{len(strays)} objects are left that no entry needs")


def _place(rng: random.Random, nbytes: int) -> int:
    """A byte of an object: mostly one at the start of a page, since small parts end there."""
    if rng.random() < 0.25:
        return rng.randrange(nbytes)
    return min(ALIGNMENT * rng.randrange(-(-nbytes // ALIGNMENT)) + rng.randrange(200), nbytes - 1)
