"""States of any size without a model, and the disk tier they are kept in.

Everything but the forwards is the server's own: the torch slot with its copies and sums, the
resident prefix, conversations, writes, the catalog, restores, the lanes, files and syncs.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from storage_drive import ROOM, SlowStorage

from anchorline.adapters.codec.plane_codec import PlaneCodec
from anchorline.adapters.codec.rates import keys_like
from anchorline.adapters.codec.raw_codec import RawCodec
from anchorline.adapters.gpu.owned_layer import OwnedLayer, RowBuffer, SectionTensor
from anchorline.adapters.gpu.rows_memory import zeroed_rows
from anchorline.adapters.gpu.torch_state import TorchSlotState
from anchorline.adapters.sqlite.sqlite_catalog import SqliteCatalog
from anchorline.adapters.system.clock import SystemClock
from anchorline.adapters.system.jobs import ThreadJobs
from anchorline.adapters.telemetry.prometheus import PrometheusTelemetry
from anchorline.application.conversations import SavePolicy
from anchorline.application.disk_service import LANES, READ_LANES, DiskService
from anchorline.application.disk_tier import DiskLimits, DiskTier
from anchorline.application.entry_write import Progress
from anchorline.application.held_sections import HeldSections
from anchorline.application.kept_state import AdoptedState
from anchorline.application.object_store import ObjectStore
from anchorline.application.read_queue import ReadLanes
from anchorline.application.resident_prefix import ResidentPrefix
from anchorline.application.restore import Expected, Restore
from anchorline.application.restore_target import SlotTarget
from anchorline.container_disk import STAGING_BUFFERS
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.disk_retention import Ages, Shares
from anchorline.domain.end import End
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.grid import Grid, Span
from anchorline.domain.layout import Layout
from anchorline.domain.namespace import Namespace
from anchorline.domain.prompt_chain import PromptChain
from anchorline.domain.tokens import TokenIds, token_ids
from anchorline.domain.write_guard import WriteCause, WriteGuard
from anchorline.ports.engine import EngineProfile
from anchorline.ports.gpu_state import SlotState

VOCABULARY: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's state.

    Attributes:
        name: of what.
        layers: with keys and values.
        row: of one layer's keys: heads and width.
        recurrent: shapes of the sections, in fp32.
    """

    name: str
    layers: int
    row: tuple[int, int]
    recurrent: Sequence[tuple[int, ...]] = ()
    dtype: torch.dtype = torch.bfloat16


LARGE: Final = Shape("64 KiB a row", 16, (4, 256), [(16, 128, 128)] * 16)
"""Sixteen attention layers of 4 heads of 256 in bf16: 64 KiB a row, 1 GiB at 16,384 tokens. And
sixteen sections of 1 MiB."""


class MadeLayer(OwnedLayer):
    """Parts that no model writes."""

    def __init__(self, shape: Shape, window: int, recurrent: tuple[int, ...] | None) -> None:
        size = (window, *shape.row)
        host = torch.device("cpu")
        self._rows = [zeroed_rows(size, shape.dtype, host) for _ in ("keys", "values")]
        self._section = None if recurrent is None else torch.zeros(recurrent)

    def row_buffers(self) -> Sequence[RowBuffer]:
        names = ("keys", "values")
        return [RowBuffer(n, rows, "kv:plain") for n, rows in zip(names, self._rows, strict=True)]

    def section_tensors(self) -> Sequence[SectionTensor]:
        section = self._section
        return [] if section is None else [SectionTensor("state", section, "recurrent:state")]

    def rehouse(self, name: str, home: torch.Tensor) -> None:
        del name
        self._section = home


def made_state(shape: Shape, window: int) -> TorchSlotState:
    """A slot of zeros."""
    sections = [*shape.recurrent, *[None] * shape.layers][: shape.layers]
    layers = [MadeLayer(shape, window, section) for section in sections]
    return TorchSlotState(layers, window, torch.device("cpu"), grid=window)


