"""The composition root: every part, and what it is made of."""

import contextlib
import logging
import secrets
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from dependency_injector import containers, providers

from . import __version__
from .adapters.codec.plane_codec import PlaneCodec
from .adapters.codec.rates import measure_rates
from .adapters.codec.raw_codec import RawCodec
from .adapters.gpu.device_memory import device_memory
from .adapters.gpu.loading import find_model, load_engine
from .adapters.gpu.model_store import ModelLocation, ModelStore
from .adapters.http.app import create_app
from .adapters.http.server import Listener
from .adapters.http.server import serve as serve_http
from .adapters.http.slow_clients import BODIES_BYTES_MAX
from .adapters.nvme.drive_rate import read_rate
from .adapters.nvme.nvme_storage import NvmeStorage
from .adapters.sqlite.sqlite_catalog import SqliteCatalog
from .adapters.system.clock import SystemClock
from .adapters.system.collection import no_collection
from .adapters.system.engine_thread import EngineThread
from .adapters.system.jobs import ThreadJobs
from .adapters.system.memory import SystemMemory
from .adapters.telemetry.logs import configure_logging
from .adapters.telemetry.mismatch_log import KeepAside, MismatchLog
from .adapters.telemetry.prometheus import CONTENT_TYPE, PrometheusTelemetry
from .adapters.text.sampling_defaults import sampling_defaults
from .adapters.text.tokenizer import load_tokenizer
from .application.admission import Admission, Sources
from .application.conversations import SavePolicy
from .application.disk_service import LANES, DiskService
from .application.disk_tier import DiskLimits, DiskTier
from .application.durability import FlushReport
from .application.limits import Limits
from .application.live_verify_report import VerifyMode, VerifyPolicy
from .application.memory_pools import MemoryPools
from .application.memory_setup import fitted, manage_caches, memory_pools
from .application.object_store import ObjectStore
from .application.rebuild import rebuild
from .application.response_cache import ResponseCache
from .application.scheduler import Scheduler
from .application.service import Service
from .application.verify import VerifyReport, verify
from .domain.anchor_budget import AnchorBudget
from .domain.codec_choice import CodecPolicy, choose_codec
from .domain.disk_retention import Ages, Shares
from .domain.errors import RequestError, SettingsError, StorageError, StorageUnavailable
from .domain.fingerprint import Fingerprint, fingerprint_of
from .domain.measured_rate import BYTES_PER_S_PRIOR
from .domain.memory_plan import LimitsWanted
from .domain.ram_retention import Retention
from .domain.write_guard import WriteGuard
from .ports.block_storage import BlockStorage
from .ports.catalog import Catalog
from .ports.clock import Clock
from .ports.codec import Codec
from .ports.engine import Engine
from .ports.jobs import Jobs
from .ports.memory import Memory
from .ports.telemetry import Telemetry
from .ports.tokenizer import Tokenizer
from .settings import ServeSettings

CATALOG_NAME: Final = "catalog.db"
FREE_MIN: Final = 50 * 10**9
HEADS_BYTES: Final = 16 * 10**9
CONVERSATIONS_BYTES: Final = 64 * 10**9
STAGING_BUFFERS: Final = 8
UNBOUNDED: Final = 1 << 60
SAVE_STEPS: Final = 16
BODIES_AT_ONCE: Final = 4
SHORT_STEPS: Final = 4
LONG_STEPS: Final = 32

_log = logging.getLogger("anchorline")


def _engine(settings: ServeSettings, location: ModelLocation) -> Engine:
    return load_engine(
        location.source,
        device=settings.device,
        dtype=settings.dtype,
        window=settings.window,
        grid=settings.grid,
        slots=settings.slots + settings.verifies,  # one more, which no request gets
        threads=settings.threads,
        name=location.name,
        arith=settings.arith,
        verdicts=settings.verdicts_path,
    )


def proved_arithmetic(settings: ServeSettings) -> str:
    """What is found about the exact arithmetic of the settings' model, in one line.

    Raises:
        ModelError: the model is not here, or cannot be served at all.
    """
    location = ModelStore(settings.models_path).resolve(settings.model)
    return _engine(msgspec.structs.replace(settings, arith="exact"), location).profile.arithmetic


def _limits(settings: ServeSettings, engine: Engine, pools: MemoryPools) -> Limits:
    return Limits(
        queue_max=settings.queue_max,
        anchors=fitted(_anchor_budget(settings), pools, len(engine.slots)),
        cache_enabled=settings.cache == "on",
        ram_bytes_max=pools.host.plan.ram_bytes_max.bytes,
        ram_idle_s=settings.ram_idle_s or None,
        heal_idle_s=settings.heal_idle_s or None,
        retention=Retention(settings.ram_retention),
    )


