"""The composition root: every part, and what it is made of."""

import logging
import secrets
import sys
from itertools import count
from pathlib import Path

from dependency_injector import containers, providers

from . import __version__
from .adapters.gpu.loading import find_model, load_engine
from .adapters.gpu.model_store import ModelLocation, ModelStore
from .adapters.http.app import create_app
from .adapters.http.server import Listener
from .adapters.http.server import serve as serve_http
from .adapters.system.clock import SystemClock
from .adapters.system.engine_thread import EngineThread
from .adapters.telemetry.logs import configure_logging
from .adapters.telemetry.prometheus import CONTENT_TYPE, PrometheusTelemetry
from .adapters.text.sampling_defaults import sampling_defaults
from .adapters.text.tokenizer import load_tokenizer
from .application.admission import Admission, Sources
from .application.scheduler import Limits, Scheduler
from .application.service import Service
from .domain.anchor_budget import AnchorBudget
from .domain.fingerprint import Fingerprint, fingerprint_of
from .ports.engine import Engine
from .ports.tokenizer import Tokenizer
from .settings import ServeSettings

_log = logging.getLogger("anchorline")


def _engine(settings: ServeSettings, location: ModelLocation) -> Engine:
    return load_engine(
        location.source,
        device=settings.device,
        dtype=settings.dtype,
        window=settings.window,
        grid=settings.grid,
        slots=settings.slots,
        threads=settings.threads,
        name=location.name,
    )


def _limits(settings: ServeSettings) -> Limits:
    return Limits(
        queue_max=settings.queue_max,
        anchors=AnchorBudget(
            bytes_max=settings.anchor_bytes_max,
            count_min=settings.anchors_min,
            newest_kept=settings.anchors_newest,
        ),
        cache_enabled=settings.cache == "on",
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
    scheduler = providers.Singleton(
        Scheduler, engine, tokenizer, clock, telemetry, providers.Singleton(_limits, settings)
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
        Service, engine.provided.profile, tokenizer, admission, scheduler, engine_thread
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


def serve(settings: ServeSettings) -> None:
    """Serve until a signal says to stop.

    Raises:
        SettingsError: the address or the device cannot be had.
        ModelError: the model is not here, or its state could not be kept exactly.
    """
    configure_logging(
        settings.log_level, json_lines=settings.log_format == "json", stream=sys.stderr
    )
    listener = Listener(settings.host, settings.port)
    try:
        location = ModelStore(settings.models_path).resolve(settings.model)
        _log.info("loading %s", location.source)
        files = find_model(location.source).directory
        server = Server(settings=settings, location=location, files=files)
        app, thread = server.app(), server.engine_thread()
    except BaseException:
        listener.close()
        raise
    _log_profile(server.engine(), server.fingerprint(), settings)
    thread.start()
    serve_http(
        app,
        listener,
        shutdown_s=settings.shutdown_s,
        on_ready=lambda url: _log.info(
            "Anchorline %s serves %s on %s", __version__, location.name, url
        ),
        on_stopping=server.service().drain,
        on_shutdown=lambda: _stop(thread, settings.shutdown_s),
    )


def _log_profile(engine: Engine, fingerprint: Fingerprint, settings: ServeSettings) -> None:
    profile = engine.profile
    _log.info(
        "%s: window %d, grid %d, %d slots, %d bytes an anchor, %d bytes a row, cache %s, "
        "fingerprint %s",
        profile.model,
        profile.window,
        profile.grid.step,
        len(engine.slots),
        profile.layout.section_bytes,
        profile.layout.row_bytes,
        settings.cache,
        fingerprint[:16],
    )


def _stop(thread: EngineThread, timeout_s: float) -> None:
    if not thread.stop(timeout_s):
        _log.warning("the engine is still busy after %g s and is left behind", timeout_s)
