"""A server over a store that outlives it: stop, kill, cut the power, start again."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from ..adapters.codec.plane_codec import PlaneCodec
from ..adapters.codec.raw_codec import RawCodec
from ..adapters.memory.checkable_state import Parts
from ..adapters.memory.crashable_storage import CrashableStorage
from ..adapters.memory.manual_clock import ManualClock
from ..adapters.memory.memory_catalog import MemoryCatalog
from ..adapters.memory.recording_telemetry import RecordingTelemetry
from ..adapters.memory.stepped_jobs import SteppedJobs
from ..application.conversations import SavePolicy
from ..application.disk_service import LANES, DiskService
from ..application.disk_tier import DiskLimits
from ..application.durability import FlushReport
from ..application.object_store import ObjectStore
from ..application.rebuild import rebuild
from ..domain.anchor_budget import AnchorBudget
from ..domain.disk_retention import Ages, Shares
from ..domain.errors import StorageError
from ..domain.fingerprint import fingerprint_of
from ..domain.write_guard import WriteGuard
from ..ports.block_storage import BlockStorage
from ..ports.catalog import Catalog
from ..ports.codec import Codec
from .history import STEP_S, History
from .oracle import Oracle
from .violation import violated
from .watched_engine import WatchedEngine
from .watched_tier import WatchedTier

GRID: Final = 8
QUARANTINED_MAX: Final = 2
SETTLE_STEPS_MAX: Final = 10_000


@dataclass
class Box:
    """One machine: its store, its catalog, and the server that runs on it now.

    Attributes:
        medium: what stands between the server and its store; by default nothing.
        index: the same for the catalog.
        tolerant: a start whose medium fails serves without a tier, as the real one does.
        server: the process that runs now.
        lives: how many processes there were.
    """

    slots: int = 1
    window: int = 256
    grid: int = GRID
    parts: Parts = Parts.HYBRID
    row_invariant: bool = False
    anchors: AnchorBudget | None = None
    queue_max: int = 64
    cache_enabled: bool = True
    shares: Shares = field(default_factory=lambda: Shares(1 << 24, 1 << 24))
    ages: Ages = field(default_factory=Ages)
    guard: WriteGuard = field(default_factory=lambda: WriteGuard(1 << 40, 32 * GRID))
    evicted_tokens_min: int = 16
    idle_s: float | None = None
    staging_count: int = 3
    seed: int = 0
    catalog: MemoryCatalog = field(default_factory=lambda: MemoryCatalog(needs_rebuild=False))
    clock: ManualClock = field(default_factory=ManualClock)
    weights: str = "one"
    codec: Codec = field(default_factory=lambda: RawCodec(PlaneCodec()))
    medium: Callable[[CrashableStorage], BlockStorage] = lambda storage: storage
    index: Callable[[MemoryCatalog], Catalog] = lambda catalog: catalog
    tolerant: bool = False
    disk_enabled: bool = True
    lanes_place: bool = False
    quarantined_max: int = QUARANTINED_MAX
    ram_bytes_max: int = 0
    step_s: float = STEP_S
    host_bytes: int = 0
    heal_idle_s: float | None = None

    def __post_init__(self) -> None:
        self.storage = self._new_storage()
        self.oracle = Oracle(self.parts, row_invariant=self.row_invariant)
        self.lives = 0
        self.server = self.start()

    # --- the process ------------------------------------------------------------------------------

    def start(self) -> History:
        """A new process over what the store and the catalog hold."""
        self.lives += 1
        self.jobs = SteppedJobs(LANES, seed=self.seed + self.lives - 1)
        return History(
            slots=self.slots,
            window=self.window,
            grid=self.grid,
            anchors=self.anchors,
            parts=self.parts,
            row_invariant=self.row_invariant,
            cache_enabled=self.cache_enabled,
            queue_max=self.queue_max,
            disk=self._disk if self.disk_enabled else None,
            clock=self.clock,
            oracle=self.oracle,
            weights=self.weights,
            lanes_place=self.lanes_place,
            ram_bytes_max=self.ram_bytes_max,
            step_s=self.step_s,
            host_bytes=self.host_bytes,
            heal_idle_s=self.heal_idle_s,
        )

    def _disk(
        self, engine: WatchedEngine, clock: ManualClock, telemetry: RecordingTelemetry
    ) -> DiskService | None:
        try:
            return self._opened(engine, clock, telemetry)
        except StorageError:
            if self.tolerant:
                return None
            raise

    def _opened(
        self, engine: WatchedEngine, clock: ManualClock, telemetry: RecordingTelemetry
    ) -> DiskService:
        store, catalog = (
            ObjectStore(self.medium(self.storage), self.codec),
            self.index(self.catalog),
        )
        if catalog.needs_rebuild:
            mark = catalog.age_mark()
            rebuild(store, catalog, 0.0 if mark is None else mark.age_s)
        tier = WatchedTier(
            store,
            catalog,
            clock,
            telemetry,
            engine.profile,
            fingerprint_of(self.facts(engine)),
            DiskLimits(self.shares, self.ages, self.guard),
            local_day=self.local_day,
        )
        policy = SavePolicy(
            evicted_tokens_min=self.evicted_tokens_min,
            lost_tokens_min=self.grid,
            idle_tokens_min=self.grid,
            idle_s=self.idle_s,
        )
        service = DiskService(
            tier,
            self.jobs,
            engine.profile,
            engine.slots,
            engine.copies,
            clock,
            telemetry,
            policy,
            staging_count=self.staging_count,
        )
        service.start()
        return service

    def local_day(self) -> str:
        """Today's date."""
        return datetime.fromtimestamp(self.clock.wall(), UTC).date().isoformat()

    def facts(self, engine: WatchedEngine) -> Mapping[str, str]:
        """What the fingerprint is made of."""
        return {**engine.profile.facts, "weights": self.weights}

    def settle(self) -> None:
        """Let everything that goes on in the background come to its end."""
        for _ in range(SETTLE_STEPS_MAX):
            ran = self.jobs.step()
            worked = self.server.step()
            pending = 0 if self.server.disk is None else self.server.disk.writes.pending
            if not ran and not worked and pending == 0:
                return
        violated("progress", "background work never ends")

    def flush(self) -> FlushReport:
        """What the admin route of that name does."""
        answers: list[FlushReport] = []
        self.server.scheduler.flush(answers.append)
        for _ in range(SETTLE_STEPS_MAX):
            if answers:
                break
            self.jobs.step()
            self.server.step()
        if not answers:
            violated("progress", "a flush never answers")
        return answers[0]

    # --- its ends ---------------------------------------------------------------------------------

    def stop(self) -> FlushReport:
        """A planned stop, and a start that reads the conversation back."""
        self.server.scheduler.drain()
        self.server.run()
        report = self.flush()
        self.kill()
        self.server.scheduler.read_back()
        return report

    def kill(self) -> None:
        """SIGKILL and a start."""
        self._succeed(self.storage.kill(bytes_max=self.shares.pool))

    def cut_power(self, chance: random.Random | None = None) -> None:
        """A power cut and a start."""
        self._succeed(self.storage.crash(chance, bytes_max=self.shares.pool))

    def lose_catalog(self) -> None:
        """SIGKILL, and the catalog is gone by the start."""
        storage = self.storage.kill(bytes_max=self.shares.pool)
        self._succeed(storage, MemoryCatalog(needs_rebuild=True))

    def replace_disk(self) -> None:
        """SIGKILL, and a start over a new, empty store; what was on the old one is forgotten."""
        self.storage.close()
        self.oracle = Oracle(self.parts, row_invariant=self.row_invariant)
        self._succeed(self._new_storage(), MemoryCatalog(needs_rebuild=False))

    def _new_storage(self) -> CrashableStorage:
        return CrashableStorage(bytes_max=self.shares.pool, quarantined_max=self.quarantined_max)

    def _succeed(self, storage: CrashableStorage, catalog: MemoryCatalog | None = None) -> None:
        self.storage = storage
        self.catalog = self.catalog.restart() if catalog is None else catalog
        self.server = self.start()

    # --- to look at -------------------------------------------------------------------------------

    @property
    def disk(self) -> DiskService:
        assert self.server.disk is not None
        return self.server.disk

    @property
    def tier(self) -> WatchedTier:
        assert isinstance(self.disk.tier, WatchedTier)
        return self.disk.tier

    @property
    def names(self) -> list[str]:
        """The objects that are stored."""
        return sorted(stored.name for stored in self.storage.names())
