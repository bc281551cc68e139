"""The composition of the disk tier: its parts, opened in the order they need each other."""

import contextlib
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from .adapters.codec.plane_codec import PlaneCodec
from .adapters.codec.rates import measure_rates
from .adapters.codec.raw_codec import RawCodec
from .adapters.nvme.drive_rate import read_rate
from .adapters.nvme.nvme_storage import NvmeStorage
from .adapters.sqlite.sqlite_catalog import SqliteCatalog
from .adapters.system.collection import no_collection
from .adapters.telemetry.mismatch_log import KeepAside
from .application.conversations import SavePolicy
from .application.disk_service import DiskService
from .application.disk_tier import DiskLimits, DiskTier
from .application.object_store import ObjectStore
from .application.rebuild import rebuild
from .application.verify import VerifyReport, verify
from .domain.codec_choice import CodecPolicy, choose_codec
from .domain.disk_retention import Ages, Shares
from .domain.errors import StorageError, StorageUnavailable
from .domain.fingerprint import Fingerprint
from .domain.measured_rate import BYTES_PER_S_PRIOR
from .domain.write_guard import WriteGuard
from .ports.block_storage import BlockStorage
from .ports.catalog import Catalog
from .ports.clock import Clock
from .ports.codec import Codec
from .ports.engine import Engine
from .ports.jobs import Jobs
from .ports.telemetry import Telemetry
from .settings import ServeSettings

CATALOG_NAME: Final = "catalog.db"
FREE_MIN: Final = 50 * 10**9
HEADS_BYTES: Final = 16 * 10**9
CONVERSATIONS_BYTES: Final = 64 * 10**9
STAGING_BUFFERS: Final = 8
COMPRESSED_COPIES: Final = 2
"""Of each buffer while it is written: its frames, and what they are put together to."""

UNBOUNDED: Final = 1 << 60
SAVE_STEPS: Final = 16
SHORT_STEPS: Final = 4
LONG_STEPS: Final = 32

_log = logging.getLogger("anchorline")


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """Bytes of the disk tier, and where each figure comes from.

    Attributes:
        free_min: what stays free on the file system.
    """

    shares: Shares
    free_min: int


