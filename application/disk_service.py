"""The disk tier at work: what requests resume from, and what is saved behind their backs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Final

import numpy as np

from ..domain.anchor import Anchor
from ..domain.disk_index import Continuation, objects_of
from ..domain.entry import Role, Source, Tier
from ..domain.entry_succession import ANCHORS_SAVED
from ..domain.errors import StorageUnavailable
from ..domain.grid import Span
from ..domain.offers import Offer, usable_line
from ..domain.prompt import Prompt
from ..domain.prompt_chain import PromptChain
from ..domain.stored_entry import StoredAnchor, StoredEntry
from ..domain.taint_line import TaintLine
from ..domain.write_guard import WriteCause
from ..ports import telemetry as names
from ..ports.clock import Clock
from ..ports.engine import EngineProfile
from ..ports.gpu_state import SlotState, StateCopies
from ..ports.jobs import Jobs
from ..ports.telemetry import Telemetry
from .conversations import Conversations, SavePolicy
from .disk_counters import Skip
from .disk_offer import DiskOffer
from .disk_tier import DiskTier
from .entry_write import EntryWrite, Progress, Snapshot
from .heads import Heads
from .object_parts import HEADER_ROOM_BYTES, payload_bytes, row_parts, section_parts
from .outgoing_objects import Medium
from .ram_entry import RamEntry
from .read_queue import ReadLanes, RestoreFailed
from .request import GenerationRequest
from .resident_prefix import ResidentPrefix
from .restore import Expected, Restore
from .restore_target import RestoreTarget, SlotTarget
from .staging import StagingPool
from .write_source import EntrySource, SlotSource, WriteSource
from .writes import Write, Writes

CONVERSATION_LANES: Final = tuple(f"conversations-{number}" for number in range(6))
"""Each object waits for a sync and a renaming: the drive is to have something to write then."""

HEAD_LANES: Final = ("heads-0", "heads-1")
READ_LANES: Final = tuple(f"read-{number}" for number in range(5))
"""The first for headers, four for rows: two of them read, and two look at what they have read."""

LANES: Final[Mapping[str, int]] = dict.fromkeys((*CONVERSATION_LANES, *HEAD_LANES, *READ_LANES), 64)
"""How many jobs may wait, by lane; more than there are staging buffers."""

HEADS_PENDING_MAX: Final = 16
"""Entries that may be on their way to a slow medium before heads are left out."""

TIDY_EVERY_S: Final = 60.0

PATIENCE_S: Final = 0.05
"""An idle server waits so long for an object to be written: longer than drives that keep up with
the sums of rows take for one, and no longer than a request that comes meanwhile may wait."""

SAMPLE_BYTES: Final = 1 << 20
"""Of what lanes try their codec on before the first request."""


class DiskService:
    """What the scheduler asks of the disk tier. Called on the engine thread."""

    def __init__(
        self,
        tier: DiskTier,
        jobs: Jobs,
        profile: EngineProfile,
        states: Sequence[SlotState],
        copies: StateCopies,
        clock: Clock,
        telemetry: Telemetry,
        policy: SavePolicy,
        staging_count: int,
    ) -> None:
        """Takes a tier whose entries are loaded.

        Args:
            staging_count: buffers between engine and medium, of one block or anchor each.
        """
        self.tier = tier
        self._jobs = jobs
        self._profile = profile
        self._states = states
        self._copies = copies
        self._clock = clock
        self._telemetry = telemetry
        allocate = tier.store.storage.buffer
        self.pool = StagingPool(allocate, _staging_bytes(profile), staging_count)
        self._lanes = ReadLanes(tier.store, jobs, self.pool, READ_LANES, tier.fingerprints)
        self.writes = Writes(tier)
        self.conversations = Conversations(
            tier,
            self.writes,
            profile.grid,
            policy,
            self._write_conversation,
            self._write_kept,
            self._may_save,
        )
        self.heads = Heads(tier, self.writes, profile.grid, self._write_head, self._may_write_head)
        self._tidied_s = clock.monotonic()

    def start(self) -> int:
        """Bring the medium in order before the first request; how many stray objects went."""
        stray = self.tier.reclaim()
        self.tier.tidy()
        self.report()
        return stray

    def warm(self) -> None:
        """Take the memory now that reads and writes take later: limits are computed beside it.

        Without it a server whose limits were set tightly would exceed them with its first write.

        Raises:
            StorageUnavailable: there is not enough of it.
        """
        try:
            self.pool.make_all()
        except MemoryError as error:
            raise StorageUnavailable(f"its buffers do not fit: {error}") from error
        # Tables of weights on the host, kernels on a device.
        self._states[0].row_sums(Span(0, 1))
        self._states[0].section_sums()
        # In runs: worth compressing, by every setting that is tried.
        sample = np.repeat(np.arange(SAMPLE_BYTES // 64, dtype=np.uint8), 64)
        warm = partial(self.tier.store.warm, sample)
        handles = [self._jobs.submit(lane, warm) for lane in LANES]
        for handle in handles:
            self._jobs.wait(handle)
            failure = self._jobs.result(handle)
            if failure is not None:
                raise StorageUnavailable(f"a lane cannot compress and read: {failure!r}")

    # --- reading ----------------------------------------------------------------------------------

    def chain(self, request: GenerationRequest) -> PromptChain:
        """The keys of a request's prompt."""
        return PromptChain(request.prompt.key_ids, request.namespace, self._profile.grid)

    def offers(self, chain: PromptChain, shared: int) -> list[DiskOffer]:
        """What stored state continues the prompt; see `DiskTier.offers`."""
        return self.tier.offers(chain, usable_line(chain.length), shared)

    def promised(self, write: Write, chain: PromptChain, shared: int) -> list[Offer]:
        """What a write under way will offer once it is durable, priced as if nothing shrank."""
        layout, snapshot = self._profile.layout, write.work.snapshot
        offers: list[Offer] = []
        for line, kind in self.writes.ways(write, chain):
            missing = max(line - shared, 0)
            nbytes = missing * layout.row_bytes + layout.section_bytes
            objects = -(-missing // self._profile.grid.step) + 1
            gate = TaintLine(snapshot.taint).gate(line, kind, self._profile.row_invariant)
            seconds = self.tier.rate.seconds(nbytes, objects)
            offers.append(Offer(line, gate, Tier.DISK, Source.CONVERSATION, None, nbytes, seconds))
        return offers

    def restore(
        self,
        continuation: Continuation,
        slot: int,
        resident: ResidentPrefix,
        request: GenerationRequest,
        shared: int,
        vacate: Callable[[int, int], None] | None = None,
    ) -> Restore:
        """Begin to bring stored state into a slot; end with `restored`, `failed` or `abandoned`.

        Args:
            vacate: called with the rows that are about to be overwritten.
        """
        self.writes.fence(slot, 0)
        self.borrow(continuation.entry)
        prompt: Prompt = request.prompt
        expected = Expected(prompt.ids, prompt.key_ids, request.namespace, shared)
        target = SlotTarget(self._states[slot], resident, vacate)
        return Restore(continuation, target, self._lanes, self._profile.layout, expected)

    def fetch(
        self,
        continuation: Continuation,
        target: RestoreTarget,
        request: GenerationRequest,
        shared: int,
        also: Sequence[StoredAnchor],
    ) -> Restore:
        """Begin to bring stored state elsewhere; end with `fetched`, `failed` or `abandoned`.

        Args:
            shared: how many of the request's tokens may stand there already.
            also: anchors below the continuation's that come too.
        """
        self.borrow(continuation.entry)
        prompt: Prompt = request.prompt
        expected = Expected(prompt.ids, prompt.key_ids, request.namespace, shared)
        return Restore(continuation, target, self._lanes, self._profile.layout, expected, also)

    def fetched(self, restore: Restore) -> None:
        """It stands there, verified. How long it took says nothing of the medium: others ran."""
        entry = restore.continuation.entry
        self.give_back(entry)
        self.tier.used(entry.id)
        self.tier.counters.bytes_read += restore.bytes_read
        self._telemetry.count(names.DISK_BYTES_READ, restore.bytes_read)

    def restored(self, restore: Restore, seconds: float) -> None:
        """It stands in the slot, verified."""
        entry = restore.continuation.entry
        self.give_back(entry)
        self.tier.used(entry.id)
        self._account_read(restore, seconds)

    def failed(self, restore: Restore, failure: RestoreFailed) -> None:
        """It could not be used; a damaged object is quarantined, and never offered again."""
        restore.abandon()
        self.give_back(restore.continuation.entry)
        if failure.damaged:
            self.tier.distrust(failure.name, str(failure))

    def abandoned(self, restore: Restore) -> None:
        """The client left."""
        restore.abandon()
        self.give_back(restore.continuation.entry)

    def restore_whole(self, slot: int, resident: ResidentPrefix, entry: StoredEntry) -> Restore:
        """Begin to bring an entry with all its anchors into an empty slot, whatever its tokens.

        End with `read_whole`, `failed` or `abandoned`.
        """
        last = entry.anchors[-1]
        block_bytes = tuple(accumulate((block.nbytes for block in entry.blocks), initial=0))
        self.borrow(entry)
        return Restore(
            Continuation(entry, last, len(entry.blocks), block_bytes),
            SlotTarget(self._states[slot], resident),
            self._lanes,
            self._profile.layout,
            None,
            [anchor for anchor in entry.anchors if anchor.line < last.line],
        )

    def read_whole(self, restore: Restore) -> None:
        """It stands in the slot, verified, and no request has asked for it."""
        self.give_back(restore.continuation.entry)
        self._telemetry.count(names.DISK_BYTES_READ, restore.bytes_read)

    def read_back(self, slot: int, resident: ResidentPrefix, entry: StoredEntry) -> bool:
        """Bring a conversation into an empty slot, with all its anchors; whether that worked.

        Blocks until it is done: for the start of a server, before its first request.
        """
        restore = self.restore_whole(slot, resident, entry)
        began_s = self._clock.monotonic()
        try:
            while restore.step(wait=True) is not Progress.DONE:
                pass
        except RestoreFailed as failure:
            self.failed(restore, failure)
            resident.forget()
            return False
        self.give_back(entry)
        self._account_read(restore, self._clock.monotonic() - began_s)
        return True

    # --- writing ----------------------------------------------------------------------------------

    def step(self, *, idle: bool) -> Progress:
        """One piece of background work.

        Args:
            idle: nothing else is to be done: writes may be waited for, a moment each time, and the
                tier is tidied.
        """
        progress = self.writes.step(ahead=not idle)
        if progress is Progress.WAITING and idle:
            self.writes.wait(PATIENCE_S)
        if progress is Progress.DONE and idle:
            now_s = self._clock.monotonic()
            if now_s - self._tidied_s >= TIDY_EVERY_S:
                self._tidied_s = now_s
                self.tier.tidy()
                self.report()
        return progress

    def report(self) -> None:
        """Tell telemetry what is there."""
        entries = self.tier.entries()
        self._telemetry.gauge(names.DISK_BYTES, self.tier.space().used)
        for role in (Role.HEAD, Role.CONVERSATION):
            count = sum(entry.role is role for entry in entries)
            self._telemetry.gauge(names.DISK_ENTRIES, count, {"role": role.value})

    def borrow(self, entry: StoredEntry) -> None:
        """It is about to be read: neither it nor what it needs may leave until `give_back`."""
        self.tier.lend(entry.id)
        for name in objects_of(entry):
            self.tier.pin(name)

    def give_back(self, entry: StoredEntry) -> None:
        """It is not being read any more."""
        self.tier.unlend(entry.id)
        self.tier.unpin(list(objects_of(entry)))

    def _account_read(self, restore: Restore, seconds: float) -> None:
        counters = self.tier.counters
        counters.restores += 1
        counters.bytes_read += restore.bytes_read
        if seconds > 0:
            self.tier.rate.observe(restore.bytes_read, restore.objects_read, seconds)
        self._telemetry.count(names.DISK_BYTES_READ, restore.bytes_read)
        self._telemetry.observe(names.RESTORE_SECONDS, seconds)

    def _write_conversation(
        self, slot: int, snapshot: Snapshot, chain: PromptChain, anchors: Sequence[Anchor]
    ) -> EntryWrite:
        source = SlotSource(self._states[slot], self._copies)
        return self._entry_write(source, snapshot, chain, anchors, CONVERSATION_LANES)

    def _write_kept(
        self, entry: RamEntry, snapshot: Snapshot, chain: PromptChain, anchors: Sequence[Anchor]
    ) -> EntryWrite:
        source = EntrySource(entry.blocks, self._states, self._copies)
        return self._entry_write(source, snapshot, chain, anchors, CONVERSATION_LANES)

    def _write_head(self, slot: int, snapshot: Snapshot, chain: PromptChain) -> EntryWrite:
        source = SlotSource(self._states[slot], self._copies)
        return self._entry_write(source, snapshot, chain, (), HEAD_LANES)

    def _entry_write(
        self,
        source: WriteSource,
        snapshot: Snapshot,
        chain: PromptChain,
        anchors: Sequence[Anchor],
        lanes: Sequence[str],
    ) -> EntryWrite:
        medium = Medium(self.tier.store, self._jobs, self.pool, lanes, self.tier.pin)
        layout = self._profile.layout
        stored_line = self.tier.index.shared_line(chain)
        work = EntryWrite(snapshot, chain, layout, source, anchors, medium, stored_line)
        work.promised = self._bytes_of(chain, len(snapshot.ids), ANCHORS_SAVED + 1)
        return work

    def _may_save(self, cause: WriteCause, chain: PromptChain) -> bool:
        return self._may_write(Role.CONVERSATION, cause, chain, chain.length, ANCHORS_SAVED + 1)

    def _may_write_head(self, chain: PromptChain, line: int) -> bool:
        return self._may_write(Role.HEAD, WriteCause.HEAD, chain, line, ANCHORS_SAVED)

    def _may_write(
        self, role: Role, cause: WriteCause, chain: PromptChain, line: int, anchors: int
    ) -> bool:
        """Whether the day's budget allows it, and room can be made."""
        refused = self.tier.ledger.refuses(cause, line)
        if (
            refused is None
            and cause is WriteCause.HEAD
            and self.writes.pending >= HEADS_PENDING_MAX
        ):
            refused = Skip.BUSY
        # What writes under way are going to take is as good as taken.
        incoming = self._bytes_of(chain, line, anchors) + self.writes.outstanding
        if refused is None and not self.tier.make_room(role, incoming):
            refused = Skip.ROOM
        if refused is not None:
            self.tier.ledger.skipped(refused, role)
        return refused is None

    def _bytes_of(self, chain: PromptChain, line: int, anchors: int) -> int:
        """What is to be written at most: rows that nobody has stored, and the anchors."""
        layout = self._profile.layout
        missing = max(line - self.tier.index.shared_line(chain), 0)
        objects = missing // self._profile.grid.step + 1 + anchors
        return (
            missing * layout.row_bytes
            + anchors * layout.section_bytes
            + objects * HEADER_ROOM_BYTES // 8
        )


def _staging_bytes(profile: EngineProfile) -> int:
    """What the largest object takes before it is compressed."""
    rows = payload_bytes(row_parts(profile.layout.views, profile.grid.step))
    sections = payload_bytes(section_parts(profile.layout.sections))
    return max(rows, sections) + HEADER_ROOM_BYTES
