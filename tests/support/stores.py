"""A server over a store that outlives it: stop, kill, cut the power, start again."""

import random
from dataclasses import dataclass, field

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.checkable_state import Parts
from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.stepped_jobs import SteppedJobs
from anchorline.application.conversations import SavePolicy
from anchorline.application.disk_service import LANES, DiskService
from anchorline.application.disk_tier import DiskLimits, DiskTier
from anchorline.application.durability import FlushReport
from anchorline.application.object_store import ObjectStore
from anchorline.domain.disk_retention import Ages, Shares
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.write_guard import WriteGuard
from support.histories import History, Known, Lineage

GRID = 8


@dataclass
class Box:
    """One machine: its store, its catalog, and the server that runs on it now."""

    slots: int = 1
    window: int = 256
    parts: Parts = Parts.HYBRID
    row_invariant: bool = False
    shares: Shares = field(default_factory=lambda: Shares(1 << 24, 1 << 24))
    guard: WriteGuard = field(default_factory=lambda: WriteGuard(1 << 40, 32 * GRID))
    evicted_tokens_min: int = 16
    seed: int = 0
    catalog: MemoryCatalog = field(default_factory=lambda: MemoryCatalog(needs_rebuild=False))
    clock: ManualClock = field(default_factory=ManualClock)
    weights: str = "one"
    known: Known = field(default_factory=dict[bytes, Lineage])

    def __post_init__(self) -> None:
        self.storage = CrashableStorage(bytes_max=self.shares.pool, quarantined_max=2)
        self.server = self._start()

    def _start(self) -> History:
        self.jobs = SteppedJobs(LANES, seed=self.seed)
        return History(
            slots=self.slots,
            window=self.window,
            grid=GRID,
            parts=self.parts,
            row_invariant=self.row_invariant,
            disk=self._disk,
            clock=self.clock,
            known=self.known,
        )

    def _disk(
        self, engine: CheckableEngine, clock: ManualClock, telemetry: RecordingTelemetry
    ) -> DiskService:
        facts = {**engine.profile.facts, "weights": self.weights}
        tier = DiskTier(
            ObjectStore(self.storage, PlainCodec()),
            self.catalog,
            clock,
            telemetry,
            engine.profile,
            fingerprint_of(facts),
            DiskLimits(self.shares, Ages(), self.guard),
            local_day=lambda: "2026-11-29",
        )
        policy = SavePolicy(
            evicted_tokens_min=self.evicted_tokens_min,
            lost_tokens_min=GRID,
            idle_tokens_min=GRID,
            idle_s=None,
        )
        service = DiskService(
            tier,
            self.jobs,
            engine.profile,
            engine.slots,
            clock,
            telemetry,
            policy,
            staging_count=3,
        )
        service.start()
        return service

    def settle(self) -> None:
        """Let everything that goes on in the background come to its end."""
        for _ in range(10_000):
            ran = self.jobs.step()
            worked = self.server.step()
            if not ran and not worked and self.disk.writes.pending == 0:
                return
        raise AssertionError("background work never ends")

    def flush(self) -> FlushReport:
        """What the admin route of that name does."""
        answers: list[FlushReport] = []
        self.server.scheduler.flush(answers.append)
        for _ in range(10_000):
            if answers:
                return answers[0]
            self.jobs.step()
            self.server.step()
        raise AssertionError("a flush never answers")

    def stop(self) -> FlushReport:
        """A planned stop, and a start that reads the conversation back."""
        self.server.scheduler.drain()
        self.server.run()
        report = self.flush()
        self.storage = self.storage.kill()
        self.catalog = self.catalog.restart()
        self.server = self._start()
        self.server.scheduler.read_back()
        return report

    def kill(self) -> None:
        """SIGKILL and a start."""
        self.storage = self.storage.kill()
        self.catalog = self.catalog.restart()
        self.server = self._start()

    def cut_power(self, chance: random.Random | None = None) -> None:
        """A power cut and a start."""
        self.storage = self.storage.crash(chance)
        self.catalog = self.catalog.restart()
        self.server = self._start()

    @property
    def disk(self) -> DiskService:
        assert self.server.disk is not None
        return self.server.disk

    @property
    def names(self) -> list[str]:
        """The objects that are stored."""
        return sorted(stored.name for stored in self.storage.names())
