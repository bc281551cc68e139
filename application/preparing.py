"""What happens between a request's placement and its prefill.

In this order, each only where it is needed: a write that is about to continue the prompt becomes
durable; the conversation that loses its rows is copied out; stored state is brought in.
"""

from dataclasses import replace

from ..domain.entry import Source, Tier
from ..domain.offers import Offer
from ..domain.prefill_rate import PrefillRate
from ..domain.write_guard import WriteCause
from ..ports.clock import Clock
from .disk_service import DiskService
from .entry_write import Progress
from .read_queue import RestoreFailed
from .request import Decision, EventSink, GenerationRequest, Refusal
from .slots import Placement, Preparation, Slots
from .writes import Write

WHY_CHARACTERS_MAX = 160
"""Of a failure, in a decision."""


class Preparer:
    """Steps preparations. On the engine thread."""

    def __init__(
        self, disk: DiskService | None, slots: Slots, rate: PrefillRate, clock: Clock
    ) -> None:
        self._disk = disk
        self._slots = slots
        self._rate = rate
        self._clock = clock

    def begin(
        self, request: GenerationRequest, sink: EventSink, placement: Placement
    ) -> Preparation:
        """Look at what stands between a placed request and its prefill."""
        preparation = Preparation(request, sink, placement, self._clock.monotonic())
        self._doubt_the_rate(placement)
        preparation.awaited = self._awaited(placement)
        if preparation.awaited is None:
            self._hold(preparation)
            preparation.save = self._save_displaced(request, placement)
        return preparation

    def step(self, preparation: Preparation, *, wait: bool) -> bool:
        """Do one piece of it; whether the prefill may begin.

        Args:
            wait: there is nothing else to do: block rather than come back at once.
        """
        disk = self._disk
        if disk is None:
            return True
        if preparation.awaited is not None:
            self._step_awaited(disk, preparation, preparation.awaited, wait=wait)
            return False
        if preparation.save is not None:
            _step_save(disk, preparation, preparation.save, wait=wait)
            return False
        if preparation.placement.continuation is None:
            return True
        return self._step_restore(disk, preparation, wait=wait)

    def outcome(self, preparation: Preparation) -> tuple[Offer, Decision]:
        """Where the prefill starts in the slot, and what is told about it; once `step` is done."""
        placement = preparation.placement
        slot, offer, decision = placement.slot, placement.offer, placement.decision
        if preparation.restore is not None:
            restored_s = self._clock.monotonic() - preparation.began_s
            decision = replace(decision, restore_s=restored_s)
            offer = self._slots.resident_offer(slot, preparation.request, offer.line)
        elif slot.read_back and offer.tier is Tier.SLOT:
            # It was brought in ahead of the request; told is where it came from.
            decision = replace(decision, tier=Tier.DISK, source=Source.CONVERSATION)
        slot.read_back = False
        return offer, replace(
            decision,
            refused=(*preparation.refused, *decision.refused),
            quarantined=preparation.quarantined,
        )

    def give_up(self, preparation: Preparation) -> None:
        """The client has left. A conversation that is being saved is saved all the same."""
        self._let_go(preparation)
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

    def _awaited(self, placement: Placement) -> Write | None:
        """A write under way that will continue the prompt much further than what is on offer."""
        if self._disk is None or placement.chain is None:
            return None
        enough = placement.offer.line + self._disk.conversations.policy.lost_tokens_min
        return self._disk.writes.continuing(placement.chain, enough)

    def _save_displaced(self, request: GenerationRequest, placement: Placement) -> Write | None:
        """Begin to write the conversation that this request replaces, if it is worth it."""
        disk, slot = self._disk, placement.slot
        if disk is None:
            return None
        # A hint is its user's own: another user's same one gives nothing up.
        same = (
            request.session is not None
            and request.session == slot.session
            and request.namespace == slot.resident.namespace
        )
        shared = placement.decision.shared
        if not disk.conversations.must_save(slot.resident, shared, same_session=same):
            return None
        return disk.conversations.save(slot.index, slot.resident, slot.session, WriteCause.EVICTION)

    def _hold(self, preparation: Preparation) -> None:
        """Keep the stored state that was chosen from leaving for the conversation it displaces."""
        continuation = preparation.placement.continuation
        if self._disk is not None and continuation is not None:
            self._disk.borrow(continuation.entry)
            preparation.held = continuation.entry

    def _let_go(self, preparation: Preparation) -> None:
        """The restore holds it from here on, or nobody needs it."""
        if self._disk is not None and preparation.held is not None:
            self._disk.give_back(preparation.held)
            preparation.held = None

    def _step_awaited(
        self, disk: DiskService, preparation: Preparation, awaited: Write, *, wait: bool
    ) -> None:
        if disk.writes.is_pending(awaited):
            if disk.writes.step() is Progress.WAITING and wait:
                disk.writes.wait()
            return
        preparation.awaited = None
        self._place_again(preparation, disk)
        self._hold(preparation)
        preparation.save = self._save_displaced(preparation.request, preparation.placement)

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

    def _place_again(self, preparation: Preparation, disk: DiskService | None) -> None:
        preparation.placement = self._slots.place_again(
            preparation.placement.slot, preparation.request, self._rate.seconds, disk
        )


def _step_save(disk: DiskService, preparation: Preparation, save: Write, *, wait: bool) -> None:
    progress = save.work.step()
    if save.work.copied:
        preparation.save = None
    elif progress is Progress.WAITING and wait:
        disk.writes.wait()
