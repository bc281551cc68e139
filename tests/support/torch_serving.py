"""A scheduler over the torch engine, stepped by hand: tiny models, an in-memory disk, memory."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Final

from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.stepped_jobs import SteppedJobs
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.conversations import SavePolicy
from anchorline.application.disk_service import LANES, DiskService
from anchorline.application.disk_tier import DiskLimits, DiskTier
from anchorline.application.limits import Limits
from anchorline.application.object_store import ObjectStore
from anchorline.application.request import Decision, Event, Finished
from anchorline.application.scheduler import Scheduler
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.disk_retention import Ages, Shares
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.sampling import SamplingParams
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.domain.write_guard import WriteGuard
from anchorline.ports.engine import EngineProfile
from contract.readings import Reading, decode_all, prefill_to, read
from support import tiny_models
from support.builders import a_prompt, a_request

GRID: Final = 16
WINDOW: Final = 10 * GRID
TOKENS_PER_S: Final = 1000.0
HYBRIDS: Final = ("qwen3_5_text", "bamba", "lfm2")
"""Gated DeltaNet, Mamba-2, short convolutions alone."""


class SteadyEngine(TorchEngine):
    """Says of any machine that it is as fast as a slow one.

    Restores take the time of a clock that is moved by hand: beside a rate that was measured, what
    is chosen would be this machine's affair.
    """

    @property
    def profile(self) -> EngineProfile:
        return dataclasses.replace(super().profile, prefill_tokens_per_s=TOKENS_PER_S)


@functools.cache
def engine_of(architecture: str, slots: int, window: int = WINDOW) -> SteadyEngine:
    """One whose slots are the test's own from line 0 on; equal arguments give equal weights."""
    model = tiny_models.tiny_model(architecture)
    return SteadyEngine(model, window=window, grid=GRID, slots=slots)


class Serving:
    """A scheduler over an engine, stepped by hand."""

    def __init__(
        self,
        engine: TorchEngine,
        *,
        disk: bool = False,
        ram_bytes_max: int = 0,
        heal_idle_s: float | None = None,
    ) -> None:
        for state in engine.slots:
            state.resume_at(0)
        self.engine = engine
        self.clock, telemetry = ManualClock(), RecordingTelemetry()
        limits = Limits(
            queue_max=8,
            anchors=AnchorBudget(bytes_max=1 << 20),
            cache_enabled=True,
            ram_bytes_max=ram_bytes_max,
            heal_idle_s=heal_idle_s,
        )
        self.jobs = SteppedJobs(LANES, seed=0)
        service = _disk(engine, self.clock, telemetry, self.jobs) if disk else None
        self.scheduler = Scheduler(engine, ToyTokenizer(), self.clock, telemetry, limits, service)
        self.events: dict[str, list[Event]] = {}

    def submit(self, ids: Sequence[int] | TokenIds, max_tokens: int) -> str:
        request = a_request(
            a_prompt(ids),
            id=str(len(self.events)),
            sampling=SamplingParams(temperature=0.0),
            max_tokens=max_tokens,
            arrived_s=self.clock.monotonic(),
        )
        self.scheduler.submit(request, self.events.setdefault(request.id, []).append)
        return request.id

    def run(self) -> None:
        """Until there is nothing to do any more."""
        while self.scheduler.step():
            self.clock.advance(0.001)

    def ask(self, ids: Sequence[int] | TokenIds, max_tokens: int = 0) -> Decision:
        request = self.submit(ids, max_tokens)
        self.run()
        return self.decision(request)

    def decision(self, request: str) -> Decision:
        last = self.events[request][-1]
        assert isinstance(last, Finished), last
        return last.decision

    def held(self, slot: int) -> TokenIds:
        return self.scheduler.slots[slot].resident.ids.copy()


def _disk(
    engine: TorchEngine, clock: ManualClock, telemetry: RecordingTelemetry, jobs: SteppedJobs
) -> DiskService:
    profile, shares = engine.profile, Shares(1 << 24, 1 << 24)
    tier = DiskTier(
        ObjectStore(CrashableStorage(bytes_max=shares.pool), PlainCodec()),
        MemoryCatalog(needs_rebuild=False),
        clock,
        telemetry,
        profile,
        fingerprint_of(profile.facts),
        DiskLimits(shares, Ages(), WriteGuard(1 << 40, GRID)),
        local_day=lambda: "2026-11-29",
    )
    policy = SavePolicy(GRID, GRID, GRID, None)
    service = DiskService(
        tier,
        jobs,
        profile,
        engine.slots,
        engine.copies,
        clock,
        telemetry,
        policy,
        staging_count=3,
    )
    service.start()
    return service


def alone(engine: TorchEngine, prompt: TokenIds, *rest: TokenIds) -> Reading:
    """A prompt's prefill, then in turn: tokens that are decoded, and tokens that are prefilled."""
    state = engine.slots[0]
    state.resume_at(0)
    sequence = list(prompt)
    logits = prefill_to(engine, 0, prompt)
    for number, tokens in enumerate(rest):
        sequence += list(tokens)
        if number % 2:
            logits = prefill_to(engine, 0, token_ids(sequence))
        else:
            logits = decode_all(engine, 0, tokens)
    return read(state, logits)