def _anchor_budget(settings: ServeSettings) -> AnchorBudget:
    return AnchorBudget(
        bytes_max=settings.anchor_bytes_max,
        count_min=settings.anchors_min,
        newest_kept=settings.anchors_newest,
    )


def _memory_pools(
    settings: ServeSettings, engine: Engine, memory: Memory, telemetry: Telemetry
) -> MemoryPools:
    """Memory with limits that are computed from what is there, but for those that are set.

    Raises:
        SettingsError: one that is set makes no sense here.
    """
    wanted = LimitsWanted(
        ceiling=settings.mem_ceiling,
        peak=settings.mem_peak,
        slack=settings.mem_slack,
        ram_bytes_max=settings.ram_bytes_max,
    )
    device = device_memory(settings.device)
    try:
        pools = memory_pools(engine, telemetry, memory, device, wanted, _anchor_budget(settings))
    except RequestError as error:
        limit = str(error.field)
        setting = limit if limit == "ram_bytes_max" else f"mem_{limit}"
        raise SettingsError(f"{setting} cannot be used: {error}") from error
    for stats in pools.stats():
        limits = stats.limits
        _log.info(
            "memory of the %s: %d bytes between requests (%s), %d during a prefill; %d are for "
            "conversations that lost their slot",
            stats.pool,
            limits["ceiling"].bytes,
            limits["ceiling"].why,
            limits["peak"].bytes,
            limits["ram_bytes_max"].bytes,
        )
    return pools


@dataclass(frozen=True, slots=True)
class MaybeVerify:
    """How what is kept is verified, or that it is not: see `MaybeDisk`."""

    policy: VerifyPolicy | None


def _verify_policy(
    settings: ServeSettings, fingerprint: Fingerprint, keep_aside: KeepAside | None
) -> MaybeVerify:
    if not settings.verifies:
        return MaybeVerify(None)
    mode, idle_s = VerifyMode(settings.verify), settings.verify_idle_s or None
    return MaybeVerify(VerifyPolicy(mode, idle_s, fingerprint, MismatchLog(keep_aside)))


def _responses(settings: ServeSettings, clock: Clock, telemetry: Telemetry) -> ResponseCache | None:
    """What gives answers again, if it is wanted."""
    if not settings.response_cache_bytes:
        return None
    return ResponseCache(
        clock,
        telemetry,
        bytes_max=settings.response_cache_bytes,
        ttl_s=settings.response_cache_ttl,
    )


def _sources() -> Sources:
    numbers, process = count(1), secrets.token_hex(4)
    return Sources(
        request_id=lambda: f"{process}-{next(numbers)}",
        seed=lambda: secrets.randbits(64),
    )


def _fingerprint(engine: Engine, tokenizer: Tokenizer) -> Fingerprint:
    return fingerprint_of({**engine.profile.facts, **tokenizer.facts})


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
    """The disk tier, or that there is none: a provider would make None again when asked again."""

    service: DiskService | None
    keep_aside: KeepAside | None = None


