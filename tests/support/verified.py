"""Servers that verify what they keep, over the checkable engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from anchorline.adapters.codec.plane_codec import PlaneCodec
from anchorline.adapters.codec.raw_codec import RawCodec
from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.checkable_state import CheckableState, Parts
from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.stepped_jobs import SteppedJobs
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.conversations import SavePolicy
from anchorline.application.disk_service import LANES, DiskService
from anchorline.application.disk_tier import DiskLimits, DiskTier
from anchorline.application.durability import FlushReport
from anchorline.application.kept_blocks import KeptBlock
from anchorline.application.limits import Limits
from anchorline.application.live_verify import SPARE_ANCHORS
from anchorline.application.live_verify_cold import exported_rows
from anchorline.application.live_verify_report import (
    LiveReport,
    VerifyMode,
    VerifyPolicy,
)
from anchorline.application.object_store import ObjectStore
from anchorline.application.ram_tier import RamTier
from anchorline.application.request import Event, Finished
from anchorline.application.response_cache import ResponseCache
from anchorline.application.scheduler import Scheduler
from anchorline.application.slots import Slot
from anchorline.domain.anchor import Anchor
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.disk_retention import Ages, Shares
from anchorline.domain.fingerprint import Fingerprint, fingerprint_of
from anchorline.domain.grid import Span
from anchorline.domain.mismatch import Mismatch
from anchorline.domain.namespace import Namespace
from anchorline.domain.taint_line import Writer
from anchorline.domain.tokens import TokenIds
from anchorline.domain.write_guard import WriteGuard
from anchorline.simulation.box import Box
from anchorline.simulation.history import History
from anchorline.simulation.oracle import Node, Realm
from support.builders import a_prompt, a_request
from support.sections import with_sections_of

GRID: Final = 8
STEPS_MAX: Final = 10_000


@dataclass
class VerifiedServer:
    """A scheduler that verifies; nothing else looks at its states, so that they can be spoiled.

    Attributes:
        forward_s: what each forward takes.
        told: the mismatches that were written down.
    """

    slots: int = 1
    window: int = 256
    parts: Parts = Parts.HYBRID
    row_invariant: bool = False
    disk_enabled: bool = True
    mode: VerifyMode = VerifyMode.ON
    idle_s: float | None = None
    salt: str = ""
    forward_s: float = 0.0
    responses: ResponseCache | None = None
    ram_bytes_max: int = 0
    anchors: AnchorBudget = field(default_factory=lambda: AnchorBudget(bytes_max=1 << 20))
    told: list[Mismatch] = field(default_factory=list[Mismatch])

    def __post_init__(self) -> None:
        self.clock, self.telemetry = ManualClock(), RecordingTelemetry()
        self.engine = CheckableEngine(
            slots=self.slots + 1,
            window=self.window,
            grid=GRID,
            parts=self.parts,
            row_invariant=self.row_invariant,
            on_forward=lambda _: self.clock.advance(self.forward_s),
        )
        self.jobs = SteppedJobs(LANES, seed=0)
        self.storage = CrashableStorage(bytes_max=1 << 24)
        self.disk = self._disk() if self.disk_enabled else None
        self.scheduler = Scheduler(
            self.engine,
            ToyTokenizer(),
            self.clock,
            self.telemetry,
            Limits(
                queue_max=8,
                anchors=self.anchors,
                cache_enabled=True,
                ram_bytes_max=self.ram_bytes_max,
            ),
            self.disk,
            verify=VerifyPolicy(
                self.mode, self.idle_s, fingerprint_of(self.engine.profile.facts), self._told
            ),
            responses=self.responses,
        )
        self.events: list[Event] = []

    @property
    def slot(self) -> Slot:
        """The first one."""
        return self.scheduler.slots[0]

    @property
    def spare(self) -> int:
        """The slot that no request gets."""
        return self.slots

    @property
    def state(self) -> CheckableState:
        """Of the first slot."""
        return self.engine.slots[0]

    @property
    def memory(self) -> RamTier:
        assert self.scheduler.ram is not None
        return self.scheduler.ram

    def submit(self, ids: Sequence[int], *, max_tokens: int = 4) -> None:
        request = a_request(
            a_prompt(ids),
            id=f"r{len(self.events)}",
            namespace=Namespace(salt=self.salt),
            max_tokens=max_tokens,
            arrived_s=self.clock.monotonic(),
        )
        self.scheduler.submit(request, self.events.append)

    def ask(self, ids: Sequence[int], *, max_tokens: int = 4) -> Finished:
        """Submit and run to the end."""
        self.submit(ids, max_tokens=max_tokens)
        for _ in range(STEPS_MAX):
            if self.scheduler.idle:
                break
            self.scheduler.step()
        last = self.events[-1]
        assert isinstance(last, Finished), last
        return last

    def rest(self) -> None:
        """Step until there is nothing to do."""
        for _ in range(STEPS_MAX):
            if not self.scheduler.step():
                return
        raise AssertionError("it never rests")

    def flush(self) -> FlushReport:
        answers: list[FlushReport] = []
        self.scheduler.flush(answers.append)
        self._until(answers)
        return answers[0]

    def verify(self, samples: int = 100, entry: str | None = None) -> LiveReport:
        """What the admin route of that name does."""
        answers: list[LiveReport] = []
        self.scheduler.verify(samples, entry, answers.append)
        self._until(answers)
        return answers[0]

    def spoil_row(self, row: int, *, slot: int = 0, view: str = "bits") -> None:
        """Change one byte of a row behind the cache's back."""
        state, span = self.engine.slots[slot], Span(row, row + 1)
        buffers = exported_rows(state, state.layout.views, span)
        buffers[view][0] ^= 1
        state.import_rows(span, buffers)

    def spoil_block(self, block: KeptBlock, row: int, *, view: str = "bits") -> None:
        """Change one byte of a row in the copy of a kept block."""
        assert block.handle is not None, "there is no copy"
        views = {one.name: one.row_bytes for one in self.state.layout.views}
        rows = {name: np.empty(len(block.span) * size, np.uint8) for name, size in views.items()}
        self.engine.copies.export_rows(block.handle, rows)
        rows[view][(row - block.span.start) * views[view]] ^= 1
        self.engine.copies.import_rows(block.handle, rows)

    def spoil_copy(self, anchor: Anchor) -> None:
        """Change one byte of an anchor behind the cache's back."""

        def change() -> None:
            buffers = {one.name: np.empty(one.nbytes, np.uint8) for one in layout.sections}
            state.export_sections(buffers)
            buffers["bits_after"][0] ^= 1
            state.import_sections(anchor.line, buffers)
            state.capture_sections(anchor.handle)

        state, layout = self.state, self.state.layout
        with_sections_of(state, anchor, change)

    def exchange_copies(self, one: Anchor, other: Anchor) -> None:
        """Have each of two anchors hold what the other should."""
        state, line = self.state, self.state.length
        before, first = state.capture_sections(), state.capture_sections()
        for source, target in ((one.handle, first), (other.handle, one.handle), (first, None)):
            state.restore_sections(source)
            state.capture_sections(target or other.handle)
        state.restore_sections(before)
        state.resume_at(line)
        for handle in (before, first):
            state.release_sections(handle)

    def _told(self, mismatch: Mismatch) -> str | None:
        self.told.append(mismatch)
        return f"{len(self.told)}-verify.json"

    def _until(self, answers: Sequence[object]) -> None:
        for _ in range(STEPS_MAX):
            if answers:
                return
            self.scheduler.step()
            self.jobs.step()
        raise AssertionError("it never answers")

    def _disk(self) -> DiskService:
        profile = self.engine.profile
        tier = DiskTier(
            ObjectStore(self.storage, RawCodec(PlaneCodec())),
            MemoryCatalog(needs_rebuild=False),
            self.clock,
            self.telemetry,
            profile,
            fingerprint_of(profile.facts),
            DiskLimits(Shares(1 << 23, 1 << 23), Ages(), WriteGuard(1 << 40, 32 * GRID)),
            local_day=lambda: "2026-11-29",
        )
        service = DiskService(
            tier,
            self.jobs,
            profile,
            self.engine.slots,
            self.engine.copies,
            self.clock,
            self.telemetry,
            SavePolicy(GRID, GRID, GRID, None),
            staging_count=3,
        )
        service.start()
        return service


