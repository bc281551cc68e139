"""Healing: in idle time tainted rows are prefilled again on the grid, and become bitwise.

Rows that decode wrote, and all that a prefill wrote above them, are what the conversation's own run
wrote, and no more is claimed of them. Written again by a cold grid prefill they are what any such
prefill of these tokens writes: every request resumes from them under the bitwise gate, and other
conversations share them.

    rows   0 ........ taint ........ top ... end       before: preserved from the taint line on
           0 ........................ top              after: bitwise; the next turn reads the rest

What is healed is kept in memory as it was until all of it is. A request that comes meanwhile finds
it there, with its end, as if nothing had been: so nobody ever sees that it was begun.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..domain.errors import EngineError
from ..domain.namespace import Namespace
from ..domain.prefix_key import PrefixKey
from ..domain.prompt import Prompt
from ..domain.prompt_chain import PromptChain
from ..domain.sampling import SamplingParams
from ..domain.taint_line import Gate
from ..domain.tokens import TokenIds
from ..ports.clock import Clock
from ..ports.engine import Engine
from .disk_service import DiskService
from .endings import Endings
from .preparing import Preparer
from .ram_entry import RamEntry
from .ram_tier import RamTier
from .request import Event, GenerationRequest
from .slots import Preparation, Slot, Slots

HOPELESS_MAX: Final = 256
"""Conversations that are remembered not to be tried again."""


@dataclass(frozen=True, slots=True)
class _Patient:
    """What is to be healed, and where.

    Attributes:
        top: the highest grid line below its end.
        clean: the highest grid line below the taint line.
    """

    ids: TokenIds
    key_ids: TokenIds
    namespace: Namespace
    session: str | None
    slot: Slot
    top: int
    clean: int


@dataclass(slots=True)
class _Healing:
    """One under way.

    Attributes:
        preparation: until the slot stands at a clean line.
        source: the entry that keeps it as it was; known from then on.
        done: the line up to which it is healed.
    """

    patient: _Patient
    prompt: Prompt
    preparation: Preparation
    source: RamEntry | None = None
    done: int = 0


@dataclass(slots=True)
class HealingCounts:
    """What was healed since the start."""

    healed: int = 0
    tokens: int = 0
    interrupted: int = 0


class Healer:
    """Heals one conversation at a time, a chunk a step, while nobody asks for anything."""

    def __init__(
        self,
        engine: Engine,
        slots: Slots,
        disk: DiskService | None,
        ram: RamTier,
        preparer: Preparer,
        endings: Endings,
        prefill_seconds: Callable[[int, int], float],
        clock: Clock,
        idle_s: float,
    ) -> None:
        """Takes what requests use.

        Args:
            idle_s: nobody has asked for anything for so long before it begins.
        """
        self._engine = engine
        self._grid = engine.profile.grid
        self._slots = slots
        self._disk = disk
        self._ram = ram
        self._preparer = preparer
        self._endings = endings
        self._prefill_seconds = prefill_seconds
        self._clock = clock
        self._idle_s = idle_s
        self._active_s = clock.monotonic()
        self._healing: _Healing | None = None
        self._hopeless: dict[PrefixKey, None] = {}
        self.counts = HealingCounts()

    def give_way(self) -> None:
        """A request has come, or something else needs the slots: what was healed so far stays."""
        self._active_s = self._clock.monotonic()
        healing, self._healing = self._healing, None
        if healing is not None:
            self.counts.interrupted += 1
            healing.patient.slot.warming = None
            if healing.source is None:
                self._preparer.give_up(healing.preparation)

    def step(self, *, idle: bool) -> bool:
        """Do one piece of it; False if there is nothing to heal.

        Args:
            idle: nobody else had anything to do.
        """
        now_s = self._clock.monotonic()
        if not idle:
            self._active_s = now_s
        if now_s - self._active_s < self._idle_s:
            return False
        healing = self._healing
        if healing is None:
            return self._begin()
        if healing.source is None:
            if self._preparer.step(healing.preparation, wait=True):
                self._stand(healing)
            return True
        self._forward(healing, healing.source)
        return True

    # --- choosing ---------------------------------------------------------------------------------

    def _begin(self) -> bool:
        patient = self._next_patient()
        if patient is None:
            return False
        # Up to its clean line, as a prompt: nothing tainted continues that.
        below = Prompt(patient.ids[: patient.clean + 1], patient.key_ids[: patient.clean + 1])
        request = GenerationRequest(
            id="healing",
            prompt=below,
            namespace=patient.namespace,
            sampling=SamplingParams(),
            max_tokens=len(patient.ids) - len(below),
            stop=(),
            chat=False,
            opens_reasoning=False,
            tools=False,
            ignore_end=True,
            session=None,
            arrived_s=self._clock.monotonic(),
        )
        placement = self._slots.foreseen(request, self._prefill_seconds, self._disk, [patient.slot])
        if placement.offer.gate is Gate.PRESERVED:
            self._give_up(patient)
            return False
        prompt = Prompt(patient.ids[: patient.top], patient.key_ids[: patient.top])
        preparation = self._preparer.begin(request, _ignored, placement)
        patient.slot.warming = preparation
        self._healing = _Healing(patient, prompt, preparation)
        return True

    def _next_patient(self) -> _Patient | None:
        """A conversation in an idle slot, or else in memory, that is worth it and can be kept."""
        idle = self._slots.idle()
        for slot in idle:
            resident = slot.resident
            patient = self._patient(
                slot,
                resident.ids[: resident.highest],
                resident.key_ids[: resident.highest],
                resident.namespace,
                slot.session,
                resident.taint.line,
            )
            if patient is not None:
                return patient
        for entry in self._ram.entries:
            state = entry.state
            for slot in idle if not entry.lent else ():
                patient = self._patient(
                    slot, state.ids, state.key_ids, entry.namespace, entry.session, state.taint
                )
                if patient is not None:
                    return patient
        return None

    def _patient(
        self,
        slot: Slot,
        ids: TokenIds,
        key_ids: TokenIds,
        namespace: Namespace,
        session: str | None,
        taint: int,
    ) -> _Patient | None:
        """None if nothing of it is tainted, or what it takes cannot be kept meanwhile."""
        top, clean = self._grid.floor(len(ids)), self._grid.floor(taint)
        if clean >= top or not self._has_room(slot, len(ids)):
            return None
        patient = _Patient(ids.copy(), key_ids.copy(), namespace, session, slot, top, clean)
        return None if self._key_of(patient) in self._hopeless else patient

    def _key_of(self, patient: _Patient) -> PrefixKey:
        return PromptChain(patient.key_ids, patient.namespace, self._grid).key(len(patient.ids))

    def _give_up(self, patient: _Patient) -> None:
        """It could not be healed, and is not tried again."""
        self._hopeless[self._key_of(patient)] = None
        while len(self._hopeless) > HOPELESS_MAX:
            del self._hopeless[next(iter(self._hopeless))]

    def _has_room(self, slot: Slot, tokens: int) -> bool:
        """Whether nothing has to go for it: the slot's conversation, and what is healed."""
        rows = max(tokens, slot.resident.highest) * self._ram.blocks.row_bytes
        return rows + self._ram.sections_needed(slot.resident) <= self._ram.free()

    # --- healing ----------------------------------------------------------------------------------

    def _stand(self, healing: _Healing) -> None:
        """The slot can be put at a clean line now, with all that stood there kept."""
        patient, preparation = healing.patient, healing.preparation
        source = self._kept(patient)
        if source is None:
            self._preparer.close(preparation)
            self._healing, patient.slot.warming = None, None
            self._give_up(patient)
            return
        offer, _ = self._preparer.outcome(preparation)
        self._endings.fence(patient.slot, offer.line)
        patient.slot.resident.begin(preparation.request.prompt, patient.namespace, offer)
        patient.slot.session = patient.session
        # What was brought in is in place: from here on the slot is merely taken.
        preparation.ram = preparation.restore = None
        healing.source, healing.done = source, offer.line

    def _kept(self, patient: _Patient) -> RamEntry | None:
        """The entry that keeps the conversation as it was."""
        for entry in self._ram.entries:
            same = entry.namespace == patient.namespace and entry.line >= len(patient.ids)
            if same and np.array_equal(entry.ids[: len(patient.ids)], patient.ids):
                return entry
        return None

    def _forward(self, healing: _Healing, source: RamEntry) -> None:
        slot, prompt = healing.patient.slot, healing.prompt
        span = self._grid.chunk(healing.done, len(prompt))
        self._ram.blocks.vacate(slot.index, span.start, span.end)
        try:
            self._engine.prefill(slot.index, prompt.ids[span.start : span.end])
            slot.resident.advanced(span, prompt)
        except EngineError as error:
            slot.warming, self._healing = None, None
            self._endings.fail(slot, error)
            return
        healing.done = span.end
        self.counts.tokens += len(span)
        if healing.done == len(prompt):
            self._healing, slot.warming = None, None
            self.counts.healed += 1
            if not source.lent:
                self._ram.healed(source)


def _ignored(event: Event) -> None:
    """Nobody is told of a request that is never run."""
