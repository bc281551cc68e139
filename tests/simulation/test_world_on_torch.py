"""The same kinds of clients, kills and restarts over real models, bit for bit.

A second engine of the same model never keeps anything: it repeats the forwards that a state goes
back to. Where a gate says bitwise, the state after the prefill has the bytes of a cold one there;
where it says preserved, those of the forwards that made it, one after the other, uninterrupted.
"""

import functools
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from anchorline.adapters.codec.plane_codec import PlaneCodec
from anchorline.adapters.codec.raw_codec import RawCodec
from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.stepped_jobs import SteppedJobs
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.conversations import SavePolicy
from anchorline.application.disk_service import LANES, DiskService
from anchorline.application.disk_tier import DiskLimits, DiskTier
from anchorline.application.limits import Limits
from anchorline.application.object_store import ObjectStore
from anchorline.application.request import Decision, Event, Finished, GenerationRequest
from anchorline.application.scheduler import Scheduler
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.disk_retention import Ages, Shares
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.namespace import Namespace
from anchorline.domain.prompt import Prompt
from anchorline.domain.sampling import Logits, SamplingParams
from anchorline.domain.taint_line import Gate, Writer
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.domain.write_guard import WriteGuard
from anchorline.ports.engine import DecodeInput, Engine, EngineProfile
from anchorline.ports.gpu_state import SlotState, StateCopies
from contract.readings import Reading, differences, prefill_to, read
from support import tiny_models
from support.torch_serving import SteadyEngine

GRID = 16
WINDOW = 8 * GRID
ACTIONS = 45

Past = tuple[tuple[int, bytes, Writer], ...]
"""The forwards that a state goes back to: how many tokens each, which, and of what kind."""


@functools.cache
def engines_of(architecture: str) -> tuple[SteadyEngine, SteadyEngine]:
    """The engine that serves, and the one that repeats."""
    return (
        SteadyEngine(tiny_models.tiny_model(architecture), window=WINDOW, grid=GRID),
        SteadyEngine(tiny_models.tiny_model(architecture), window=WINDOW, grid=GRID),
    )


class Followed(Engine):
    """An engine whose states are followed by their bytes, through every tier and restart."""

    def __init__(self, inner: SteadyEngine, pasts: dict[bytes, Past]) -> None:
        self._inner = inner
        self._pasts = pasts
        self.past: Past = ()

    @property
    def profile(self) -> EngineProfile:
        return self._inner.profile

    @property
    def slots(self) -> Sequence[SlotState]:
        return self._inner.slots

    @property
    def copies(self) -> StateCopies:
        return self._inner.copies

    def prefill(self, slot: int, chunk: TokenIds) -> Logits:
        self._goes_on_from(slot)
        logits = self._inner.prefill(slot, chunk)
        self._went(slot, chunk, Writer.PREFILL)
        return logits

    def decode(self, inputs: Sequence[DecodeInput]) -> Sequence[Logits]:
        (one,) = inputs
        self._goes_on_from(one.slot)
        logits = self._inner.decode(inputs)
        self._went(one.slot, token_ids([one.token]), Writer.DECODE)
        return logits

    def _goes_on_from(self, slot: int) -> None:
        state = self._inner.slots[slot]
        if state.length == 0:
            self.past = ()
            return
        key = key_of(read(state))
        assert key in self._pasts, (
            f"a forward goes on from a state at {state.length} that never was"
        )
        self.past = self._pasts[key]

    def _went(self, slot: int, ids: TokenIds, writer: Writer) -> None:
        self.past = (*self.past, (len(ids), ids.tobytes(), writer))
        self._pasts.setdefault(key_of(read(self._inner.slots[slot])), self.past)


def key_of(reading: Reading) -> bytes:
    return repr((sorted(reading.rows.items()), sorted(reading.sections.items()))).encode()


