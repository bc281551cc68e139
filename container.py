"""The composition root: every part, and what it is made of."""

import logging
import secrets
import sys
import threading
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from dependency_injector import containers, providers

from . import __version__
from .adapters.gpu.device_memory import device_memory
from .adapters.gpu.loading import find_model, load_engine
from .adapters.gpu.model_store import ModelLocation, ModelStore
from .adapters.http.app import create_app
from .adapters.http.server import Listener
from .adapters.http.server import serve as serve_http
from .adapters.http.slow_clients import BODIES_BYTES_MAX
from .adapters.system.clock import SystemClock
from .adapters.system.engine_thread import EngineThread
from .adapters.system.jobs import ThreadJobs
from .adapters.system.memory import SystemMemory, set_up_malloc
from .adapters.telemetry.logs import configure_logging
from .adapters.telemetry.mismatch_log import KeepAside, MismatchLog
from .adapters.telemetry.prometheus import CONTENT_TYPE, PrometheusTelemetry
from .adapters.text.sampling_defaults import sampling_defaults
from .adapters.text.tokenizer import load_tokenizer
from .application.admission import Admission, Sources
from .application.disk_service import LANES
from .application.durability import FlushReport
from .application.limits import Limits
from .application.live_verify_report import VerifyMode, VerifyPolicy
from .application.memory_pools import MemoryPools
from .application.memory_setup import fitted, manage_caches, memory_pools
from .application.response_cache import ResponseCache
from .application.scheduler import Scheduler
from .application.service import Service
from .container_disk import MaybeDisk, disk_of
from .domain.anchor_budget import AnchorBudget
from .domain.errors import RequestError, SettingsError
from .domain.fingerprint import Fingerprint, fingerprint_of
from .domain.memory_plan import LimitsWanted
from .domain.ram_retention import Retention
from .ports.clock import Clock
from .ports.engine import Engine
from .ports.memory import Memory
from .ports.telemetry import Telemetry
from .ports.tokenizer import Tokenizer
from .settings import ServeSettings

BODIES_AT_ONCE: Final = 4

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
    settings: ServeSettings,
    engine: Engine,
    memory: Memory,
    telemetry: Telemetry,
    disk: MaybeDisk,
) -> MemoryPools:
    """Memory with limits that are computed from what is there, but for those that are set.

    The disk tier is there by then: its buffers are no cache's to give back.

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
    memory.give_back()  # what loading has left free is no part of what the engine holds
    memory.rose()  # and the most that it took is not what serving takes
    try:
        pools = memory_pools(
            engine,
            telemetry,
            memory,
            device,
            wanted,
            _anchor_budget(settings),
            beside=disk.writing_bytes,
        )
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
    maybe_disk = providers.Singleton(disk_of, settings, engine, fingerprint, clock, telemetry, jobs)
    disk = maybe_disk.provided.service
    maybe_verify = providers.Singleton(
        _verify_policy, settings, fingerprint, maybe_disk.provided.keep_aside
    )
    memory = providers.Singleton(SystemMemory)
    memory_pools = providers.Singleton(
        _memory_pools, settings, engine, memory, telemetry, maybe_disk
    )
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
    set_up_malloc()
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
