"""A scheduler over the checkable engine, with what it takes to judge every state it reaches."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from ..adapters.memory.checkable_state import Parts
from ..adapters.memory.manual_clock import ManualClock
from ..adapters.memory.recording_telemetry import RecordingTelemetry
from ..adapters.memory.toy_tokenizer import ToyTokenizer
from ..application.disk_service import DiskService
from ..application.limits import Limits
from ..application.memory_pools import MemoryPools
from ..application.memory_setup import manage_caches
from ..application.request import (
    Decision,
    Event,
    Failed,
    Finished,
    GenerationRequest,
    Written,
)
from ..application.scheduler import Scheduler
from ..application.slots import Slot
from ..domain.anchor_budget import AnchorBudget
from ..domain.conversation import PieceKind
from ..domain.entry import Tier
from ..domain.grid import Span
from ..domain.namespace import Namespace
from ..domain.prompt import Prompt
from ..domain.sampling import SamplingParams
from ..domain.taint_line import Gate, Writer
from ..domain.tokens import TokenIds, token_ids
from .copies_held import check_copies
from .host_memory import HostMemory, pools_of
from .kept_states import KeptStates
from .memory_watch import MemoryWatch
from .oracle import Node, Oracle, Realm
from .violation import violated
from .watched_engine import WatchedEngine

DiskFactory: TypeAlias = Callable[
    [WatchedEngine, ManualClock, RecordingTelemetry], DiskService | None
]

STEPS_MAX: Final = 100_000
"""Of the scheduler, until whatever waits has been answered."""

GIVES_BACK: Final = 0.3
"""How often memory gives back for no reason that its pool knows."""

OTHERS_LEAVE: Final = (1 << 30, 1 << 30, 1 << 14, 3 << 12, 1 << 13, 1 << 12, 0)
"""Bytes of the host's memory, as far as there are so many."""

STEP_S: Final = 0.001
"""What each step of the scheduler takes, where nobody says otherwise."""


