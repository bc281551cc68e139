"""A scheduler over the checkable engine, with what it takes to judge every state it reaches."""

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from anchorline.adapters.memory.checkable_engine import (
    CheckableEngine,
    Forward,
    cold_state,
    exported,
)
from anchorline.adapters.memory.checkable_state import Parts, expected_prefix_hash
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.disk_service import DiskService
from anchorline.application.request import Event, Failed, Finished, GenerationRequest, Written
from anchorline.application.scheduler import Limits, Scheduler
from anchorline.application.slots import Slot
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.conversation import PieceKind
from anchorline.domain.entry import Tier
from anchorline.domain.namespace import Namespace
from anchorline.domain.prompt import Prompt
from anchorline.domain.sampling import SamplingParams
from anchorline.domain.taint_line import Gate, Writer
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.ports.engine import DecodeInput

Lineage: TypeAlias = list[tuple[int, int, Writer]]
"""The forwards that a state goes back to: their spans and kinds, in order."""

Known: TypeAlias = dict[bytes, Lineage]
"""Every state that a forward ever left, by the digest of its bytes."""

DiskFactory: TypeAlias = Callable[[CheckableEngine, ManualClock, RecordingTelemetry], DiskService]


class History:
    """Runs requests and checks, after every step, what no step may break."""

    def __init__(
        self,
        *,
        slots: int = 1,
        window: int = 256,
        grid: int = 8,
        vocabulary: int = 97,
        anchors: AnchorBudget | None = None,
        parts: Parts = Parts.HYBRID,
        row_invariant: bool = False,
        cache_enabled: bool = True,
        queue_max: int = 64,
        disk: "DiskFactory | None" = None,
        clock: ManualClock | None = None,
        known: "Known | None" = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.telemetry = RecordingTelemetry()
        self.parts = parts
        self.engine = CheckableEngine(
            slots=slots,
            window=window,
            grid=grid,
            vocabulary=vocabulary,
            parts=parts,
            row_invariant=row_invariant,
            on_forward=self._note,
        )
        self.anchors = anchors or AnchorBudget(bytes_max=0, count_min=6)
        self.tokenizer = ToyTokenizer()
        self.disk = None if disk is None else disk(self.engine, self.clock, self.telemetry)
        self.scheduler = Scheduler(
            self.engine,
            self.tokenizer,
            self.clock,
            self.telemetry,
            Limits(queue_max=queue_max, anchors=self.anchors, cache_enabled=cache_enabled),
            self.disk,
        )
        self.events: dict[str, list[Event]] = {}
        self.requests: dict[str, GenerationRequest] = {}
        self.sequences: dict[str, TokenIds] = {}
        self._known: Known = {} if known is None else known
        self._lineages: list[Lineage] = [[] for _ in range(slots)]
        self._judged: set[str] = set()
        self._salts: dict[int, str] = {}
        self._started: set[str] = set()

    # --- asking -----------------------------------------------------------------------------------

    def submit(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int = 4,
        salt: str = "",
        sampling: SamplingParams | None = None,
        stop: tuple[str, ...] = (),
        last_user: int = 0,
        session: str | None = None,
    ) -> str:
        """Queue a prompt of ids; the request's id."""
        prompt_ids = token_ids(list(ids))
        request = GenerationRequest(
            id=f"r{len(self.requests)}",
            prompt=Prompt(prompt_ids, prompt_ids, last_user=last_user),
            namespace=Namespace(salt=salt),
            sampling=sampling or SamplingParams(),
            max_tokens=min(max_tokens, self.engine.profile.window - len(prompt_ids)),
            stop=stop,
            chat=False,
            opens_reasoning=False,
            tools=False,
            ignore_end=True,
            session=session,
            arrived_s=self.clock.monotonic(),
        )
        self.requests[request.id] = request
        events = self.events.setdefault(request.id, [])
        self.scheduler.submit(request, events.append)
        return request.id

    def step(self) -> bool:
        """One step of the scheduler, and all checks."""
        before = self._running()
        worked = self.scheduler.step()
        self.clock.advance(0.001)
        self._check_salts()
        for slot in self.scheduler.slots:
            self.check(slot)
        for request_id, slot in before.items():
            ended = self.finished(request_id)
            if ended is not None:
                self.sequences[request_id] = slot.resident.ids.copy()
        return worked

    def run(self) -> None:
        """Step until nothing waits or runs."""
        steps = 0
        while not self.scheduler.idle:
            self.step()
            steps += 1
            assert steps < 100_000, "a request waits for ever"

    def ask(self, ids: Sequence[int], **how: object) -> Finished:
        """Submit and run to the end."""
        request_id = self.submit(ids, **how)  # type: ignore[arg-type]
        self.run()
        finished = self.finished(request_id)
        assert finished is not None, self.events[request_id]
        return finished

    # --- what came of it --------------------------------------------------------------------------

    def finished(self, request_id: str) -> Finished | None:
        """The last event, if the request has ended as it should."""
        last = self.events[request_id][-1] if self.events[request_id] else None
        return last if isinstance(last, Finished) else None

    def failed(self, request_id: str) -> Failed | None:
        """The last event, if the request has failed."""
        last = self.events[request_id][-1] if self.events[request_id] else None
        return last if isinstance(last, Failed) else None

    def text(self, request_id: str) -> str:
        """The content a request has written."""
        return "".join(
            piece.text
            for event in self.events[request_id]
            if isinstance(event, Written)
            for piece in event.pieces
            if piece.kind is PieceKind.CONTENT
        )

    # --- the checks -------------------------------------------------------------------------------

    def check(self, slot: Slot) -> None:
        """Everything that must hold of a slot between two steps."""
        resident, state = slot.resident, self.engine.slots[slot.index]
        assert resident.kept <= resident.capacity, "the anchor budget is exceeded"
        live, _ = state.captured()
        assert live <= resident.kept + 1, "copies of sections leak"
        lines = [anchor.line for anchor in resident.anchors]
        assert lines == sorted(set(lines))
        assert all(line <= resident.length for line in lines), "an anchor without its rows"
        assert resident.end is None or resident.end.line <= resident.length
        if resident.length and slot.idle and state.length == resident.length:
            self._check_tokens(slot)
            lineage = [past for past in self._lineages[slot.index] if past[1] <= state.length]
            if lineage and lineage[-1][1] == state.length:
                self._known.setdefault(self._digest(slot.index), lineage)
        running = slot.running
        if running and not running.prefilling and running.request.id not in self._judged:
            self._judged.add(running.request.id)
            self._judge(slot)

    def _check_salts(self) -> None:
        """Nothing is resumed from state that was made under another salt."""
        for started in self.scheduler.stats().last:
            if started.id in self._started:
                continue
            self._started.add(started.id)
            salt = self.requests[started.id].namespace.salt
            before = self._salts.get(started.decision.slot)
            if started.decision.tier is Tier.SLOT and before is not None:
                assert salt == before, "state crossed from one salt to another"
            self._salts[started.decision.slot] = salt

    def _check_tokens(self, slot: Slot) -> None:
        """The state in place is the state of the tokens the cache believes it to be of."""
        state, ids = exported(self.engine.slots[slot.index]), slot.resident.ids
        if state.sections:
            held = int(np.frombuffer(state.sections["tokens"], np.uint64)[0])
            assert held == expected_prefix_hash(ids), "the sections are of other tokens"
        if state.rows and len(ids):
            last = int(np.frombuffer(state.rows["prefix"], np.uint64)[-1])
            assert last == expected_prefix_hash(ids), "the rows are of other tokens"

    def _judge(self, slot: Slot) -> None:
        """A prefill has just ended: the gate that was told must be true."""
        running = slot.running
        assert running is not None
        prompt, decision = running.request.prompt.ids, running.decision
        assert decision.cached + decision.reread == len(prompt)
        self._check_tokens(slot)
        state = exported(self.engine.slots[slot.index])
        assert state == self._uninterrupted(slot), "the state is not that of its own history"
        if decision.gate is not Gate.PRESERVED:
            profile = self.engine.profile
            cold = cold_state(
                prompt,
                profile.grid.step,
                parts=self.parts,
                row_invariant=profile.row_invariant,
            )
            assert state == cold, f"told {decision.gate}, and is not equal to a cold prefill"

    def _uninterrupted(self, slot: Slot) -> object:
        """The same forwards on a fresh engine that never left."""
        profile = self.engine.profile
        other = CheckableEngine(
            window=profile.window,
            grid=profile.grid.step,
            vocabulary=profile.vocabulary,
            parts=self.parts,
            row_invariant=profile.row_invariant,
        )
        ids = slot.resident.ids
        for start, end, writer in self._lineages[slot.index]:
            if writer is Writer.PREFILL:
                other.prefill(0, ids[start:end])
            else:
                other.decode([DecodeInput(0, int(ids[start]))])
        return exported(other.slots[0])

    def _note(self, forward: Forward) -> None:
        """Follow which forwards the state in a slot goes back to, through every tier."""
        lineage = self._lineages[forward.slot]
        start = forward.span.start
        if start:
            digest = self._digest(forward.slot)
            lineage[:] = self._known.get(digest, [past for past in lineage if past[1] <= start])
            reached = lineage[-1][1] if lineage else 0
            assert reached == start, "a forward starts from a state that never was"
            self._known[digest] = list(lineage)
        else:
            lineage.clear()
        lineage.append((start, forward.span.end, forward.writer))

    def _digest(self, slot: int) -> bytes:
        state = exported(self.engine.slots[slot])
        parts = (*sorted(state.rows.items()), *sorted(state.sections.items()))
        return hashlib.sha256(repr(parts).encode()).digest()

    def _running(self) -> dict[str, Slot]:
        return {slot.running.request.id: slot for slot in self.scheduler.slots if slot.running}