class VerifiedHistory(History):
    """A history on a server that verifies in every idle step, and must never find anything."""

    def __init__(
        self,
        *,
        slots: int = 1,
        cache_enabled: bool = True,
        ram_bytes_max: int = 0,
        **how: object,
    ) -> None:
        super().__init__(slots=slots + 1, cache_enabled=cache_enabled, **how)  # type: ignore[arg-type]
        limits = Limits(
            queue_max=64,
            anchors=self.anchors,
            cache_enabled=cache_enabled,
            ram_bytes_max=ram_bytes_max,
        )
        policy = VerifyPolicy(VerifyMode.ON, 0.0, Fingerprint("00" * 32), _never)
        self.scheduler = Scheduler(
            self.engine,
            self.tokenizer,
            self.clock,
            self.telemetry,
            limits,
            self.disk,
            verify=policy,
        )

    def spare_copies(self) -> int:
        return SPARE_ANCHORS.capacity(self.engine.profile.layout.section_bytes) + 1

    def about_to_forward(self, slot: int, span: Span, ids: TokenIds, writer: Writer) -> Realm:
        if slot == len(self.scheduler.slots):
            assert self.scheduler.idle, "a request is there, and the spare slot goes on"
            return Realm("spare", Namespace())
        return super().about_to_forward(slot, span, ids, writer)

    def forwarded(self, slot: int, node: Node, writer: Writer) -> None:
        if slot < len(self.scheduler.slots):
            super().forwarded(slot, node, writer)


class VerifiedBox(Box):
    """A box whose servers do the same."""

    def start(self) -> History:
        self.lives += 1
        self.jobs = SteppedJobs(LANES, seed=self.seed + self.lives - 1)
        return VerifiedHistory(
            slots=self.slots,
            window=self.window,
            grid=self.grid,
            parts=self.parts,
            row_invariant=self.row_invariant,
            cache_enabled=self.cache_enabled,
            disk=self._disk,
            clock=self.clock,
            oracle=self.oracle,
            weights=self.weights,
            ram_bytes_max=self.ram_bytes_max,
        )


def _never(mismatch: Mismatch) -> str | None:
    raise AssertionError(f"{mismatch.entry}: {mismatch.difference}")
