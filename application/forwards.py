"""Forwards: one prefill chunk, or one token of every slot that decodes, per step."""

import enum
from collections.abc import Sequence

from ..domain.errors import EngineError
from ..domain.grid import Span
from ..domain.prefill_rate import PrefillRate
from ..domain.sampling import Logits
from ..ports.clock import Clock
from ..ports.engine import Engine
from .disk_service import DiskService
from .endings import Endings
from .generation import Generation
from .memory_pools import MemoryPools
from .ram_tier import RamTier
from .recorder import Recorder
from .slots import Slot


class _Turn(enum.Enum):
    """Whose step comes next when both kinds of work are there."""

    PREFILL = "prefill"
    DECODE = "decode"


class Forwards:
    """Brings what runs in the slots to the engine. On the engine thread."""

    def __init__(
        self,
        engine: Engine,
        disk: DiskService | None,
        ram: RamTier | None,
        pools: MemoryPools | None,
        rate: PrefillRate,
        clock: Clock,
        recorder: Recorder,
        endings: Endings,
    ) -> None:
        """Takes who is told of what was forwarded.

        Args:
            rate: learns from each chunk that is as long as a grid step.
        """
        self._engine = engine
        self._disk = disk
        self._ram = ram
        self._pools = pools
        self._rate = rate
        self._clock = clock
        self._recorder = recorder
        self._endings = endings
        self._turn = _Turn.PREFILL
        self._steps = 0

    def step(self, slots: Sequence[Slot]) -> bool:
        """A prefill chunk, or a token of every slot that decodes; False if nothing runs in these.

        They alternate where there are both: nobody waits for longer than one chunk.
        """
        running = [(slot, slot.running) for slot in slots if slot.running is not None]
        prefills = [slot for slot, generation in running if generation.prefilling]
        decodes = [slot for slot, generation in running if not generation.prefilling]
        if prefills and (not decodes or self._turn is _Turn.PREFILL):
            self._turn = _Turn.DECODE
            # In turn: a short prompt does not wait for a long one to end.
            self._prefill(min(prefills, key=lambda slot: slot.stepped))
        elif decodes:
            self._turn = _Turn.PREFILL
            self._decode(decodes)
        return bool(running)

    def _prefill(self, slot: Slot) -> None:
        generation = slot.running
        assert generation is not None
        self._steps += 1
        slot.stepped = self._steps
        span, chunk = generation.next_chunk(slot.resident.parting)
        self._vacate(slot, span)
        if self._pools is not None:
            self._pools.forwarding(span.end)
        began_s = self._clock.monotonic()
        try:
            logits = self._engine.prefill(slot.index, chunk)
            now_s = self._clock.monotonic()
            if self._pools is not None:
                self._pools.forwarded()
            slot.resident.advanced(span, generation.request.prompt)
            if self._disk is not None and self._engine.profile.grid.has(span.end):
                self._disk.heads.anchored(slot.index, slot.resident.anchors[-1])
            generation.chunk_done(span, logits, now_s)
        except EngineError as error:
            self._endings.fail(slot, error)
            return
        if len(span) == self._engine.profile.grid.step:
            # Short chunks say little about the rate: their fixed costs weigh too much.
            self._rate.observe(span.start, len(span), now_s - began_s)
        if generation.prefilling:
            self._prepare_copy()
        elif self._disk is not None:
            self._disk.heads.prefilled(slot.index)
        self._after(slot, generation)

    def _decode(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            self._vacate(slot, Span(slot.resident.length, slot.resident.length + 1))
        generations = [slot.running for slot in slots if slot.running is not None]
        inputs = [generation.next_input() for generation in generations]
        try:
            outputs = self._engine.decode(inputs)
        except EngineError as error:
            for slot in slots:
                self._endings.fail(slot, error)
            return
        now_s = self._clock.monotonic()
        for slot, generation, logits in zip(slots, generations, outputs, strict=True):
            self._token_done(slot, generation, logits, now_s)

    def _token_done(self, slot: Slot, generation: Generation, logits: Logits, now_s: float) -> None:
        previous_s = generation.marks.last_token_s
        slot.resident.decoded(generation.next_input().token)
        try:
            generation.token_done(logits, now_s)
        except EngineError as error:
            self._endings.fail(slot, error)
            return
        if previous_s is not None:
            self._recorder.token(now_s - previous_s)
        self._after(slot, generation)

    def _prepare_copy(self) -> None:
        """Memory for the copy of what was just read: it may have to leave for another's rows.

        To take it now adds little to a long prefill, and much to what the other waits.
        """
        if self._ram is not None:
            free_max = self._ram.bytes_max if self._pools is None else self._pools.host.slack
            self._ram.blocks.prepare_copy(free_max)

    def _after(self, slot: Slot, generation: Generation) -> None:
        if generation.finished:
            self._endings.close(slot, generation)

    def _vacate(self, slot: Slot, span: Span) -> None:
        """Rows are about to be written: what is kept of those that stand there is moved first."""
        if self._ram is not None:
            self._ram.blocks.vacate(slot.index, span.start, span.end)