def filled(state: SlotState, tokens: int) -> None:
    """Write rows and sections that compress as keys and values do; the same every time."""
    span, layout = Span(0, tokens), state.layout
    one = keys_like(max(view.row_bytes for view in layout.views) * tokens)
    state.import_rows(span, {view.name: one[: view.row_bytes * tokens] for view in layout.views})
    random = np.random.default_rng(1)
    state.import_sections(
        tokens,
        {
            section.name: random.standard_normal(section.nbytes // 4, np.float32).view(np.uint8)
            for section in layout.sections
        },
    )
    state.resume_at(tokens)


def profile_of(layout: Layout, window: int, grid: int) -> EngineProfile:
    """Of an engine that forwards nothing."""
    return EngineProfile(
        model="made",
        grid=Grid(grid),
        window=window,
        vocabulary=VOCABULARY,
        layout=layout,
        row_invariant=False,
        prefill_tokens_per_s=1000.0,
        workspace_floor_bytes=0,
        workspace_row_bytes=0,
        workspace_bytes_max=0,
        facts={"layout": layout.digest(), "grid": str(grid)},
    )


class Store:
    """A slot, what stands in it, and the disk tier under a directory; driven on this thread."""

    def __init__(
        self, directory: Path, state: TorchSlotState, profile: EngineProfile, *, compress: bool
    ) -> None:
        directory.mkdir(mode=0o700)
        self._directory = directory
        self.storage = SlowStorage(directory)
        codec = PlaneCodec() if compress else RawCodec(PlaneCodec())
        lanes: dict[str, int] = {**LANES}
        self._jobs = ThreadJobs(lanes)
        self.state, self.profile = state, profile
        clock, telemetry = SystemClock(), PrometheusTelemetry()
        tier = DiskTier(
            ObjectStore(self.storage, codec),
            SqliteCatalog(directory / "catalog.db"),
            clock,
            telemetry,
            profile,
            fingerprint_of(profile.facts),
            DiskLimits(Shares(ROOM, ROOM), Ages(), WriteGuard(ROOM, profile.grid.step)),
            local_day=lambda: "2026-11-29",
        )
        self.service = DiskService(
            tier,
            self._jobs,
            profile,
            [state],
            state.copies,
            clock,
            telemetry,
            SavePolicy(1, 1, 1, None),
            STAGING_BUFFERS,
        )
        budget = AnchorBudget(bytes_max=1 << 30, count_min=5)
        sections = HeldSections(state.copies, profile.layout.section_bytes)
        self.resident = ResidentPrefix(state, profile, budget, sections)

    @property
    def tier(self) -> DiskTier:
        return self.service.tier

    def stands(self, ids: TokenIds) -> None:
        """The slot's state is that of these tokens, and an answer ended there."""
        self.resident.forget()
        self.state.import_sections(len(ids), _sections_of(self.state))
        end = End(len(ids))
        self.resident.adopt(AdoptedState(ids, ids, Namespace(), len(ids), end))

    def save(self, progress: Callable[[], None] = lambda: None) -> int:
        """Make what stands there durable, as an idle server does; the bytes that were written."""
        before = self.tier.counters.bytes_written
        write = self.service.conversations.save(0, self.resident, None, WriteCause.STOP)
        assert write is not None
        while self.service.writes.pending:
            self.service.step(idle=True)
            progress()
        counts = self.service.writes.counts
        assert not counts.failed, counts
        assert not counts.dropped, counts
        return self.tier.counters.bytes_written - before

    def empty(self) -> None:
        """Nothing of it stands in the slot any more, not a byte."""
        self.state.wipe(self.resident.length)
        self.resident.forget()

    def restore(self, ids: TokenIds) -> int:
        """Bring the stored state of these tokens into the empty slot; the bytes that were read."""
        asked = token_ids(np.concatenate((ids, [1])))
        chain = PromptChain(asked, Namespace(), self.profile.grid)
        continuation = self.tier.index.continuations(chain, len(ids))[0]
        pool, fingerprints = self.service.pool, self.tier.fingerprints
        lanes = ReadLanes(self.tier.store, self._jobs, pool, READ_LANES, fingerprints)
        expected = Expected(asked, asked, Namespace(), 0)
        layout = self.profile.layout
        target = SlotTarget(self.state, self.resident)
        restore = Restore(continuation, target, lanes, layout, expected)
        while restore.step(wait=True) is not Progress.DONE:
            pass
        assert self.resident.length == len(ids)
        return restore.bytes_read

    def files(self) -> list[Path]:
        """Those of the one stored entry, in the order in which a restore reads them."""
        (entry,) = self.tier.entries()
        return [self._directory / one.name for one in (*entry.blocks, entry.anchors[-1])]

    def clear(self) -> None:
        """Delete all that is stored."""
        self.tier.clear()

    def close(self) -> None:
        """Let everything go, the directory too."""
        self._jobs.close(60)
        self.tier.close()
        shutil.rmtree(self._directory)


def _sections_of(state: SlotState) -> dict[str, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    sections = {part.name: np.zeros(part.nbytes, np.uint8) for part in state.layout.sections}
    state.export_sections(sections)
    return sections
