"""A real server on a real socket, over the in-memory engine."""

import contextlib
import queue
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass

import httpx
import openai
from litestar import Litestar

from anchorline.adapters.http.app import create_app
from anchorline.adapters.http.server import HttpServer, Listener
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.adapters.system.clock import SystemClock
from anchorline.adapters.system.engine_thread import EngineThread
from anchorline.application.admission import Admission, Sources
from anchorline.application.limits import Limits
from anchorline.application.request import EventSink, GenerationRequest
from anchorline.application.scheduler import Scheduler
from anchorline.application.service import Service
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.errors import Draining
from anchorline.domain.sampling import SamplingParams
from support.scripted_engine import PATIENCE_S, ScriptedEngine


class JournalQueue(RecordingTelemetry):
    """Hands journal records to a test that waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: queue.Queue[Mapping[str, object]] = queue.Queue()

    def journal(self, record: Mapping[str, object]) -> None:
        super().journal(record)
        self.queue.put(dict(record))

    def next_record(self) -> Mapping[str, object]:
        return self.queue.get(timeout=PATIENCE_S)


class WatchedService(Service):
    """The service, with queues of what was submitted and cancelled."""

    submitted: queue.Queue[str]
    cancelled: queue.Queue[str]

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        super().submit(request, sink)
        self.submitted.put(request.id)

    def cancel(self, request_id: str) -> None:
        super().cancel(request_id)
        self.cancelled.put(request_id)

    def next_cancelled(self) -> str:
        return self.cancelled.get(timeout=PATIENCE_S)


@dataclass(frozen=True)
class Running:
    """A running server and what stands behind it."""

    url: str
    app: Litestar
    engine: ScriptedEngine
    service: WatchedService
    telemetry: JournalQueue
    engine_thread: EngineThread
    http_server: HttpServer
    stopping: threading.Event
    ended: threading.Event

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @contextlib.contextmanager
    def openai(self, api_key: str = "none") -> Generator[openai.OpenAI]:
        """The official client; it does not try again, so that every error is seen."""
        with openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key=api_key,
            max_retries=0,
            timeout=PATIENCE_S,
            http_client=openai.DefaultHttpxClient(verify=False),  # as below
        ) as client:
            yield client

    @contextlib.contextmanager
    def http(self, **headers: str) -> Generator[httpx.Client]:
        with httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=PATIENCE_S,
            verify=False,  # noqa: S501, no certificate is there, and loading roots takes long
        ) as client:
            yield client


@dataclass(frozen=True)
class Options:
    """How a test's server differs from others."""

    slots: int = 1
    window: int = 4096
    grid: int = 64
    queue_max: int = 4
    api_key: str | None = None
    admin_key: str | None = None
    body_bytes_max: int = 1 << 20
    progress_interval_s: float = 0.02
    stats_timeout_s: float = PATIENCE_S
    shutdown_s: float = PATIENCE_S


@contextlib.contextmanager
def running_server(options: Options) -> Generator[Running]:
    """Start everything, and stop it at the end of the block."""
    engine = ScriptedEngine(slots=options.slots, window=options.window, grid=options.grid)
    telemetry = JournalQueue()
    service, engine_thread = _service(engine, telemetry, options)
    app = create_app(
        service,
        clock=SystemClock(),
        metrics_exposition=lambda: b"anchorline_requests_total 0.0\n",
        metrics_content_type="text/plain; version=0.0.4; charset=utf-8",
        version="0.0.test",
        system_fingerprint="fp_test",
        api_key=options.api_key,
        admin_key=options.admin_key,
        body_bytes_max=options.body_bytes_max,
        progress_interval_s=options.progress_interval_s,
        stats_timeout_s=options.stats_timeout_s,
    )
    ready: queue.Queue[str] = queue.Queue()

    stopping, ended = threading.Event(), threading.Event()

    def drain() -> None:
        stopping.set()
        with contextlib.suppress(Draining):  # a test may have stopped the engine thread
            service.drain()

    server = HttpServer(
        app,
        Listener("127.0.0.1", 0),
        shutdown_s=options.shutdown_s,
        on_ready=ready.put,
        on_stopping=drain,
    )

    def run() -> None:
        server.run()
        ended.set()

    thread = threading.Thread(target=run, name="test-http")
    engine_thread.start()
    thread.start()
    try:
        url = ready.get(timeout=PATIENCE_S)
        yield Running(url, app, engine, service, telemetry, engine_thread, server, stopping, ended)
    finally:
        engine.release()
        server.stop()
        thread.join(PATIENCE_S)
        assert engine_thread.stop(PATIENCE_S)
    assert not thread.is_alive()


def _service(
    engine: ScriptedEngine, telemetry: RecordingTelemetry, options: Options
) -> tuple[WatchedService, EngineThread]:
    tokenizer, clock = ToyTokenizer(), SystemClock()
    limits = Limits(
        queue_max=options.queue_max,
        anchors=AnchorBudget(bytes_max=1 << 20),
        cache_enabled=True,
    )
    scheduler = Scheduler(engine, tokenizer, clock, telemetry, limits)
    engine_thread = EngineThread(scheduler.step, scheduler.abort)
    numbers = iter(range(1, 1 << 30))
    admission = Admission(
        engine.profile,
        tokenizer,
        clock,
        Sources(request_id=lambda: f"r{next(numbers)}", seed=lambda: 0),
        SamplingParams(),
        max_tokens_default=64,
    )
    service = WatchedService(engine.profile, tokenizer, admission, scheduler, engine_thread)
    service.submitted, service.cancelled = queue.Queue(), queue.Queue()
    return service, engine_thread