def _disk(
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
        store = ObjectStore(storage, _codec(settings, storage))
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
        opened.pop_all()  # the tier closes them from now on
    _log.info(
        "disk tier in %s: %d entries, heads up to %d bytes, conversations up to %d, %d stay free",
        settings.state_path,
        len(tier.entries()),
        plan.shares.heads_bytes_max,
        plan.shares.conversations_bytes_max,
        plan.free_min,
    )
    return MaybeDisk(service, storage.keep_aside)


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


class Server(containers.DeclarativeContainer):
    """A server's parts; it is given its settings, and where its model's files are."""

    settings = providers.Dependency(instance_of=ServeSettings)
    location = providers.Dependency(instance_of=ModelLocation)
    files = providers.Dependency(instance_of=Path)

    clock = providers.Singleton(SystemClock)
    telemetry = providers.Singleton(PrometheusTelemetry)
    tokenizer = providers.Singleton(load_tokenizer, location.provided.source)
    engine = providers.Singleton(_engine, settings, location)
    fingerprint = providers.Singleton(_fingerprint, engine, tokenizer)
    jobs = providers.Singleton(ThreadJobs, LANES)
    maybe_disk = providers.Singleton(_disk, settings, engine, fingerprint, clock, telemetry, jobs)
    disk = maybe_disk.provided.service
    maybe_verify = providers.Singleton(
        _verify_policy, settings, fingerprint, maybe_disk.provided.keep_aside
    )
    memory = providers.Singleton(SystemMemory)
    memory_pools = providers.Singleton(_memory_pools, settings, engine, memory, telemetry)
    scheduler = providers.Singleton(
        Scheduler,
        engine,
        tokenizer,
        clock,
        telemetry,
        providers.Singleton(_limits, settings, engine, memory_pools),
        disk,
        memory,
        maybe_verify.provided.policy,
        providers.Singleton(_responses, settings, clock, telemetry),
        memory_pools,
    )
    engine_thread = providers.Singleton(
        EngineThread, scheduler.provided.step, scheduler.provided.abort
    )
    admission = providers.Singleton(
        Admission,
        engine.provided.profile,
        tokenizer,
        clock,
        providers.Singleton(_sources),
        providers.Singleton(sampling_defaults, files),
        settings.provided.max_tokens_default,
    )
    service = providers.Singleton(
        Service,
        engine.provided.profile,
        tokenizer,
        admission,
        scheduler,
        engine_thread,
        memory_pools,
    )
    app = providers.Singleton(
        create_app,
        service,
        clock=clock,
        metrics_exposition=telemetry.provided.exposition,
        metrics_content_type=CONTENT_TYPE,
        version=__version__,
        system_fingerprint=fingerprint.provided[slice(16)],
        api_key=settings.provided.api_key,
        admin_key=settings.provided.admin_key,
        body_bytes_max=settings.provided.body_bytes_max,
        progress_interval_s=settings.provided.progress_interval_s,
    )


def build(settings: ServeSettings) -> Server:
    """All parts of a server, its model loaded and its disk tier open; nothing runs yet.

    Raises:
        SettingsError: the device cannot be had.
        ModelError: the model is not here, or its state could not be kept exactly.
    """
    location = ModelStore(settings.models_path).resolve(settings.model)
    _log.info("loading %s", location.source)
    files = find_model(location.source).directory
    server = Server(settings=settings, location=location, files=files)
    server.app()
    manage_caches(server.memory_pools(), server.engine(), server.scheduler())
    _log_profile(server.engine(), server.fingerprint(), settings)
    return server


def start(server: Server) -> None:
    """Bring the last conversation into its slot, then start the engine thread."""
    if server.settings().disk_read_back == "on":
        tokens = server.scheduler().read_back()
        if tokens:
            _log.info("read back %d tokens of the last conversation", tokens)
    server.engine_thread().start()


def stop(server: Server) -> None:
    """Make durable what can be resumed, and let everything go; bounded by the settings."""
    clock: Clock = server.clock()
    deadline_s = clock.monotonic() + server.settings().shutdown_s

    def left_s() -> float:
        return max(deadline_s - clock.monotonic(), 0.0)

    thread: EngineThread = server.engine_thread()
    maybe: MaybeDisk = server.maybe_disk()
    disk = maybe.service
    if disk is not None:
        _log.info("making the conversation durable")
        _flush(server.service(), left_s())
    if not thread.stop(left_s()):
        _log.warning("the engine is still busy and is left behind")
        return
    server.jobs().close(left_s())
    if disk is not None:
        disk.tier.close()


def serve(settings: ServeSettings, notice: str | None = None) -> None:
    """Serve until a signal says to stop.

    Args:
        notice: what the log is to warn of first.

    Raises:
        SettingsError: the address or the device cannot be had.
        ModelError: the model is not here, or its state could not be kept exactly.
    """
    configure_logging(
        settings.log_level, json_lines=settings.log_format == "json", stream=sys.stderr
    )
    if notice is not None:
        _log.warning("%s", notice)
    listener = Listener(settings.host, settings.port)
    try:
        server = build(settings)
    except BaseException:
        listener.close()
        raise
    start(server)
    name = server.engine().profile.model
    serve_http(
        server.app(),
        listener,
        shutdown_s=settings.shutdown_s,
        on_ready=lambda url: _log.info("Anchorline %s serves %s on %s", __version__, name, url),
        on_stopping=server.service().drain,
        on_shutdown=lambda: stop(server),
        bodies_bytes_max=max(BODIES_BYTES_MAX, BODIES_AT_ONCE * settings.body_bytes_max),
    )


def _log_profile(engine: Engine, fingerprint: Fingerprint, settings: ServeSettings) -> None:
    profile = engine.profile
    _log.info(
        "%s: window %d, grid %d, slots %d, %d bytes an anchor, %d bytes a row, cache %s, "
        "fingerprint %s",
        profile.model,
        profile.window,
        profile.grid.step,
        settings.slots,
        profile.layout.section_bytes,
        profile.layout.row_bytes,
        settings.cache,
        fingerprint[:16],
    )


def _flush(service: Service, timeout_s: float) -> None:
    answered = threading.Event()
    reports: list[FlushReport] = []

    def answer(report: FlushReport) -> None:
        reports.append(report)
        answered.set()

    service.flush(answer)
    if not answered.wait(timeout_s):
        _log.warning("not everything was durable after %g s", timeout_s)
        return
    report = reports[0]
    _log.log(
        logging.INFO if report.durable else logging.WARNING,
        "%s: %d entries written now, %d failed, %d dropped, %d not stored; %d entries in all, "
        "the longest of %d tokens",
        "everything is durable" if report.durable else "not everything is durable",
        report.saved,
        report.failed,
        report.dropped,
        report.missing,
        report.entries,
        report.longest,
    )
