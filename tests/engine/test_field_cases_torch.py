"""Faults of caches that were met in the field elsewhere, where bits matter: tiny hybrids on torch.

What a scheduler does with a slot, and with a disk behind it, is held against an engine of the same
weights that does nothing but the one conversation. The rules stand in docs/testing.md.
"""

import functools
from collections.abc import Sequence

import pytest

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
from anchorline.application.object_store import ObjectStore
from anchorline.application.request import Decision, Event, Finished
from anchorline.application.scheduler import Limits, Scheduler
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.disk_retention import Ages, Shares
from anchorline.domain.entry import Tier
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.sampling import SamplingParams
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.domain.write_guard import WriteGuard
from contract.readings import Reading, decode_all, differences, prefill_to, read, some_ids
from support import tiny_models
from support.builders import a_prompt, a_request

GRID = 16
WINDOW = 10 * GRID

hybrids = pytest.mark.parametrize(
    "architecture",
    ["qwen3_5_text", "bamba", "lfm2"],  # Gated DeltaNet, Mamba-2, short convolutions alone
)


@functools.cache
def engine_of(architecture: str, slots: int) -> TorchEngine:
    """One whose slots are the test's own from line 0 on; equal arguments give equal weights."""
    model = tiny_models.tiny_model(architecture)
    return TorchEngine(model, window=WINDOW, grid=GRID, slots=slots)


class Serving:
    """A scheduler over an engine, stepped by hand."""

    def __init__(self, engine: TorchEngine, *, disk: bool = False) -> None:
        for state in engine.slots:
            state.resume_at(0)
        self.engine = engine
        self.clock, telemetry = ManualClock(), RecordingTelemetry()
        limits = Limits(queue_max=8, anchors=AnchorBudget(bytes_max=1 << 20), cache_enabled=True)
        service = _disk(engine, self.clock, telemetry) if disk else None
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


def _disk(engine: TorchEngine, clock: ManualClock, telemetry: RecordingTelemetry) -> DiskService:
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
    jobs = SteppedJobs(LANES, seed=0)
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


def without_logits(reading: Reading) -> Reading:
    return Reading(reading.length, reading.rows, reading.sections)


@hybrids
def test_who_shares_a_prefix_and_then_parts_changes_no_bit_of_what_it_shared(
    architecture: str,
) -> None:
    serving = Serving(engine_of(architecture, 1))
    one = some_ids(5 * GRID + 5, seed=1, vocabulary=tiny_models.VOCABULARY)
    other = [*one[: 3 * GRID + 2], *some_ids(2 * GRID, seed=2, vocabulary=tiny_models.VOCABULARY)]
    serving.ask(one)

    serving.ask(other, max_tokens=5)
    decision = serving.ask(one)

    assert (decision.gate, decision.cached) == (Gate.BITWISE, 3 * GRID)
    found = read(serving.engine.slots[0])
    assert differences(found, without_logits(alone(engine_of(architecture, 1), one))) == []


@hybrids
def test_a_prefill_beside_a_generation_leaves_no_bit_of_either_other_than_alone(
    architecture: str,
) -> None:
    serving = Serving(engine_of(architecture, 2))
    prompts = [
        some_ids(length, seed=length, vocabulary=tiny_models.VOCABULARY)
        for length in (2 * GRID + 3, 5 * GRID + 1)
    ]
    serving.submit(prompts[0], max_tokens=20)
    while serving.scheduler.slots[0].resident.length < len(prompts[0]) + 2:
        serving.scheduler.step()
    serving.submit(prompts[1], max_tokens=4)
    serving.run()

    for slot, prompt in enumerate(prompts):
        held = serving.held(slot)
        found = read(serving.engine.slots[slot])
        expected = alone(engine_of(architecture, 1), prompt, held[len(prompt) :])
        assert differences(found, without_logits(expected)) == []


@hybrids
@pytest.mark.parametrize("chunks", [1, 3])
def test_a_retry_after_a_client_has_left_equals_a_cold_run_bit_for_bit(
    architecture: str, chunks: int
) -> None:
    serving = Serving(engine_of(architecture, 1))
    prompt = some_ids(4 * GRID + 5, seed=3, vocabulary=tiny_models.VOCABULARY)
    request = serving.submit(prompt, max_tokens=3)
    while serving.scheduler.slots[0].resident.length < chunks * GRID:
        serving.scheduler.step()
    serving.scheduler.cancel(request)
    serving.run()

    decision = serving.ask(prompt)

    assert (decision.gate, decision.cached) == (Gate.BITWISE, chunks * GRID)
    found = read(serving.engine.slots[0])
    assert differences(found, without_logits(alone(engine_of(architecture, 1), prompt))) == []


@hybrids
def test_a_conversation_that_comes_back_from_the_disk_goes_on_bit_for_bit(
    architecture: str,
) -> None:
    serving = Serving(engine_of(architecture, 1), disk=True)
    prompt = some_ids(3 * GRID + 5, seed=4, vocabulary=tiny_models.VOCABULARY)
    serving.ask(prompt, max_tokens=6)
    held = serving.held(0)
    question = some_ids(GRID, seed=5, vocabulary=tiny_models.VOCABULARY)
    for seed in (6, 7):  # they take the slot
        other = some_ids(4 * GRID, seed=seed, vocabulary=tiny_models.VOCABULARY)
        serving.ask(other, max_tokens=2)

    decision = serving.ask([*held, *question])

    told = (decision.tier, decision.gate, decision.cached)
    assert told == (Tier.DISK, Gate.PRESERVED, len(held))
    found = read(serving.engine.slots[0])
    expected = alone(engine_of(architecture, 1), prompt, held[len(prompt) :], question)
    assert differences(found, without_logits(expected)) == []


@hybrids
def test_two_prompts_with_one_head_and_room_for_one_never_answer_for_each_other(
    architecture: str,
) -> None:
    head = some_ids(2 * GRID, seed=8, vocabulary=tiny_models.VOCABULARY)
    prompts = [
        [*head, *some_ids(7, seed=seed, vocabulary=tiny_models.VOCABULARY)] for seed in (9, 10)
    ]
    serving = Serving(engine_of(architecture, 1), disk=True)

    def answer(prompt: list[int]) -> tuple[list[int], int]:
        decision = serving.ask(prompt, max_tokens=8)
        return serving.held(0)[len(prompt) :].tolist(), decision.cached

    first = [answer(prompt) for prompt in prompts]
    again = [answer(prompt) for prompt in prompts]

    assert [tokens for tokens, _ in again] == [tokens for tokens, _ in first]
    assert first[0][0] != first[1][0]
    assert all(cached >= 2 * GRID for _, cached in again)