class History:
    """Runs requests and checks, at every forward and after every step, what must hold there.

    Attributes:
        oracle: outlives the process: what was left on a medium is known after a restart.
        started: decisions by request, in the order in which prefills began.
        read: prompt tokens forwarded, by request.
        sequences: what stood in its slot when a request ended.
    """

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
        disk: DiskFactory | None = None,
        clock: ManualClock | None = None,
        oracle: Oracle | None = None,
        weights: str = "one",
        lanes_place: bool = False,
        ram_bytes_max: int = 0,
        step_s: float = STEP_S,
        host_bytes: int = 0,
        heal_idle_s: float | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.telemetry = RecordingTelemetry()
        self.oracle = oracle or Oracle(parts, row_invariant=row_invariant)
        self._weights = weights
        self._step_s = step_s
        self.engine = WatchedEngine(
            self.oracle,
            self,
            slots=slots,
            window=window,
            grid=grid,
            vocabulary=vocabulary,
            parts=parts,
            row_invariant=row_invariant,
            workspace=host_bytes > 0,
        )
        for state in self.engine.slots:
            state.lanes_place = lanes_place or state.lanes_place
        self.anchors = anchors or AnchorBudget(bytes_max=0, count_min=6)
        self.tokenizer = ToyTokenizer()
        self.disk = None if disk is None else disk(self.engine, self.clock, self.telemetry)
        self.host = HostMemory(self.engine.copies, host_bytes) if host_bytes else None
        pools = self.host and pools_of(
            self.host, self.engine, self.telemetry, self.anchors, ram_bytes_max
        )
        self.scheduler = Scheduler(
            self.engine,
            self.tokenizer,
            self.clock,
            self.telemetry,
            Limits(
                queue_max=queue_max,
                anchors=self.anchors,
                cache_enabled=cache_enabled,
                ram_bytes_max=ram_bytes_max or None,
                heal_idle_s=heal_idle_s,
            ),
            self.disk,
            pools=pools,
        )
        if pools is not None:
            manage_caches(pools, self.engine, self.scheduler)
        self._memory = self._watch_memory(weights, pools)
        self.events: dict[str, list[Event]] = {}
        self.requests: dict[str, GenerationRequest] = {}
        self._open: set[str] = set()
        self.sequences: dict[str, TokenIds] = {}
        self.started: dict[str, Decision] = {}
        self.read: Counter[str] = Counter()
        self._held: list[Namespace | None] = [None] * slots

    # --- asking -----------------------------------------------------------------------------------

    def submit(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int = 4,
        salt: str = "",
        adapter: str = "",
        sampling: SamplingParams | None = None,
        stop: tuple[str, ...] = (),
        last_user: int = 0,
        first_answer: int | None = None,
        session: str | None = None,
    ) -> str:
        """Queue a prompt of ids; the request's id.

        Raises:
            QueueFull, Draining: as the scheduler says.
        """
        request = self.request(
            ids,
            max_tokens=max_tokens,
            salt=salt,
            adapter=adapter,
            sampling=sampling,
            stop=stop,
            last_user=last_user,
            first_answer=first_answer,
            session=session,
        )
        self.requests[request.id] = request
        self._open.add(request.id)
        events = self.events.setdefault(request.id, [])
        self.scheduler.submit(request, events.append)
        return request.id

    def request(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int = 4,
        salt: str = "",
        adapter: str = "",
        sampling: SamplingParams | None = None,
        stop: tuple[str, ...] = (),
        last_user: int = 0,
        first_answer: int | None = None,
        session: str | None = None,
    ) -> GenerationRequest:
        """The one that `submit` of the same would queue next."""
        prompt_ids = token_ids(list(ids))
        return GenerationRequest(
            id=f"r{len(self.requests)}",
            prompt=Prompt(prompt_ids, prompt_ids, last_user=last_user, first_answer=first_answer),
            namespace=Namespace(salt=salt, adapter=adapter),
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

    def step(self) -> bool:
        """One step of the scheduler, and all checks."""
        before = self._running()
        if self._memory is not None:
            self._memory.about_to_step()
        worked = self.scheduler.step()
        self.clock.advance(self._step_s)
        now = self._running()
        check_copies(self.engine, self.scheduler, self.spare_copies())
        for slot in self.scheduler.slots:
            self._check_bounds(slot)
            self._held[slot.index] = slot.resident.namespace if slot.resident.length else None
            # Every forward is judged where it happens: what stands idle can wait until all is.
            if not now and (before or not worked):
                self.check(slot)
        for request_id, slot in before.items():
            if slot.running is None and self.finished(request_id) is not None:
                self.sequences[request_id] = slot.resident.ids.copy()
        self._note_ends()
        if self._memory is not None:
            self._memory.stepped()
            if not now and (before or not worked):
                self._memory.check()
        return worked

    def cancel(self, request_id: str) -> None:
        """The client leaves."""
        answered = self.ended(request_id)
        self.scheduler.cancel(request_id)
        self._note_ends()
        if not self.ended(request_id):
            violated("progress", f"{request_id} was cancelled, and its client is not told")
        for slot in self.scheduler.slots:
            at_work = slot.running or slot.preparing
            if at_work is not None and at_work.request.id == request_id:
                violated("progress", f"{request_id} was cancelled, and goes on")
        finished = self.finished(request_id)
        if finished is not None and not answered and request_id not in self.started:
            # It was placed, and begun, without a single forward.
            self._count(self.requests[request_id], finished.decision)

    def run(self) -> None:
        """Step until nothing waits or runs."""
        for _ in range(STEPS_MAX):
            if self.scheduler.idle:
                return
            self.step()
        violated("progress", f"a request waits after {STEPS_MAX} steps")

    def ask(self, ids: Sequence[int], **how: object) -> Finished:
        """Submit and run to the end."""
        request_id = self.submit(ids, **how)  # type: ignore[arg-type]
        self.run()
        finished = self.finished(request_id)
        assert finished is not None, self.events[request_id]
        return finished

    def ends(self) -> None:
        """The process ends: what has begun without a forward has begun all the same."""
        for slot in self.scheduler.slots:
            if slot.running is not None and slot.running.request.id not in self.started:
                self._count(slot.running.request, slot.running.decision)

    def give_memory_back(self, rng: random.Random) -> None:
        """Others need memory, or leave some; nothing happens if nothing is kept in it."""
        if self._memory is None:
            return
        if self.host is None or rng.random() < GIVES_BACK:
            self._memory.give_back(rng.randint(1, 1 << 13))
        else:
            self.host.leave(rng.choice(OTHERS_LEAVE))
            self._memory.squeeze()

    @property
    def given_back(self) -> int:
        """How often something was given up, and told, for want of memory."""
        return 0 if self._memory is None else self._memory.given_back

    # --- what came of it --------------------------------------------------------------------------

    def finished(self, request_id: str) -> Finished | None:
        """The last event, if the request has ended as it should."""
        last = self.events[request_id][-1] if self.events[request_id] else None
        return last if isinstance(last, Finished) else None

    def failed(self, request_id: str) -> Failed | None:
        """The last event, if the request has failed."""
        last = self.events[request_id][-1] if self.events[request_id] else None
        return last if isinstance(last, Failed) else None

    def ended(self, request_id: str) -> bool:
        """Whether the client has been told how it ended; no more than once.

        Raises:
            Violation: it was told more than that.
        """
        last = [one for one in self.events[request_id] if isinstance(one, Finished | Failed)]
        if len(last) > 1 or (last and self.events[request_id][-1] is not last[0]):
            violated("progress", f"{request_id} goes on after its last event")
        return bool(last)

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
        self._check_bounds(slot)
        resident, state = slot.resident, self.engine.slots[slot.index]
        if resident.length and slot.preparing is None and state.length == resident.length:
            self._check_tokens(slot, self.engine.node_of(slot.index, self._realm(slot)))

    def _note_ends(self) -> None:
        """What a generation leaves is what there is to keep of its end."""
        for request_id in [one for one in self._open if self.ended(one)]:
            self._open.discard(request_id)
            finished = self.finished(request_id)
            if finished is not None:
                resident = self.scheduler.slots[finished.decision.slot].resident
                if resident.end is not None and resident.end.line == resident.length:
                    self.oracle.ended(resident.namespace, resident.ids, resident.end)

    def _watch_memory(self, weights: str, pools: MemoryPools | None) -> MemoryWatch | None:
        """Of the tier in memory, if there is one."""
        if self.scheduler.ram is None:
            return None
        kept = KeptStates(self.engine, self.oracle, weights)
        return MemoryWatch(self.scheduler, self.engine, kept, self.clock, self.telemetry, pools)

    def _check_bounds(self, slot: Slot) -> None:
        """The slot's anchors are as many as may be, each over its rows."""
        resident = slot.resident
        anchors, end = resident.anchors, resident.end
        if resident.kept > resident.capacity:
            violated("budget", f"{resident.kept} anchors where {resident.capacity} may stand")
        lines = [anchor.line for anchor in anchors]
        if lines != sorted(set(lines)) or (lines and lines[-1] > resident.length):
            violated("state", f"anchors {lines} over {resident.length} rows")
        if end is not None and end.line > resident.length:
            violated("state", f"an end at {end.line} over {resident.length} rows")

    def spare_copies(self) -> int:
        """Copies of sections in slots that no request gets, at most."""
        return 0

    def about_to_forward(self, slot: int, span: Span, ids: TokenIds, writer: Writer) -> Realm:
        """Take a forward's start: it must be of the request that runs there."""
        running = self.scheduler.slots[slot].running
        healed = self.scheduler.slots[slot].warming
        if running is None and healed is not None:
            return Realm(self._weights, healed.request.namespace)
        if running is None:
            violated("state", f"a forward in slot {slot}, where nothing runs")
        request = running.request
        if writer is Writer.PREFILL and not (
            span.end <= len(request.prompt)
            and bytes(request.prompt.ids[span.start : span.end]) == bytes(ids)
        ):
            violated("state", f"tokens that are not the prompt's are forwarded at {span.start}")
        if request.id not in self.started:
            self._began(slot, request, running.decision, span.start)
        return Realm(self._weights, request.namespace)

    def forwarded(self, slot: int, node: Node, writer: Writer) -> None:
        """Judge a prefill that has come to its end: the gate that was told must be true."""
        running = self.scheduler.slots[slot].running
        if running is None:
            return  # it is healed: what resumes from it is judged
        prompt, decision = running.request.prompt, running.decision
        if writer is Writer.PREFILL:
            parent = node.parent.line if node.parent else 0
            self.read[running.request.id] += node.line - parent
        if writer is Writer.PREFILL and node.line == len(prompt):
            self._judge(node, prompt.ids, decision)

    def _began(self, slot: int, request: GenerationRequest, decision: Decision, start: int) -> None:
        """A request's first forward: what was told of its start is true."""
        self._count(request, decision)
        if decision.cached + decision.reread != len(request.prompt):
            violated("sum", f"{decision} of a prompt of {len(request.prompt)}")
        if decision.cached != start:
            violated("sum", f"told {decision.cached} cached, and the prefill starts at {start}")
        if (decision.gate is Gate.COLD) != (start == 0):
            violated("gate", f"told {decision.gate.value} at line {start}")
        before = self._held[slot]
        if decision.tier is Tier.SLOT and before not in (None, request.namespace):
            violated("namespace", f"state crossed from {before} to {request.namespace}")

    def _count(self, request: GenerationRequest, decision: Decision) -> None:
        """A prefill has begun, and has all its prompt above the line to forward."""
        self.started[request.id] = decision
        self.oracle.begun_cold(
            request.namespace, request.prompt.ids, self.engine.profile.grid, decision.cached
        )

    def _judge(self, node: Node, prompt: TokenIds, decision: Decision) -> None:
        profile = self.engine.profile
        cold = self.oracle.cold(node.realm, prompt, profile.grid)
        if node.tokens != cold.tokens:
            violated("state", "the state is of other tokens than the prompt's")
        if decision.gate is not Gate.PRESERVED and node.key != cold.key:
            violated("gate", f"told {decision.gate.value}, and is not equal to a cold prefill")
        if decision.gate is Gate.PRESERVED and profile.row_invariant:
            violated("gate", "told preserved, where every row is any cold prefill's")

    def _check_tokens(self, slot: Slot, node: Node) -> None:
        """The state in place is the state of the tokens the cache believes it to be of."""
        if node.tokens != self.oracle.hashed(slot.resident.ids):
            violated("state", f"slot {slot.index} holds the state of other tokens than it says")

    def _realm(self, slot: Slot) -> Realm:
        return Realm(self._weights, slot.resident.namespace)

    def _running(self) -> dict[str, Slot]:
        return {slot.running.request.id: slot for slot in self.scheduler.slots if slot.running}
