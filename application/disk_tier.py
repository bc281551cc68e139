"""The tier on the medium: what it holds, what it offers, and how it stays within its limits."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..domain.age_clock import AgeClock
from ..domain.disk_index import DiskIndex, objects_of
from ..domain.disk_retention import Ages, Holding, Left, Shares, expired, victims
from ..domain.entry import EntryId, Role
from ..domain.entry_remains import without
from ..domain.entry_succession import continues, with_anchors_of
from ..domain.fingerprint import Fingerprint
from ..domain.measured_rate import MeasuredRate
from ..domain.prompt_chain import PromptChain
from ..domain.stored_entry import ObjectName, StoredEntry
from ..domain.write_guard import WriteGuard
from ..ports import telemetry as names
from ..ports.block_storage import Space
from ..ports.catalog import AgeMark, Catalog
from ..ports.clock import Clock
from ..ports.engine import EngineProfile
from ..ports.telemetry import Telemetry
from .catalog_debt import CatalogDebt
from .disk_counters import DiskCounters, Skip
from .disk_offer import DiskOffer, disk_offer
from .entry_accounts import bytes_together, entry_stats, holdings
from .heirs import GivenUp, Heirs
from .object_store import ObjectStore
from .stats import DiskStats, EntryStats
from .tolerance import Tolerance
from .unneeded_objects import UnneededObjects
from .write_ledger import WriteLedger


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """Bounds of the tier.

    Attributes:
        admit_after: cold forwards of a line after which it becomes a head.
    """

    shares: Shares
    ages: Ages
    guard: WriteGuard
    admit_after: int = 2


class DiskTier:
    """Entries on a medium, of the running arithmetic and of others. One thread at a time.

    Once it is there no error of the medium or of the catalog leaves it: each is counted, and what
    could not be recorded is not stored. `tidy` makes up for what could not be told or deleted.

    Attributes:
        profile: of the engine whose state it keeps.
        limits: its bounds.
        heirs: of entries that gave their place to longer ones.
        given_up: entries that were let go for others.
        ledger: whether something may be written now; to be told of what was not.
        rate: of the medium, to be told of what was read.
        counters: of this process, so far.
    """

    def __init__(
        self,
        store: ObjectStore,
        catalog: Catalog,
        clock: Clock,
        telemetry: Telemetry,
        profile: EngineProfile,
        fingerprint: Fingerprint,
        limits: DiskLimits,
        local_day: Callable[[], str],
    ) -> None:
        """Reads the catalog; touches no object.

        Args:
            fingerprint: of the running arithmetic.
            local_day: today's ISO date.

        Raises:
            StorageError: the catalog cannot be read.
        """
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._telemetry = telemetry
        self.profile = profile
        self.fingerprint = fingerprint
        self.fingerprints = catalog.equal_to(fingerprint)
        self.limits = limits
        self._index = DiskIndex()
        self._foreign: dict[EntryId, StoredEntry] = {}
        self._in_use: Counter[EntryId] = Counter()
        self._tolerate = Tolerance(telemetry)
        self._debt = CatalogDebt(catalog, self._entry)
        self.heirs = Heirs()
        self.given_up = GivenUp()
        self._unneeded = UnneededObjects(
            store.storage,
            catalog,
            self._debt,
            self._tolerate,
            lambda name: self._index.holds(name) is not None,
        )
        self.ledger = WriteLedger(limits.guard, catalog, clock, telemetry, local_day)
        self.rate = MeasuredRate()
        self.counters = DiskCounters()
        mark = catalog.age_mark() or AgeMark(0.0, clock.wall())
        entries = catalog.entries()
        # A mark may be lost where entries are not; age never goes back behind them.
        newest_s = max([mark.age_s, *(entry.last_used_s for entry in entries)])
        self._age = AgeClock(newest_s, mark.wall_s, clock.wall(), clock.monotonic())
        for entry in entries:
            self._take(entry)

    # --- what is there ----------------------------------------------------------------------------

    @property
    def index(self) -> DiskIndex:
        """The entries of the running arithmetic."""
        return self._index

    @property
    def store(self) -> ObjectStore:
        return self._store

    def entries(self) -> tuple[StoredEntry, ...]:
        """All entries, foreign ones included."""
        return (*self._index.entries(), *self._foreign.values())

    def space(self) -> Space:
        return self._store.storage.space()

    def now_s(self) -> float:
        """The age clock."""
        return self._age.now(self._clock.monotonic())

    def offers(self, chain: PromptChain, highest: int, in_place: int) -> list[DiskOffer]:
        """What continues a prompt, priced by the measured rate of the medium.

        Args:
            highest: the highest line the prompt may resume at.
            in_place: rows that a slot shares with the prompt, and that need not be read.
        """
        return [
            disk_offer(found, in_place, self.rate, row_invariant=self.profile.row_invariant)
            for found in self._index.choices(chain, highest)
        ]

    def stats(self, pending_writes: int) -> DiskStats:
        """The figures of this moment."""
        space, counters = self.space(), self.counters
        entries = self.entries()
        return DiskStats(
            fingerprint=self.fingerprint,
            bytes_used=space.used,
            bytes_free=space.free,
            bytes_max=self.limits.shares.pool,
            entries={
                role.value: sum(entry.role is role for entry in entries)
                for role in (Role.HEAD, Role.CONVERSATION)
            },
            foreign=len(self._foreign),
            restores=counters.restores,
            bytes_read=counters.bytes_read,
            bytes_written=counters.bytes_written,
            saved=counters.saved,
            heads=counters.heads,
            evicted=counters.evicted,
            quarantined=counters.quarantined,
            pending_writes=pending_writes,
            read_bytes_per_s=self.rate.bytes_per_s,
            written_by_day=self.ledger.by_day(),
            write_level=self.ledger.level,
        )

    def entry_stats(self) -> list[EntryStats]:
        """Every entry, least valuable last."""
        return entry_stats(
            self.entries(), self._index, self.now_s(), row_invariant=self.profile.row_invariant
        )

    def latest_conversations(self, count: int) -> list[StoredEntry]:
        """The conversations that were used last, newest first."""
        kept = [entry for entry in self._index.entries() if entry.role is Role.CONVERSATION]
        return sorted(kept, key=lambda entry: (-entry.last_used_s, entry.id))[:count]

    # --- use --------------------------------------------------------------------------------------

    def lend(self, entry_id: EntryId) -> None:
        """The entry is being read, by one reader more: it must not leave."""
        self._in_use[entry_id] += 1

    @property
    def lent(self) -> int:
        """How many entries are being read."""
        return len(self._in_use)

    def unlend(self, entry_id: EntryId) -> None:
        """One reader less."""
        self._in_use -= Counter([entry_id])

    def used(self, entry_id: EntryId) -> None:
        """A request resumed from the entry."""
        now_s = self.now_s()
        entry = self._index.entry(entry_id)
        if entry is not None:
            self._index.add(replace(entry, hits=entry.hits + 1, last_used_s=now_s))
            # A use that was noted pays for nothing else that is owed of the entry.
            if not self._tolerate(lambda: self._catalog.touch({entry_id: now_s})):
                self._debt.owe(entry_id)

    def count_cold(self, chain: PromptChain, lines: Sequence[int]) -> dict[int, int]:
        """Count lines that a prefill forwards cold; their counts, this pass included."""
        keys = {chain.key(line): line for line in lines}
        counted: dict[int, int] = {}

        def count() -> None:
            for key, total in self._catalog.count_cold(keys).items():
                counted[keys[key]] = total

        if keys:
            self._tolerate(count)
        return counted

    # --- writing ----------------------------------------------------------------------------------

    def pin(self, name: ObjectName) -> int | None:
        """Keep an object that a write counts on; its bytes if some entry has it stored."""
        self._unneeded.pin(name)
        return self._index.holds(name)

    def unpin(self, unpinned: Sequence[ObjectName]) -> None:
        """A write has been settled; what it stored for nothing is deleted."""
        self._unneeded.unpin(unpinned)

    def make_room(self, role: Role, incoming_bytes: int) -> bool:
        """Let the least valuable entries go until `incoming_bytes` fit; whether they do.

        The medium's own limit, and what must stay free on it, count as well. Where one cannot go,
        or what it needed cannot be deleted, nobody who is worth more goes in its place.
        """
        if self._held_and_room()[1] < incoming_bytes:
            self._make_up()  # before anybody leaves for what nobody needs
        for _ in range(len(self.entries()) + 1):
            held, room = self._held_and_room()
            if incoming_bytes <= room:
                return True
            going = victims(
                self._holdings(),
                self.limits.shares,
                role,
                incoming_bytes,
                self.now_s(),
                bytes_max=max(held + room, 0),
            )
            if going is None:
                return False
            if not all(self._leave(entry_id, why) for entry_id, why in going):
                break
            # Once more: an object that was damaged may free less than its entry says.
        return self.space().free >= incoming_bytes

    def commit(self, entry: StoredEntry, chain: PromptChain, bytes_written: int) -> Skip | None:
        """Take a new entry whose objects are durable; why it could not be taken, None if it was.

        Not where one of them was found damaged since the write began to count on it.

        Older conversations that it continues go. Their anchors stay with it where the rows below
        them are its own: a conversation that was brought back has only the one it was resumed at.

        Args:
            chain: of the entry's tokens.
        """
        if self._unneeded.pinned_in_vain(objects_of(entry)):
            return Skip.DAMAGED
        replaced = [
            older
            for older in self._index.entries()
            if older.id not in self._in_use and continues(entry, older, chain)
        ]
        same = self._index.entry(entry.id)
        kept = with_anchors_of(entry, [*replaced, *([] if same is None else [same])])
        going = [older.id for older in replaced if older.id != entry.id]
        # The drive has written them, whether the catalog takes the entry or not.
        self.counters.bytes_written += bytes_written
        self._tolerate(lambda: self.ledger.wrote(entry.role, bytes_written))
        if not self._tolerate(lambda: self._catalog.put(kept, going)):
            return Skip.FAILED
        self._debt.settled([kept.id, *going])
        for entry_id in going:
            self._index.remove(entry_id)
        self._index.add(kept)
        self.heirs.took(kept.id, going)
        self.given_up.stored(kept.id)
        self._delete_orphans([*replaced, *([] if same is None else [same])])
        return None

    # --- what goes wrong, and what grows old ------------------------------------------------------

    def distrust(self, name: ObjectName, reason: str) -> None:
        """An object is damaged: nobody reads it again, and its entries lose what depends on it."""
        self.counters.quarantined += 1
        self._telemetry.count(names.QUARANTINED)
        self._telemetry.journal({"event": "quarantined", "object": name, "reason": reason})
        self._tolerate(lambda: self._store.storage.quarantine(name, reason))
        self._unneeded.damaged(name)
        for entry in self._index.needing(name):
            rest = without(entry, name)
            self._index.remove(entry.id)
            # Whether the catalog can note it or not: what is damaged must not be offered again.
            if rest is None:
                self._tell(entry.id, lambda entry=entry: self._catalog.remove([entry.id]))
            else:
                self._tell(entry.id, lambda rest=rest: self._catalog.put(rest))
                self._index.add(rest)
            self._delete_orphans([entry])

    def tidy(self) -> int:
        """Make up for what failed, let expired entries go, write the age down; how many went."""
        self._make_up()
        old = expired(self._holdings(), self.limits.ages, self.now_s())
        for entry_id in old:
            self._leave(entry_id, Left.EXPIRED)
        self._tolerate(
            lambda: self._catalog.set_age_mark(AgeMark(self.now_s(), self._clock.wall()))
        )
        self.make_room(Role.CONVERSATION, 0)
        return len(old)

    def reclaim(self) -> int:
        """Delete every object that no entry needs; how many there were."""
        needed = set[ObjectName]().union(*map(objects_of, self.entries()))
        return self._unneeded.reclaim(needed)

    def close(self) -> None:
        """Write down what is owed and the age, and let the medium go."""
        self._make_up()
        self._tolerate(
            lambda: self._catalog.set_age_mark(AgeMark(self.now_s(), self._clock.wall()))
        )
        self._tolerate(self._catalog.close)
        self._store.storage.close()

    def clear(self) -> int:
        """Let everything go that nobody is reading; the bytes that became free."""
        self.given_up.clear()
        before = self.space().used
        for entry in self.entries():
            if entry.id not in self._in_use:
                self._forget(entry)
        return max(before - self.space().used, 0)

    # --- private ----------------------------------------------------------------------------------

    def _take(self, entry: StoredEntry) -> None:
        if entry.fingerprint in self.fingerprints:
            self._index.add(entry)
        else:
            self._foreign[entry.id] = entry

    def _entry(self, entry_id: EntryId) -> StoredEntry | None:
        return self._index.entry(entry_id) or self._foreign.get(entry_id)

    def _holdings(self) -> list[Holding]:
        return holdings(self.entries(), self._index, self._in_use)

    def _held_and_room(self) -> tuple[int, int]:
        """Bytes of all entries, and how many more may be stored; below 0 over the budget."""
        space = self.space()
        held = self._index.nbytes + bytes_together(self._foreign.values())
        # The catalog, temporary and quarantined objects stand under the same cap.
        pool = self.limits.shares.pool - max(space.used - held, 0)
        return held, min(pool - held, space.free)

    def _leave(self, entry_id: EntryId, why: Left) -> bool:
        """Whether it has left, and what nobody needs now is deleted."""
        entry = self._entry(entry_id)
        if entry is None or not self._forget(entry):
            return False
        if why in (Left.SHARE, Left.ROOM):
            self.given_up.left(entry, self._clock.monotonic())
        self.counters.evicted += 1
        self._telemetry.count(names.EVICTED, labels={"reason": why.value})
        return not self._unneeded.are_left_over(objects_of(entry))

    def _forget(self, entry: StoredEntry) -> bool:
        """Out of the catalog first, then the objects that only it needed."""
        if not self._tolerate(lambda: self._catalog.remove([entry.id])):
            return False
        self._debt.settled([entry.id])
        self._index.remove(entry.id)
        self._foreign.pop(entry.id, None)
        self._delete_orphans([entry])
        return True

    def _delete_orphans(self, entries: Sequence[StoredEntry]) -> None:
        """Delete what these entries needed and nobody needs now."""
        self._unneeded.delete({name for entry in entries for name in objects_of(entry)})

    def _make_up(self) -> None:
        """Tell the catalog what it could not be told, and delete what could not be deleted."""
        if self._debt:
            self._tolerate(self._debt.pay)
        self._tolerate(self.ledger.record)
        self._unneeded.try_again()

    def _tell(self, entry_id: EntryId, act: Callable[[], object]) -> None:
        """Tell the catalog how an entry stands, now or later."""
        if self._tolerate(act):
            self._debt.settled([entry_id])
        else:
            self._debt.owe(entry_id)
