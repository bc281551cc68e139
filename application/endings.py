"""How requests end: what is kept of them in their slot, and what is told."""

from collections.abc import Callable

from ..domain.errors import AnchorlineError, Cancelled, EngineError
from ..ports.clock import Clock
from ..ports.engine import Engine
from .disk_service import DiskService
from .figures import slot_stats
from .generation import Generation
from .ram_tier import RamTier
from .recorder import Recorder
from .request import EventSink, Failed, GenerationRequest
from .sessions import Sessions
from .slots import Slot, Slots


class Endings:
    """Ends requests, and makes slots forget. On the engine thread."""

    def __init__(
        self,
        engine: Engine,
        slots: Slots,
        disk: DiskService | None,
        ram: RamTier | None,
        sessions: Sessions,
        recorder: Recorder,
        clock: Clock,
        report_load: Callable[[], None],
    ) -> None:
        """Takes who is told.

        Args:
            report_load: called after each change of how many requests run.
        """
        self._engine = engine
        self._slots = slots
        self._disk = disk
        self._ram = ram
        self._sessions = sessions
        self._recorder = recorder
        self._clock = clock
        self._report_load = report_load

    def close(self, slot: Slot, generation: Generation) -> None:
        """Keep the end and free the slot, then tell the client."""
        if generation.prefilling:
            self.fence(slot, slot.resident.length)
        if not self._slots.cache_enabled:
            slot.resident.forget()
        elif not generation.prefilling:
            self._keep_end(slot, generation)
        slot.running = None
        slot.used_s = self._clock.monotonic()
        self._sessions.ended_in(slot)
        finished = generation.close(self._clock.monotonic())
        self._recorder.finished(generation, finished)
        self._report_slot(slot)
        self._report_load()

    def fail(self, slot: Slot, error: AnchorlineError) -> None:
        """Forget a slot's state and tell its client, if it has one."""
        self.fence(slot, 0)
        slot.resident.forget()
        if self._ram is not None:
            self._ram.blocks.forget(slot.index)
        generation, slot.running = slot.running, None
        if generation is not None:
            self._recorder.failed(generation.request, error)
            generation.fail(error)
        self._report_slot(slot)
        self._report_load()

    def drop_unstarted(self, request: GenerationRequest, sink: EventSink) -> None:
        """The client of a request that had not begun has left."""
        self._recorder.cancelled_waiting(request)
        sink(Failed(Cancelled("the request was cancelled while it waited")))
        self._report_load()

    def forget(self, slot: Slot) -> int:
        """Make an idle slot drop what it holds; how many tokens that were."""
        tokens = slot.resident.length
        self.fence(slot, 0)
        slot.resident.forget()
        self._report_slot(slot)
        return tokens

    def fence(self, slot: Slot, line: int) -> None:
        """Rows of a slot from `line` on are about to be overwritten."""
        if self._disk is not None:
            self._disk.writes.fence(slot.index, line)

    def _keep_end(self, slot: Slot, generation: Generation) -> None:
        try:
            kept = slot.resident.keep_end(len(generation.request.prompt))
        except EngineError:
            # The answer is complete; only what could have been kept of it is lost.
            slot.resident.forget()
            kept = False
        self._recorder.end(kept=kept)

    def _report_slot(self, slot: Slot) -> None:
        self._recorder.slot(slot_stats(self._engine, slot))
