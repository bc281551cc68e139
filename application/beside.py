"""What goes on beside requests, and gives way to them."""

from collections.abc import Callable, Sequence

from ..ports.clock import Clock
from ..ports.engine import Engine
from .background import Background
from .disk_service import DiskService
from .durability import FlushReport
from .endings import Endings
from .healing import Healer
from .limits import Limits
from .live_verify import LiveVerifier
from .prefetch import Prefetch
from .preparing import Preparer
from .prewarm import Prewarmer, PrewarmReport
from .ram_setup import demotion
from .ram_tier import RamTier
from .request import GenerationRequest
from .slots import Slots


class Beside:
    """Prewarming, prefetching, writing, verifying and healing, in this order. On the engine thread.

    Attributes:
        verifier: None verifies nothing.
    """

    def __init__(
        self,
        engine: Engine,
        slots: Slots,
        disk: DiskService | None,
        ram: RamTier | None,
        clock: Clock,
        limits: Limits,
        preparer: Preparer,
        endings: Endings,
        prefill_seconds: Callable[[int, int], float],
        prefetch: Prefetch | None,
        verifier: LiveVerifier | None,
    ) -> None:
        """Takes what requests use."""
        self._slots = slots
        self._prefetch = prefetch
        self._prewarmer = Prewarmer(slots, disk, preparer, prefill_seconds, clock)
        self._background = Background(
            disk, slots.all, clock, ram, demotion(ram, disk, clock, limits.ram_idle_s)
        )
        self.verifier = verifier
        # Where arithmetic is row-invariant nothing is tainted.
        heals = limits.heal_idle_s is not None and not engine.profile.row_invariant
        self._healer: Healer | None = None
        if heals and ram is not None and limits.heal_idle_s is not None:
            self._healer = Healer(
                engine,
                slots,
                disk,
                ram,
                preparer,
                endings,
                prefill_seconds,
                clock,
                limits.heal_idle_s,
            )
        self._stopped = False

    def step(self, waiting: Sequence[GenerationRequest], *, worked: bool, running: bool) -> bool:
        """A piece of each that may go on; whether anything at all was done.

        Args:
            waiting: requests without a slot.
            worked: a request was brought on in this step.
            running: some request has a slot, and its prefill has begun.
        """
        if self.verifier is not None and (waiting or self._is_busy()):
            self.verifier.give_way()
        worked = self._prewarmer.step(wait=not worked) or worked
        if self._prefetch is not None:
            self._prefetch.step(waiting, wait=not running)
        worked = self._background.step(idle=not worked) or worked
        worked = worked or (self.verifier is not None and self.verifier.step())
        if self._healer is None or self._stopped:
            return worked
        return self._healer.step(idle=not worked) or worked

    def give_way(self) -> None:
        """A request waits for a slot."""
        self._prewarmer.give_way()
        self.let_slots_go()

    def let_slots_go(self) -> None:
        """Something is asked of all slots: nothing is healed meanwhile."""
        if self._healer is not None:
            self._healer.give_way()

    def forget(self, request_id: str) -> None:
        """A request that waited does so no more."""
        if self._prefetch is not None:
            self._prefetch.forget(request_id)

    def stop(self) -> None:
        """The server drains: nothing begins any more but what makes state durable."""
        self._stopped = True
        self.give_way()
        if self.verifier is not None:
            self.verifier.stop()

    def give_up(self) -> None:
        """All state is about to be forgotten."""
        self.give_way()
        if self._prefetch is not None:
            self._prefetch.give_up()

    def failed(self, why: str) -> None:
        """All state was forgotten, for a fault of our own."""
        if self.verifier is not None:
            self.verifier.failed(why)

    def flush(self, answer: Callable[[FlushReport], None]) -> None:
        """See `Scheduler.flush`."""
        self.let_slots_go()
        self._background.flush(answer)

    def prewarm(
        self,
        request: GenerationRequest,
        answer: Callable[[PrewarmReport], None],
        *,
        busy: bool,
    ) -> None:
        """See `Scheduler.prewarm`.

        Args:
            busy: some request waits, or nothing new may begin.
        """
        self.let_slots_go()
        self._prewarmer.begin(request, answer, busy=busy)

    def read_back(self) -> int:
        """See `Scheduler.read_back`."""
        return self._background.read_back()

    def _is_busy(self) -> bool:
        return any(not slot.idle for slot in self._slots.all)