class Life:
    """One machine with a real model, by one source of randomness."""

    def __init__(self, architecture: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.engine, self.reference = engines_of(architecture)
        self.clock = ManualClock()
        self.storage = CrashableStorage()
        self.catalog = MemoryCatalog(needs_rebuild=False)
        self.pasts: dict[bytes, Past] = {}
        self.gates: Counter[Gate] = Counter()
        self.number = 0
        self.conversations = [self.words(GRID, 3 * GRID) for _ in range(2)]
        self.start()

    def words(self, low: int, high: int) -> list[int]:
        count = self.rng.randint(low, high)
        return [self.rng.randrange(3, tiny_models.VOCABULARY) for _ in range(count)]

    def start(self) -> None:
        """A new process: slots are empty, and hold no copies."""
        self.jobs = SteppedJobs(LANES, seed=self.number)
        telemetry = RecordingTelemetry()
        self.followed = Followed(self.engine, self.pasts)
        profile = self.followed.profile
        tier = DiskTier(
            ObjectStore(self.storage, RawCodec(PlaneCodec())),
            self.catalog,
            self.clock,
            telemetry,
            profile,
            fingerprint_of(profile.facts),
            DiskLimits(Shares(1 << 26, 1 << 26), Ages(), WriteGuard(1 << 40, 32 * GRID)),
            local_day=lambda: "2026-11-29",
        )
        policy = SavePolicy(
            evicted_tokens_min=GRID, lost_tokens_min=GRID, idle_tokens_min=GRID, idle_s=None
        )
        self.disk = DiskService(
            tier,
            self.jobs,
            profile,
            self.followed.slots,
            self.followed.copies,
            self.clock,
            telemetry,
            policy,
            3,
        )
        self.disk.start()
        budget = AnchorBudget(bytes_max=0, count_min=6)
        limits = Limits(queue_max=4, anchors=budget, cache_enabled=True)
        self.scheduler = Scheduler(
            self.followed, ToyTokenizer(), self.clock, telemetry, limits, self.disk
        )

    def restart(self, *, planned: bool, power: bool) -> None:
        """The process ends, and the next one may read back."""
        if planned or self.rng.random() < 0.5:
            answers: list[object] = []
            self.scheduler.flush(answers.append)
            while not answers:
                self.jobs.step()
                self.scheduler.step()
        self.scheduler.clear(ram=True, disk=False)  # the engine's copies go with the process
        chance = self.rng if self.rng.random() < 0.5 else None
        self.storage = self.storage.crash(chance) if power else self.storage.kill()
        self.catalog = self.catalog.restart()
        self.start()
        if planned:
            self.scheduler.read_back()

    def settle(self) -> None:
        """What goes on in the background comes to its end."""
        while self.disk.writes.pending:
            self.jobs.step()
            self.scheduler.step()

    def ask(self, ids: list[int]) -> None:
        """A request to its end; its state after the prefill is judged."""
        ids = ids[: WINDOW - 8]
        prompt = token_ids(ids)
        self.number += 1
        request = GenerationRequest(
            id=f"r{self.number}",
            prompt=Prompt(prompt, prompt),
            namespace=Namespace(),
            sampling=SamplingParams(temperature=self.rng.choice([0.0, 0.8]), seed=self.number),
            max_tokens=self.rng.randint(0, 7),
            stop=(),
            chat=False,
            opens_reasoning=False,
            tools=False,
            ignore_end=True,
            session=None,
            arrived_s=self.clock.monotonic(),
        )
        events: list[Event] = []
        self.scheduler.submit(request, events.append)
        leaves = self.rng.randint(0, 8) if self.rng.random() < 0.15 else None
        judged = False
        steps = 0
        while not self.scheduler.idle:
            if steps == leaves:
                self.scheduler.cancel(request.id)
                continue
            if self.rng.random() < 0.4:
                self.jobs.step()
            self.scheduler.step()
            self.clock.advance(0.001)
            steps += 1
            running = self.scheduler.slots[0].running
            if running is not None and not running.prefilling and not judged:
                judged = True
                self.judge(prompt, running.decision)
        last = events[-1]
        assert isinstance(last, Finished) or leaves is not None, last
        ids[:] = self.scheduler.slots[0].resident.ids.tolist() or ids

    def judge(self, prompt: TokenIds, decision: Decision) -> None:
        """The bytes in the slot are those that the gate promises."""
        self.gates[decision.gate] += 1
        found, state = read(self.engine.slots[0]), self.reference.slots[0]
        state.resume_at(0)
        if decision.gate is not Gate.PRESERVED:
            prefill_to(self.reference, 0, prompt)
            expected = "a cold prefill"
        else:
            for _, content, writer in self.followed.past:
                ids = token_ids(memoryview(content).cast("I").tolist())
                if writer is Writer.PREFILL:
                    self.reference.prefill(0, ids)
                else:
                    self.reference.decode([DecodeInput(0, int(ids[0]))])
            expected = "its own forwards"
        assert not differences(found, read(state)), f"told {decision.gate}: not as {expected}"

    def live(self) -> None:
        """One thing that happens."""
        which, roll = self.rng.randrange(2), self.rng.random()
        conversation = self.conversations[which]
        if roll < 0.5:
            ids = [*conversation, *self.words(1, GRID)]
        elif roll < 0.6:
            ids = [*conversation[: self.rng.randint(1, len(conversation))], *self.words(1, GRID)]
        elif roll < 0.7:
            ids = list(conversation)
        elif roll < 0.8:
            self.ask(self.words(2, GRID))
            return
        else:
            self.restart(planned=roll < 0.87, power=roll > 0.94)
            return
        if len(ids) > WINDOW - 2 * GRID:
            ids = ids[: 2 * GRID]
        self.conversations[which] = ids
        self.ask(ids)


@pytest.mark.parametrize(
    "architecture", ["qwen3_5_text", "granitemoehybrid", "falcon_h1", "lfm2", "gemma3_text"]
)
def test_a_life_with_a_real_model_meets_no_wrong_bit(architecture: str) -> None:
    life = Life(architecture, seed=11)

    for _ in range(ACTIONS):
        life.live()
    life.settle()

    assert life.gates[Gate.PRESERVED]
    assert life.gates[Gate.BITWISE]
    assert life.disk.pool.lent == 0