def disk_plan(settings: ServeSettings, total: int, free: int) -> DiskPlan:
    """What the tier may take of a file system of `total` bytes with `free` bytes free.

    A setting decides where there is one; else the large box's figure, or a part of a smaller disk.
    """
    free_min = settings.disk_free_min
    if free_min is None:
        free_min = min(FREE_MIN, total // 10)
    usable = max(free - free_min, 0)
    heads, conversations = settings.disk_heads_bytes_max, settings.disk_conversations_bytes_max
    return DiskPlan(
        Shares(
            heads_bytes_max=min(HEADS_BYTES, usable // 5) if heads is None else heads,
            conversations_bytes_max=(
                min(CONVERSATIONS_BYTES, usable * 4 // 5)
                if conversations is None
                else conversations
            ),
        ),
        free_min,
    )


@dataclass(frozen=True, slots=True)
class MaybeDisk:
    """The disk tier, or that there is none: a provider would make None again when asked again.

    Attributes:
        writing_bytes: memory that comes and goes with what is being written, at most.
    """

    service: DiskService | None
    keep_aside: KeepAside | None = None
    writing_bytes: int = 0


def disk_of(
    settings: ServeSettings,
    engine: Engine,
    fingerprint: Fingerprint,
    clock: Clock,
    telemetry: Telemetry,
    jobs: Jobs,
) -> MaybeDisk:
    """The disk tier, or None: because it is off, or because its directory cannot be used."""
    if settings.disk == "off" or settings.cache == "off":
        return MaybeDisk(None)
    try:
        with no_collection():
            return _opened_disk(settings, engine, fingerprint, clock, telemetry, jobs)
    except StorageError as error:
        _log.warning("serving without the disk tier: %s", error)
        return MaybeDisk(None)


def _opened_disk(
    settings: ServeSettings,
    engine: Engine,
    fingerprint: Fingerprint,
    clock: Clock,
    telemetry: Telemetry,
    jobs: Jobs,
) -> MaybeDisk:
    profile = engine.profile
    storage, plan = _storage(settings)
    opened = contextlib.ExitStack()
    opened.callback(storage.close)
    with opened:
        catalog = SqliteCatalog(settings.state_path / CATALOG_NAME)
        opened.callback(catalog.close)
        if catalog.damage is not None:
            _log.warning("%s", catalog.damage)
        codec = _codec(settings, storage)
        store = ObjectStore(storage, codec)
        if catalog.needs_rebuild:
            _rebuild(store, catalog)
        limits = DiskLimits(
            plan.shares,
            Ages(),
            WriteGuard(settings.disk_day_bytes_max, LONG_STEPS * profile.grid.step),
            settings.disk_admit_after,
        )
        tier = DiskTier(
            store,
            catalog,
            clock,
            telemetry,
            profile,
            fingerprint,
            limits,
            local_day=lambda: datetime.now().astimezone().date().isoformat(),
        )
        service = DiskService(
            tier,
            jobs,
            profile,
            engine.slots,
            engine.copies,
            clock,
            telemetry,
            _save_policy(settings, profile.grid.step),
            staging_count=STAGING_BUFFERS,
        )
        service.start()
        service.warm()
        opened.pop_all()  # the tier closes them from now on
    _log.info(
        "disk tier in %s: %d entries, heads up to %d bytes, conversations up to %d, %d stay free",
        settings.state_path,
        len(tier.entries()),
        plan.shares.heads_bytes_max,
        plan.shares.conversations_bytes_max,
        plan.free_min,
    )
    compressed = 0 if isinstance(codec, RawCodec) else COMPRESSED_COPIES
    return MaybeDisk(
        service, storage.keep_aside, compressed * STAGING_BUFFERS * service.pool.nbytes
    )


def _storage(settings: ServeSettings) -> tuple[NvmeStorage, DiskPlan]:
    """The opened storage.

    Raises:
        StorageError: the directory cannot be used; the message says why.
    """
    path = settings.state_path
    # Opened without limits: what it holds already is its own to use, and it walks over it anyway.
    storage = NvmeStorage(path, bytes_max=UNBOUNDED)
    try:
        usage = shutil.disk_usage(path)
        plan = disk_plan(settings, usage.total, usage.free + storage.space().used)
    except BaseException:
        storage.close()
        raise
    storage.bound(bytes_max=plan.shares.pool, free_min=plan.free_min)
    for notice in storage.notices:
        _log.warning("%s", notice)
    return storage, plan


def _codec(settings: ServeSettings, storage: BlockStorage) -> Codec:
    planes = PlaneCodec()
    try:
        drive_bytes_per_s = read_rate(storage)
    except StorageError:
        # No room for the measurement: a full store is still one to resume from.
        drive_bytes_per_s = BYTES_PER_S_PRIOR
    choice = choose_codec(
        CodecPolicy(settings.disk_codec),
        drive_bytes_per_s=drive_bytes_per_s,
        free_cores=1,
        rates=measure_rates(planes),
    )
    _log.info("codec %s: %s", "on" if choice.compress else "off", choice.reason)
    return planes if choice.compress else RawCodec(planes)


def _rebuild(store: ObjectStore, catalog: Catalog) -> None:
    """Make the entries of a new or lost catalog again, before anything is taken for a stray."""
    mark = catalog.age_mark()
    report = rebuild(store, catalog, 0.0 if mark is None else mark.age_s)
    if report.objects:
        _log.warning(
            "the catalog was made again from %d objects: %d entries; %d objects damaged, "
            "%d anchors without their rows",
            report.objects,
            report.entries,
            report.damaged,
            report.lost,
        )
    if report.unread:
        _log.warning(
            "the drive did not give %d of the objects; they stay where they are, and the next "
            "start tries again; if that never helps, `anchorline verify --repair` moves them aside",
            report.unread,
        )


def verify_store(
    settings: ServeSettings, repair: bool, progress: Callable[[int, int], None]
) -> VerifyReport:
    """Read all stored state and hold it against what it says of itself; no server may run on it.

    Raises:
        StorageError: the store cannot be opened, or its medium failed.
    """
    if not settings.state_path.is_dir():
        raise StorageUnavailable(f"there is no stored state in {settings.state_path}")
    storage, _ = _storage(settings)
    try:
        catalog = SqliteCatalog(settings.state_path / CATALOG_NAME)
        try:
            store = ObjectStore(storage, RawCodec(PlaneCodec()))
            return verify(store, catalog, repair=repair, progress=progress)
        finally:
            catalog.close()
    finally:
        storage.close()


def _save_policy(settings: ServeSettings, step: int) -> SavePolicy:
    return SavePolicy(
        evicted_tokens_min=settings.disk_save_tokens_min or SAVE_STEPS * step,
        lost_tokens_min=SHORT_STEPS * step,
        idle_tokens_min=SHORT_STEPS * step,
        idle_s=settings.disk_idle_s or None,
    )
