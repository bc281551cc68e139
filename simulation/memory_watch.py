"""Memory beside the requests: no row that is kept is overwritten, no byte is over the budget."""

from collections import Counter

from ..adapters.memory.recording_telemetry import RecordingTelemetry
from ..application.arriving import Arriving
from ..application.conversations import NO_SLOT
from ..application.kept_blocks import KeptBlock
from ..application.memory_budget import RESERVE
from ..application.memory_pools import MemoryPools
from ..application.ram_entry import RamEntry
from ..application.ram_tier import RamTier
from ..application.scheduler import Scheduler
from ..domain.entry import EntryId
from ..domain.errors import MemoryShort
from ..domain.grid import Span
from ..ports.clock import Clock
from ..ports.telemetry import WRITES_SKIPPED
from .kept_states import KeptStates
from .memory_rules import Held, MemoryState, check_leaving, check_roles
from .violation import violated
from .watched_engine import WatchedEngine


class MemoryWatch:
    """Implements `watched_state.RowsWatcher` for what memory keeps, and checks each step."""

    def __init__(
        self,
        scheduler: Scheduler,
        engine: WatchedEngine,
        states: KeptStates,
        clock: Clock,
        telemetry: RecordingTelemetry,
        pools: MemoryPools | None,
    ) -> None:
        """Takes a server that keeps something in memory, and nothing yet."""
        assert scheduler.ram is not None
        self._scheduler = scheduler
        self._ram: RamTier = scheduler.ram
        self._engine = engine
        self._states = states
        self._clock = clock
        self._telemetry = telemetry
        self._pools = pools
        self._before = MemoryState.of(self._ram)
        self._given_back = 0
        self._copied: list[tuple[KeptBlock, frozenset[int]]] = []
        self._tried: set[EntryId] = set()
        self._skips = 0
        self._skipped: dict[EntryId, int] = {}
        self._asked: Counter[EntryId] = Counter()
        self._in_session = self._ram.in_session
        self._ram.in_session = self._is_asked
        self._entered = self._ram.entered
        self._ram.entered = self._kept
        engine.watch_rows(self)

    # --- while rows are written -------------------------------------------------------------------

    def about_to_overwrite(self, slot: int, span: Span) -> None:
        for block in self._standing(slot, span):
            violated("kept", f"rows {block.span} of slot {slot} are needed, and are overwritten")

    def about_to_exchange(self, slot: int, span: Span) -> None:
        for block in self._standing(slot, span):
            if block.span != span and block.only_in(slot):
                violated(
                    "kept", f"rows {block.span} of slot {slot} are needed, and leave for {span}"
                )

    def copied_out(self, slot: int, span: Span) -> None:
        needed = [
            (one, frozenset(one.places))
            for one in self._standing(slot, span)
            if one.span == span and one.handle is None
        ]
        if not needed and self._arriving is None:
            violated("kept", f"rows {span} of slot {slot} are copied, and nobody needs that")
        self._copied.extend(needed)
        used = self._there()
        if used > self._bytes_max:
            violated("budget", f"copies in memory take {used} bytes of {self._bytes_max}")

    # --- after each step --------------------------------------------------------------------------

    def about_to_step(self) -> None:
        """Something is about to happen that may move what is kept."""
        self._copied.clear()
        self._before = MemoryState.of(self._ram, judged=self._may_be_short)
        # Written before: what the medium then gives up for others is gone by its own rules.
        self._tried |= {
            entry.id
            for entry in self._ram.entries
            if entry.id not in self._tried and self._was_written(entry)
        }
        self._given_back = self.given_back
        self._asked.clear()
        # What was kept since the last step, by a call, may have been refused its write since then.
        self._skipped |= {
            one.id: self._skips for one in self._ram.entries if one.id not in self._skipped
        }
        self._skips = self._telemetry.counted_in_all(WRITES_SKIPPED)

    def stepped(self) -> None:
        """Hold what has happened against the rules.

        Raises:
            Violation: one was broken.
        """
        self._check_bytes()
        self._check_copied()
        self._check_lent()
        asked = dict(self._asked)
        # What is given back for others leaves by another rule, written or not.
        judged = self._before.judged and self.given_back == self._given_back
        after = MemoryState.of(self._ram, judged=judged)
        self._skipped |= {one: self._skips for one in after.held if one not in self._skipped}
        is_safe, now_s = self._ram.is_safe, self._clock.monotonic()
        for gone in check_leaving(self._before, after, asked, is_safe, now_s):
            self._check_written(gone)

    @property
    def given_back(self) -> int:
        """How often something was given up, and told, for want of memory."""
        stats = () if self._pools is None else self._pools.stats()
        return sum(one.times for pool in stats for one in pool.given_back if one.cache != RESERVE)

    def give_back(self, wanted: int) -> None:
        """Have so many bytes given up, and hold that against the rules.

        Raises:
            Violation: other bytes came free than were told, or somebody else should have gone.
        """
        self._before, before = MemoryState.of(self._ram), self._there()
        self._asked.clear()
        freed = self._ram.give_back(wanted)
        if freed != before - self._there():
            violated("budget", f"told that {freed} bytes came free of {before}")
        idle = any(not entry.lent for entry in self._ram.entries)
        if freed < wanted and idle:
            violated("budget", f"{freed} of {wanted} bytes came free, and entries are left")
        self._check_bytes()
        asked, after = dict(self._asked), MemoryState.of(self._ram)
        is_safe, now_s = self._ram.is_safe, self._clock.monotonic()
        check_leaving(self._before, after, asked, is_safe, now_s)

    def squeeze(self) -> None:
        """Ask for memory as a request does, and hold what leaves against the order of its pool.

        Raises:
            Violation: somebody left who is kept for a better reason than one who stays.
        """
        assert self._pools is not None
        before = MemoryState.of(self._ram)
        try:
            self._pools.before_prefill(1)
        except MemoryShort:
            short = True
        else:
            short = False
        self._pools.after_request()
        self._check_bytes()
        after = MemoryState.of(self._ram)
        check_roles(before, after)
        if short and any(not held.lent for held in after.held.values()):
            violated("budget", "a request is refused for want of memory, and entries are left")

    def check(self) -> None:
        """Every entry is an honest state.

        Raises:
            Violation: one is not.
        """
        self._states.check(self._ram)

    # --- private ----------------------------------------------------------------------------------

    def _kept(self, entry: RamEntry) -> None:
        """What the medium has when it is kept was written, whatever the medium gives up then."""
        if self._was_written(entry):
            self._tried.add(entry.id)
        self._entered(entry)

    def _was_written(self, entry: RamEntry) -> bool:
        """Whether it is durable, or too short to be, or was durable and the medium gave it up."""
        return self._ram.is_safe(entry) or self._ram.given_up(entry)

    def _is_asked(self, entry: RamEntry) -> bool:
        """Whether an entry is in a session, which is asked of each that may leave."""
        self._asked[entry.id] += 1
        return self._in_session(entry)

    def _standing(self, slot: int, span: Span) -> list[KeptBlock]:
        """The blocks that say that their rows stand there."""
        return [
            block
            for entry in self._ram.entries
            for block in entry.blocks
            if block.span.start < span.end and span.start < block.span.end and slot in block.places
        ]

    @property
    def _bytes_max(self) -> int:
        """What it may keep where nobody else takes of its memory: others do so unseen."""
        if self._pools is None:
            return self._ram.bytes_max
        return self._pools.host.plan.ram_bytes_max.bytes

    @property
    def _may_be_short(self) -> bool:
        """Whether something may have to leave for what one step takes at most."""
        profile = self._engine.profile
        steps = profile.window // profile.grid.step + 1
        taken = profile.window * profile.layout.row_bytes + steps * profile.layout.section_bytes
        return self._ram.free() < len(self._engine.slots) * taken

    @property
    def _arriving(self) -> Arriving | None:
        """What is on its way into memory, if anything is."""
        prefetch = self._scheduler.prefetch
        fetch = None if prefetch is None else prefetch.fetch
        return None if fetch is None else fetch.arriving

    def _there(self) -> int:
        """Bytes that stand there: of rows whoever needs them, of sections those of entries."""
        handles = {one.handle for entry in self._ram.entries for one in entry.state.anchors}
        if self._arriving is not None:
            handles |= self._arriving.section_handles
        sections = len(handles) * self._engine.profile.layout.section_bytes
        return self._engine.copies.counts().row_bytes + sections

    def _check_bytes(self) -> None:
        """What is counted is what is there, and what is about to be."""
        ram, there = self._ram, self._there()
        reserved = 0 if self._arriving is None else self._arriving.reserved
        if not ram.nbytes - reserved <= there <= ram.nbytes:
            violated("budget", f"memory counts {ram.nbytes} bytes, and there are {there}")
        if ram.nbytes > self._bytes_max:
            violated("budget", f"memory keeps {ram.nbytes} bytes where {self._bytes_max} may be")

    def _check_copied(self) -> None:
        """What was copied was about to be overwritten, or is being brought to another slot."""
        lent = {block for entry in self._ram.entries if entry.lent for block in entry.blocks}
        for block, places in self._copied:
            if block.needed and frozenset(block.places) == places and block not in lent:
                violated("kept", f"rows {block.span} were copied, and stand where they stood")

    def _check_lent(self) -> None:
        """Whoever has an entry is at work on it, and has it once."""
        borrowed: Counter[EntryId] = Counter()
        for slot in self._scheduler.slots:
            at_work = slot.preparing or slot.warming
            if at_work is not None:
                one, restore = at_work.lent, at_work.ram
                borrowed.update([] if one is None else [one.id])
                borrowed.update([] if restore is None else [restore.entry.id])
        disk = self._scheduler.disk
        for write in [] if disk is None else disk.writes.of_slot(NO_SLOT):
            if write.entry is not None:
                borrowed[write.entry.id] += 1
                self._tried.add(write.entry.id)
        for entry in self._ram.entries:
            if entry.lent != borrowed[entry.id]:
                held = borrowed[entry.id]
                violated("leak", f"{entry.id} is lent {entry.lent} times, and {held} have it")

    def _check_written(self, gone: Held) -> None:
        """What the medium lacks leaves memory only where writing it was tried, or refused."""
        if self._scheduler.disk is None or gone.safe:
            return
        one = gone.entry.id
        skipped = self._telemetry.counted_in_all(WRITES_SKIPPED)
        if one not in self._tried and skipped == self._skipped.get(one, self._skips):
            violated("durable", f"{one} of {gone.line} tokens left memory, and was never written")
