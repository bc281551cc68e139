"""Stored state on its way into memory while the request that it is for waits for a slot.

One entry at a time, in the order of the queue, in short pieces between those of the requests that
run. It takes what nobody else needs: memory that is free, or that what is on the medium as well
gives up; a few of the staging buffers; and no read of its own while a request's own state is being
brought in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..domain.anchor import AnchorKind
from ..domain.disk_index import Continuation
from ..ports.clock import Clock
from ..ports.engine import Engine
from .arriving import Arriving
from .disk_service import DiskService
from .entry_write import Progress
from .fetch import Fetch
from .ram_entry import RamEntry
from .ram_tier import RamTier
from .read_queue import RestoreFailed
from .request import GenerationRequest
from .restore_target import NoRoom
from .slots import Slots
from .stats import PrefetchStats

SHARE_OF_REQUESTS: Final = 0.1
"""Of the engine thread's time that it may take while requests run."""


@dataclass(slots=True)
class PrefetchCounts:
    """What became of reads since the start; see `stats.PrefetchStats`."""

    begun: int = 0
    arrived: int = 0
    joined: int = 0
    abandoned: int = 0
    refused: int = 0
    failed: int = 0
    bytes_read: int = 0


@dataclass(slots=True)
class _Seen:
    """What a queued request was found to resume from.

    Attributes:
        stored: what is to be read for it; None where nothing is, or is any more.
        kept: the entry in memory that it will use: it must not leave for what is read.
    """

    request: GenerationRequest
    stored: Continuation | None
    kept: RamEntry | None


