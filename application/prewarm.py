"""Bringing a conversation back from the medium before its next request comes."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..domain.entry import Tier
from ..ports.clock import Clock
from .disk_service import DiskService
from .displacing import is_same_session
from .preparing import Preparer
from .request import Event, GenerationRequest
from .slots import Placement, Preparation, Slot, Slots

IN_USE_S: Final = 120.0
"""How long a conversation keeps its slot from being prewarmed for another one."""

RESTORE_S_MAX: Final = 3.0
"""How long bringing it in may take, at the measured rate of the medium."""


class NotWarmed(enum.Enum):
    """Why nothing was brought in."""

    NOT_ON_DISK = "not_on_disk"
    """The request would not resume from the medium: it needs nothing, or there is nothing."""

    RESIDENT_IN_USE = "resident_in_use"
    """Every idle slot has another conversation that was used a moment ago."""

    TOO_LONG = "too_long"
    YIELDED = "yielded"
    """A request came meanwhile, or the server began to stop."""

    BUSY = "busy"
    """A request waits, no slot is idle, or another conversation is being prewarmed."""


@dataclass(frozen=True, slots=True)
class Warmed:
    """What was brought in.

    Attributes:
        tier: where from.
        line: that the request will start at.
        nbytes: that were read; those that stood in the slot already are not counted.
        seconds: that it took.
    """

    tier: Tier
    line: int
    nbytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PrewarmReport:
    """What became of it: one of the two is None."""

    warmed: Warmed | None
    why: NotWarmed | None


@dataclass(slots=True)
class _Warming:
    preparation: Preparation
    answer: Callable[[PrewarmReport], None]


class Prewarmer:
    """Prepares an idle slot as for a request, and stops there. On the engine thread.

    What it displaces is kept as a request's would be. It gives way to requests between any two
    blocks: what it has displaced by then has been kept, and the rest of it stays as it is.
    """

    def __init__(
        self,
        slots: Slots,
        disk: DiskService | None,
        preparer: Preparer,
        prefill_seconds: Callable[[int, int], float],
        clock: Clock,
    ) -> None:
        self._slots = slots
        self._disk = disk
        self._preparer = preparer
        self._prefill_seconds = prefill_seconds
        self._clock = clock
        self._warming: _Warming | None = None

    def begin(
        self,
        request: GenerationRequest,
        answer: Callable[[PrewarmReport], None],
        *,
        busy: bool,
    ) -> None:
        """Begin to bring in what a request would resume from; answered by a later step, or at once.

        Args:
            request: that is never run.
            busy: some request waits, or nothing new may begin.
        """
        idle = self._slots.idle()
        if busy or not idle or self._warming is not None:
            answer(_not_warmed(NotWarmed.BUSY))
            return
        placement = self._chosen(request, idle)
        if isinstance(placement, NotWarmed):
            answer(_not_warmed(placement))
            return
        preparation = self._preparer.begin(request, _ignored, placement)
        placement.slot.warming = preparation
        self._warming = _Warming(preparation, answer)

    def step(self, *, wait: bool) -> bool:
        """One piece of it; whether anything is under way.

        Args:
            wait: there is nothing else to do: block rather than come back at once.
        """
        warming = self._warming
        if warming is None:
            return False
        if self._preparer.step(warming.preparation, wait=wait):
            self._end(warming)
        return True

    def give_way(self) -> None:
        """Stop what is under way."""
        warming, self._warming = self._warming, None
        if warming is not None:
            warming.preparation.placement.slot.warming = None
            self._preparer.give_up(warming.preparation)
            warming.answer(_not_warmed(NotWarmed.YIELDED))

    def _chosen(self, request: GenerationRequest, idle: Sequence[Slot]) -> Placement | NotWarmed:
        """The slot that is to be prewarmed, or why none is."""
        if not self._is_stored(self._foreseen(request, idle)):
            return NotWarmed.NOT_ON_DISK
        free = [slot for slot in idle if not self._is_in_use(slot, request)]
        if not free:
            return NotWarmed.RESIDENT_IN_USE
        placement = self._foreseen(request, free)
        if not self._is_stored(placement):
            return NotWarmed.NOT_ON_DISK
        too_long = placement.offer.move_seconds > RESTORE_S_MAX
        return NotWarmed.TOO_LONG if too_long else placement

    def _foreseen(self, request: GenerationRequest, among: Sequence[Slot]) -> Placement:
        return self._slots.foreseen(request, self._prefill_seconds, self._disk, among)

    def _is_stored(self, placement: Placement) -> bool:
        return placement.continuation is not None

    def _is_in_use(self, slot: Slot, request: GenerationRequest) -> bool:
        if slot.resident.highest == 0 or is_same_session(request, slot):
            return False
        return self._clock.monotonic() - slot.used_s < IN_USE_S

    def _end(self, warming: _Warming) -> None:
        """All that there was to do is done."""
        preparation, self._warming = warming.preparation, None
        slot = preparation.placement.slot
        slot.warming = None
        self._preparer.close(preparation)
        if preparation.restore is None and preparation.ram is None:
            # It was cleared, damaged or brought in otherwise since; what is best now needs nothing.
            warming.answer(_not_warmed(NotWarmed.NOT_ON_DISK))
            return
        slot.session = preparation.request.session
        slot.read_back = preparation.restore is not None
        offer, nbytes = preparation.placement.offer, _bytes_moved(preparation)
        seconds = self._clock.monotonic() - preparation.started_s
        warmed = Warmed(offer.tier, offer.line, nbytes, seconds)
        warming.answer(PrewarmReport(warmed, None))


def _bytes_moved(preparation: Preparation) -> int:
    if preparation.restore is not None:
        return preparation.restore.bytes_read
    return 0 if preparation.ram is None else preparation.ram.bytes_moved


def _not_warmed(why: NotWarmed) -> PrewarmReport:
    return PrewarmReport(None, why)


def _ignored(event: Event) -> None:
    """Nobody is told of a request that is never run."""
