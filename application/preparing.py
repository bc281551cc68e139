"""What happens between a request's placement and its prefill.

In this order, each only where it is needed: a write that is about to continue the prompt becomes
durable; the conversation that loses the slot is kept, or copied out to the medium; state is brought
in from memory or from the medium.
"""

from dataclasses import replace
from functools import partial

from ..domain.entry import Source, Tier
from ..domain.offers import Offer
from ..domain.prefill_rate import PrefillRate
from ..ports.clock import Clock
from ..ports.engine import Engine
from .disk_service import DiskService
from .displacing import Displacing
from .entry_write import Progress
from .fetch import Fetch
from .prefetch import Prefetch
from .ram_restore import RamRestore
from .ram_tier import RamTier
from .read_queue import RestoreFailed
from .request import Decision, EventSink, GenerationRequest, Refusal
from .slots import Placement, Preparation, Slot, Slots
from .writes import Write

WHY_CHARACTERS_MAX = 160
"""Of a failure, in a decision."""

NO_ROOM = "there is no room to move it"


class Preparer:
    """Steps preparations. On the engine thread."""

    def __init__(
        self,
        engine: Engine,
        disk: DiskService | None,
        ram: RamTier | None,
        slots: Slots,
        rate: PrefillRate,
        clock: Clock,
        prefetch: Prefetch | None = None,
    ) -> None:
        """Takes who helps.

        Args:
            prefetch: may be reading what a request needs already.
        """
        self._engine = engine
        self._disk = disk
        self._ram = ram
        self._slots = slots
        self._rate = rate
        self._clock = clock
        self._prefetch = prefetch
        self._displacing = Displacing(engine, disk, ram, slots)

    def begin(
        self, request: GenerationRequest, sink: EventSink, placement: Placement
    ) -> Preparation:
        """Look at what stands between a placed request and its prefill."""
        preparation = Preparation(request, sink, placement, self._clock.monotonic())
        self._doubt_the_rate(placement)
        preparation.awaited = self.awaited(placement)
        if preparation.awaited is None:
            self._settle(preparation)
        return preparation

    def step(self, preparation: Preparation, *, wait: bool) -> bool:
        """Do one piece of it; whether the prefill may begin.

        Args:
            wait: there is nothing else to do: block rather than come back at once.
        """
        disk = self._disk
        if self._waits(preparation, wait=wait):
            return False
        if preparation.placement.way is not None and self._ram is not None:
            return self._step_ram(self._ram, preparation)
        if preparation.placement.continuation is not None and disk is not None:
            return self._step_restore(disk, preparation, wait=wait)
        return True

    def _waits(self, preparation: Preparation, *, wait: bool) -> bool:
        """Do one piece of what comes before anything is brought in; False if that is over."""
        disk = self._disk
        if disk is not None and preparation.awaited is not None:
            self._step_awaited(disk, preparation, preparation.awaited, wait=wait)
        elif preparation.fetch is not None:
            self._step_fetch(preparation, preparation.fetch, wait=wait)
        elif not preparation.displaced:
            self._displacing.step(preparation, wait=wait)
        elif disk is not None and preparation.save is not None:
            _step_save(disk, preparation, preparation.save, wait=wait)
        else:
            return False
        return True

    def outcome(self, preparation: Preparation) -> tuple[Offer, Decision]:
        """Where the prefill starts in the slot, and what is told about it; once `step` is done."""
        placement = preparation.placement
        slot, offer, decision = placement.slot, placement.offer, placement.decision
        if preparation.restore is not None or preparation.ram is not None:
            restored_s = self._clock.monotonic() - preparation.began_s
            decision = replace(decision, restore_s=restored_s)
            offer = self._slots.resident_offer(slot, preparation.request, offer.line)
            assert offer.line == decision.cached, "what was brought in cannot be resumed"
        else:
            decision = told(slot, decision)
        slot.read_back = False
        self._let_go(preparation)
        return offer, replace(
            decision,
            refused=(*preparation.refused, *decision.refused),
            quarantined=preparation.quarantined,
        )

    def close(self, preparation: Preparation) -> None:
        """What was prepared stands in the slot, and is left there for a request to come."""
        self._let_go(preparation)

    def give_up(self, preparation: Preparation) -> None:
        """The client has left. A conversation that is being saved is saved all the same."""
        self._let_go(preparation)
        if preparation.fetch is not None and self._prefetch is not None:
            self._prefetch.let_go(preparation.fetch)
            preparation.fetch = None
        if preparation.ram is not None:
            preparation.ram.close()
        if preparation.restore is not None and self._disk is not None:
            self._disk.abandoned(preparation.restore)

    def _doubt_the_rate(self, placement: Placement) -> None:
        """Stored state that would have continued further was found too slow to bring in."""
        passed_over = [
            refused.line
            for refused in placement.decision.refused
            if refused.source in (Source.HEAD, Source.CONVERSATION)
        ]
        if self._disk is not None and max(passed_over, default=0) > placement.offer.line:
            self._disk.tier.rate.doubt()

    def awaited(self, placement: Placement) -> Write | None:
        """A write under way that will continue the prompt much further than what is on offer."""
        if self._disk is None or placement.chain is None:
            return None
        enough = placement.offer.line + self._disk.conversations.policy.lost_tokens_min
        return self._disk.writes.continuing(placement.chain, enough)

    def _settle(self, preparation: Preparation) -> None:
        """Wait for what is being read into memory already; else begin with what is displaced."""
        if self._prefetch is not None:
            preparation.fetch = self._prefetch.take_over(preparation.placement.continuation)
        if preparation.fetch is None:
            self._hold(preparation)
            self._displacing.begin(preparation)

    def _hold(self, preparation: Preparation) -> None:
        """Keep the state that was chosen from leaving for the conversation it displaces."""
        continuation, way = preparation.placement.continuation, preparation.placement.way
        if self._disk is not None and continuation is not None:
            self._disk.borrow(continuation.entry)
            preparation.held = continuation.entry
        if way is not None:
            way.entry.lent += 1
            preparation.lent = way.entry

    def _let_go(self, preparation: Preparation) -> None:
        """The restore holds it from here on, or nobody needs it."""
        if self._disk is not None and preparation.held is not None:
            self._disk.give_back(preparation.held)
            preparation.held = None
        if preparation.lent is not None:
            preparation.lent.lent -= 1
            preparation.lent = None

    def _step_awaited(
        self, disk: DiskService, preparation: Preparation, awaited: Write, *, wait: bool
    ) -> None:
        if disk.writes.is_pending(awaited):
            if disk.writes.step() is Progress.WAITING and wait:
                disk.writes.wait()
            return
        preparation.awaited = None
        self._place_again(preparation, disk)
        self._settle(preparation)

    def _step_fetch(self, preparation: Preparation, fetch: Fetch, *, wait: bool) -> None:
        """Read on what the request found under way; what arrives is brought in from memory."""
        prefetch, placement = self._prefetch, preparation.placement
        assert prefetch is not None
        assert placement.continuation is not None
        if prefetch.finish(fetch, wait=wait):
            return
        preparation.fetch = None
        prefetch.let_go(fetch)
        way = fetch.way(placement.continuation)
        if way is not None:
            preparation.placement = self._slots.brought(placement, way)
        elif fetch.failure is not None:
            self._refuse(preparation, fetch.failure)
        else:
            self._place_again(preparation, self._disk)
        self._settle(preparation)

    def _step_ram(self, ram: RamTier, preparation: Preparation) -> bool:
        placement, slot = preparation.placement, preparation.placement.slot
        assert placement.way is not None
        if preparation.ram is None:
            preparation.began_s = self._clock.monotonic()
            if self._disk is not None:
                # What copies from the slot behind the requests' backs would find other rows.
                self._disk.writes.fence(slot.index, 0)
            preparation.ram = RamRestore(
                ram,
                placement.way.entry,
                placement.way.anchor,
                slot.index,
                self._engine.slots[slot.index],
                slot.resident,
            )
            self._let_go(preparation)
        progress = preparation.ram.step()
        if progress is Progress.WORKED:
            return False
        preparation.ram.close()
        if progress is None:
            why = Refusal(placement.decision.source, placement.decision.cached, NO_ROOM)
            preparation.refused = (why, *preparation.refused)
            preparation.ram = None
            self._place_again(preparation, self._disk, ram=False)
            return False
        restored_s = self._clock.monotonic() - preparation.began_s
        ram.rate.observe(preparation.ram.bytes_moved, preparation.ram.blocks_moved, restored_s)
        ram.used(preparation.ram.entry)
        return True

    def _step_restore(self, disk: DiskService, preparation: Preparation, *, wait: bool) -> bool:
        placement, slot = preparation.placement, preparation.placement.slot
        assert placement.continuation is not None
        if preparation.restore is None:
            if not disk.tier.index.has(placement.continuation.entry):
                # It was cleared or cut back since: no damage, another offer.
                self._let_go(preparation)
                self._place_again(preparation, disk)
                return False
            preparation.began_s = self._clock.monotonic()
            preparation.restore = disk.restore(
                placement.continuation,
                slot.index,
                slot.resident,
                preparation.request,
                placement.decision.shared,
                None if self._ram is None else partial(self._ram.blocks.vacate, slot.index),
            )
            self._let_go(preparation)
        try:
            progress = preparation.restore.step(wait=wait)
        except RestoreFailed as failure:
            disk.failed(preparation.restore, failure)
            self._refuse(preparation, failure)
            return False
        if progress is Progress.WAITING and wait:
            # No read is under way: the staging buffers are with the writes.
            disk.writes.wait()
        if progress is Progress.DONE:
            disk.restored(preparation.restore, self._clock.monotonic() - preparation.began_s)
        return progress is Progress.DONE

    def _refuse(self, preparation: Preparation, failure: RestoreFailed) -> None:
        """Stored state could not be used: take the next best way to start."""
        old = preparation.placement.decision
        why = Refusal(old.source, old.cached, str(failure)[:WHY_CHARACTERS_MAX])
        preparation.refused = (why, *preparation.refused)
        preparation.quarantined += failure.damaged
        preparation.restore = None
        # What was damaged is not offered again, so this ends; a medium that fails is not asked
        # a second time.
        self._place_again(preparation, self._disk if failure.damaged else None)

    def _place_again(
        self, preparation: Preparation, disk: DiskService | None, *, ram: bool = True
    ) -> None:
        preparation.placement = self._slots.place_again(
            preparation.placement.slot, preparation.request, self._rate.seconds, disk, ram=ram
        )


def told(slot: Slot, decision: Decision) -> Decision:
    """Of what was brought into a slot ahead of a request it is told where it came from."""
    if slot.read_back and decision.tier is Tier.SLOT:
        return replace(decision, tier=Tier.DISK, source=Source.CONVERSATION)
    return decision


def _step_save(disk: DiskService, preparation: Preparation, save: Write, *, wait: bool) -> None:
    progress = save.work.step()
    if save.work.copied:
        preparation.save = None
    elif progress is Progress.WAITING and wait:
        disk.writes.wait()