class Prefetch:
    """Reads ahead for the queue. On the engine thread.

    Attributes:
        fetch: what is being read; None where nothing is.
    """

    def __init__(
        self,
        engine: Engine,
        disk: DiskService,
        ram: RamTier,
        slots: Slots,
        prefill_seconds: Callable[[int, int], float],
        clock: Clock,
    ) -> None:
        """Reads nothing yet."""
        self._engine = engine
        self._disk = disk
        self._ram = ram
        self._slots = slots
        self._prefill_seconds = prefill_seconds
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._resumes_s = clock.monotonic()
        self.fetch: Fetch | None = None
        self.counts = PrefetchCounts()
        ram.reserved = self._reserved
        ram.give_way = self.give_way

    def stats(self) -> PrefetchStats:
        """The figures of this moment."""
        counts = self.counts
        return PrefetchStats(
            begun=counts.begun,
            arrived=counts.arrived,
            joined=counts.joined,
            abandoned=counts.abandoned,
            refused=counts.refused,
            failed=counts.failed,
            bytes_read=counts.bytes_read,
            under_way=self.fetch is not None,
        )

    # --- for the queue ----------------------------------------------------------------------------

    def step(self, queue: Sequence[GenerationRequest], *, wait: bool) -> None:
        """One piece of it.

        Args:
            queue: the requests that wait for a slot, in their order.
            wait: nothing else can be done: block until what is under way has been read.
        """
        self._forget_all_but(queue)
        if not self._slots.cache_enabled:
            self.give_up()
            return
        looked = self._look(queue)
        preparing = any(slot.preparing is not None for slot in self._slots.all)
        # Who wants the same entry is known once all have been looked at.
        if self.fetch is None and not preparing and not looked:
            self._begin(queue)
        fetch = self.fetch
        if fetch is None or fetch.holders:
            return
        running = any(slot.running is not None for slot in self._slots.all)
        if running and self._clock.monotonic() < self._resumes_s:
            return
        began_s = self._clock.monotonic()
        self._step(fetch, wait=wait and preparing, read_on=not preparing)
        now_s = self._clock.monotonic()
        self._resumes_s = now_s + (now_s - began_s) * (1 / SHARE_OF_REQUESTS - 1)

    def forget(self, request_id: str) -> None:
        """A request waits no more; what only it waited for is given up."""
        self._seen.pop(request_id, None)
        if self.fetch is not None:
            self.fetch.waiting.discard(request_id)
            if not self.fetch.wanted:
                self._abandon(self.fetch)

    def give_up(self) -> None:
        """Stop what is under way, and read nothing more for the requests that wait now."""
        for seen in self._seen.values():
            seen.stored = None
        if self.fetch is not None:
            self._abandon(self.fetch)

    def give_way(self) -> None:
        """Memory is needed: stop what takes of it, unless a request with a slot waits for that."""
        if self.fetch is not None and self.fetch.arriving.reserved and not self.fetch.holders:
            self.give_up()

    # --- for a request that has got its slot ------------------------------------------------------

    def take_over(self, continuation: Continuation | None) -> Fetch | None:
        """The read of a stored way to start, if it is under way; end with `let_go`."""
        fetch = self.fetch
        if fetch is None or not fetch.brings(continuation):
            return None
        fetch.holders += 1
        assert fetch.restore is not None
        fetch.restore.hurry()
        return fetch

    def will_bring(self, continuation: Continuation | None) -> bool:
        """Whether `take_over` would find it; changes nothing."""
        return self.fetch is not None and self.fetch.brings(continuation)

    def finish(self, fetch: Fetch, *, wait: bool) -> bool:
        """One piece of a read that was taken over; whether it goes on."""
        if fetch.under_way:
            progress = self._step(fetch, wait=wait)
            if progress is Progress.WAITING and wait:
                # No read is under way: the staging buffers are with the writes.
                self._disk.writes.wait()
        return fetch.under_way

    def let_go(self, fetch: Fetch) -> None:
        """A request that has a slot waits for it no more."""
        fetch.holders -= 1
        if fetch is self.fetch and not fetch.wanted:
            self._abandon(fetch)

    # --- private ----------------------------------------------------------------------------------

    def _forget_all_but(self, queue: Sequence[GenerationRequest]) -> None:
        queued = {request.id for request in queue}
        for gone in [request_id for request_id in self._seen if request_id not in queued]:
            self.forget(gone)

    def _look(self, queue: Sequence[GenerationRequest]) -> bool:
        """See what the first request that was not looked at would resume from; if there is one."""
        new = next((request for request in queue if request.id not in self._seen), None)
        if new is None:
            return False
        seen = self._seen[new.id] = self._foreseen(new)
        if self.fetch is not None and self.fetch.brings(seen.stored):
            self.fetch.waiting.add(new.id)
            self.counts.joined += 1
        return True

    def _foreseen(self, request: GenerationRequest) -> _Seen:
        placement = self._slots.foreseen(request, self._prefill_seconds, self._disk)
        way = placement.way
        return _Seen(request, placement.continuation, None if way is None else way.entry)

    def _begin(self, queue: Sequence[GenerationRequest]) -> None:
        """Read for the first request for which anything is to be read."""
        for request in queue:
            seen = self._seen.get(request.id)
            if seen is None or seen.stored is None:
                continue
            # What was read for another one since may serve this one too, or have taken its place.
            now = self._seen[request.id] = self._foreseen(request)
            if now.stored is not None:
                self._begin_one(request, now.stored)
            return

    def _begin_one(self, request: GenerationRequest, wanted: Continuation) -> None:
        """Read an entry up to the highest line that anybody wants of it, for all of them."""
        # An entry may have been written anew, or cut, since another request was looked at.
        same = {
            request_id: seen.stored
            for request_id, seen in self._seen.items()
            if seen.stored is not None and seen.stored.entry == wanted.entry
        }
        top = max(same.values(), key=lambda one: (one.line, one.anchor.kind is AnchorKind.END))
        also = {
            one.anchor.name: one.anchor
            for one in same.values()
            if one.anchor.name != top.anchor.name and one.anchor.kind is AnchorKind.GRID
        }
        reader = next(one for one in self._seen.values() if one.stored is top).request
        chain = self._disk.chain(reader)
        arriving = Arriving(
            self._engine,
            self._ram,
            reader.prompt,
            chain,
            top.line,
            1 + len(also),
            self._reserve,
        )
        restore = self._disk.fetch(top, arriving, reader, arriving.shared, list(also.values()))
        fetch = Fetch(arriving, restore, top, frozenset({top.anchor.name, *also}))
        fetch.waiting = {one for one, stored in same.items() if fetch.brings(stored)}
        self.fetch = fetch
        self.counts.begun += 1
        self.counts.joined += len(fetch.waiting) - 1

    def _step(self, fetch: Fetch, *, wait: bool, read_on: bool = True) -> Progress:
        restore = fetch.restore
        assert restore is not None
        try:
            progress = restore.step(wait=wait, read_on=read_on)
        except NoRoom:
            self.counts.refused += 1
            self._end(fetch)
            self._disk.abandoned(restore)
            return Progress.DONE
        except RestoreFailed as failure:
            self.counts.failed += 1
            fetch.failure = failure
            self._end(fetch)
            self._disk.failed(restore, failure)
            return Progress.DONE
        if progress is Progress.DONE:
            fetch.arrived = fetch.arriving.enter(fetch.continuation.entry)
            self._disk.fetched(restore)
            self.counts.bytes_read += restore.bytes_read
            self.counts.arrived += fetch.arrived is not None
            self._end(fetch)
        return progress

    def _abandon(self, fetch: Fetch) -> None:
        restore = fetch.restore
        assert restore is not None, "what is over cannot be given up"
        self.counts.abandoned += 1
        self._end(fetch)
        self._disk.abandoned(restore)

    def _end(self, fetch: Fetch) -> None:
        """It is over, for better or worse: nothing more is read for those that waited for it."""
        fetch.restore = None
        for request_id in fetch.waiting:
            if request_id in self._seen:
                self._seen[request_id].stored = None
                self._seen[request_id].kept = fetch.arrived
        fetch.waiting.clear()
        self.fetch = None

    def _reserved(self) -> int:
        return 0 if self.fetch is None else self.fetch.arriving.reserved

    def _reserve(self, nbytes: int) -> bool:
        """Whether there is memory for it that nobody else needs, or counts on."""
        ram = self._ram
        wanted = nbytes + self._slots.promised()
        if ram.free() >= wanted:
            return True
        spared = [seen.kept for seen in self._seen.values() if seen.kept is not None]
        for entry in spared:
            entry.lent += 1
        try:
            if wanted > ram.room() or ram.unsafe_victims(wanted) or not ram.make_room(wanted):
                return False
        finally:
            for entry in spared:
                entry.lent -= 1
        # What stands in a slot only is to be copied out of it now, where it had a copy before.
        return ram.free() >= nbytes + self._slots.promised()
