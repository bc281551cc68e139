"""The memory pools of a server whose model has just been loaded."""

from collections.abc import Callable
from dataclasses import replace

from ..domain.anchor_budget import AnchorBudget
from ..domain.memory_plan import (
    DEVICE_FLOOR_PART,
    LimitsWanted,
    MemoryFound,
    memory_plan,
    system_floor,
)
from ..domain.workspace_model import NO_WORKSPACE, WorkspaceModel
from ..ports.engine import Engine
from ..ports.memory import Memory
from ..ports.telemetry import Telemetry
from .memory_budget import MemoryBudget
from .memory_pools import HOST, MemoryPools
from .reclaimable import (
    RAM_ROLES,
    BodyAnchors,
    CopyAccount,
    EndAnchors,
    RamEntries,
    Reclaimable,
    UnwrittenRows,
    copied_from,
    in_order,
)
from .scheduler import Scheduler


def memory_pools(
    engine: Engine,
    telemetry: Telemetry,
    host: Memory,
    device: tuple[str, Memory] | None,
    wanted: LimitsWanted,
    anchors: AnchorBudget,
    beside: int = 0,
) -> MemoryPools:
    """Pools whose limits are computed from what is there now.

    Args:
        engine: nothing was read into its slots yet.
        device: the memory that the model runs in, by name; None where that is the host's.
        wanted: limits of the model's pool, and of the tier in memory.
        anchors: the budget of each slot.
        beside: bytes of the host's memory that come and go with what is written meanwhile.

    Raises:
        RequestError: limits that make no sense; names the one.
    """
    anchor_bytes = _anchor_bytes(engine, anchors)
    if device is None:
        account = CopyAccount(engine.copies)
        unwritten = UnwrittenRows(engine.slots)
        workspace = _workspace(engine)
        found = replace(_found(engine, host, workspace, anchor_bytes, unwritten()), beside=beside)
        return MemoryPools(
            [_budget(HOST, host, found, wanted, workspace, telemetry, account, unwritten)]
        )
    name, memory = device
    sections = CopyAccount(engine.copies, rows=False)
    found = _found(engine, memory, _workspace(engine), anchor_bytes, 0, DEVICE_FLOOR_PART)
    on_device = replace(wanted, ram_bytes_max=0)  # rows are kept in the host's memory
    on_host = LimitsWanted(ram_bytes_max=wanted.ram_bytes_max)
    rows = CopyAccount(engine.copies, sections=False)
    host_found = replace(_found(engine, host), beside=beside)
    return MemoryPools(
        [
            _budget(name, memory, found, on_device, _workspace(engine), telemetry, sections),
            _budget(HOST, host, host_found, on_host, NO_WORKSPACE, telemetry, rows),
        ]
    )


def fitted(anchors: AnchorBudget, pools: MemoryPools, slots: int) -> AnchorBudget:
    """The budget of one slot's anchors, within what the plan has for those of all."""
    plan = pools.model.plan
    if plan.anchors.bytes >= plan.found.anchors:
        return anchors
    return replace(anchors, bytes_max=min(anchors.bytes_max, plan.anchors.bytes // slots))


def manage_caches(pools: MemoryPools, engine: Engine, scheduler: Scheduler) -> None:
    """Tell each pool what can give memory back in it.

    Copies of sections stand with the slots, copies of rows on the host.
    """
    ram, nbytes = scheduler.ram, engine.profile.layout.section_bytes
    disk = scheduler.disk
    if disk is not None:
        pools.model.is_disturbed = lambda: disk.tier.lent > 0 or disk.writes.pending > 0
    takes = copied_from(scheduler.disk)
    anchors: list[Reclaimable] = [
        BodyAnchors(scheduler.slots, nbytes, takes),
        EndAnchors(scheduler.slots, nbytes, takes),
    ]
    kept: list[Reclaimable] = (
        [] if ram is None else [RamEntries(ram, name, role) for name, role in RAM_ROLES.items()]
    )
    if scheduler.responses is not None:
        kept.insert(0, scheduler.responses)
    if pools.model is pools.host:
        pools.host.manage(in_order([*anchors, *kept]))
    else:
        pools.model.manage(anchors)
        pools.host.manage(kept)


def _found(
    engine: Engine,
    memory: Memory,
    workspace: WorkspaceModel = NO_WORKSPACE,
    anchors: int = 0,
    unwritten: int = 0,
    floor_part: int | None = None,
) -> MemoryFound:
    profile, use = engine.profile, memory.use()
    floor = system_floor(use.total) if floor_part is None else system_floor(use.total, floor_part)
    return MemoryFound(
        total=use.total,
        available=use.available,
        held=use.reserved,
        unwritten=unwritten,
        window=profile.window,
        row_bytes=profile.layout.row_bytes,
        workspace=workspace.nbytes(profile.window),
        anchors=anchors,
        floor=floor,
    )


def _budget(
    pool: str,
    memory: Memory,
    found: MemoryFound,
    wanted: LimitsWanted,
    workspace: WorkspaceModel,
    telemetry: Telemetry,
    copies: CopyAccount,
    unwritten: Callable[[], int] = lambda: 0,
) -> MemoryBudget:
    plan = memory_plan(found, wanted)
    return MemoryBudget(pool, memory, plan, workspace, telemetry, copies, unwritten)


def _workspace(engine: Engine) -> WorkspaceModel:
    profile = engine.profile
    return WorkspaceModel(
        profile.workspace_floor_bytes, profile.workspace_row_bytes, profile.workspace_bytes_max
    )


def _anchor_bytes(engine: Engine, anchors: AnchorBudget) -> int:
    """What the anchors of all slots may take, each slot's end with them."""
    profile = engine.profile
    lines = profile.window // profile.grid.step + anchors.newest_kept
    kept = min(anchors.capacity(profile.layout.section_bytes), lines) + 1
    return kept * profile.layout.section_bytes * len(engine.slots)
