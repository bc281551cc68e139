"""The application: routes, errors and keys put together."""

from collections.abc import Callable
from typing import Final

from litestar import Litestar
from litestar.di import Provide

from ...application.service import Service
from ...ports.clock import Clock
from .auth import KeyGuard
from .errors import ErrorHandler
from .questions import Questions
from .routes_cache import (
    FLUSHES_OPEN_MAX,
    QUESTIONS_OPEN_MAX,
    cache_clear,
    cache_entries,
    cache_flush,
)
from .routes_generation import chat_completions, completions
from .routes_limits import cache_limits, set_cache_limits
from .routes_models import model, models
from .routes_peek import cache_peek, cache_prewarm
from .routes_sessions import cache_session_close
from .routes_status import HEALTH_WAIT_S, Metrics, cache_stats, health, health_head, metrics
from .routes_tokens import detokenize, tokenize
from .routes_verify import VERIFIES_OPEN_MAX, cache_verify
from .serving import Serving
from .stats_reader import StatsReader
from .worker import Worker

BODY_BYTES_MAX: Final = 32 << 20
PROGRESS_INTERVAL_S: Final = 1.0
STATS_TIMEOUT_S: Final = 30.0
FLUSH_TIMEOUT_S: Final = 120.0
VERIFY_TIMEOUT_S: Final = 240.0


def create_app(
    service: Service,
    *,
    clock: Clock,
    metrics_exposition: Callable[[], bytes],
    metrics_content_type: str,
    version: str,
    system_fingerprint: str,
    api_key: str | None = None,
    admin_key: str | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
    progress_interval_s: float = PROGRESS_INTERVAL_S,
    stats_timeout_s: float = STATS_TIMEOUT_S,
    flush_timeout_s: float = FLUSH_TIMEOUT_S,
    verify_timeout_s: float = VERIFY_TIMEOUT_S,
) -> Litestar:
    """An application over a running service; it starts and stops nothing itself.

    Args:
        metrics_exposition: the text of /metrics; called on a worker thread.
        system_fingerprint: changes when answers to the same request may change.
        api_key: needed on every route but /health; None asks for none.
        admin_key: needed on admin routes; None lets clients on this machine use them.
        body_bytes_max: longer bodies are answered with 413.
        progress_interval_s: the least time between two comments of a stream.
        stats_timeout_s: how long admin routes wait for the engine thread.
        flush_timeout_s: how long /v1/cache/flush waits; the flush itself goes on.
        verify_timeout_s: how long /v1/cache/verify waits, the same.
    """
    serving = Serving(
        service=service,
        worker=Worker(),
        clock=clock,
        stats=StatsReader(service),
        questions=Questions(QUESTIONS_OPEN_MAX),
        flushes=Questions(FLUSHES_OPEN_MAX),
        verifies=Questions(VERIFIES_OPEN_MAX),
        version=version,
        system_fingerprint=system_fingerprint,
        progress_interval_s=progress_interval_s,
        stats_timeout_s=stats_timeout_s,
        flush_timeout_s=flush_timeout_s,
        verify_timeout_s=verify_timeout_s,
        started_s=clock.monotonic(),
        created_s=int(clock.wall()),
    )

    async def ask_for_stats() -> None:
        """So that the first /health during a long chunk has figures to give."""
        await serving.stats.latest(HEALTH_WAIT_S)

    metrics_text = Metrics(metrics_exposition, metrics_content_type)
    return Litestar(
        route_handlers=[
            *(chat_completions, completions),
            *(models, model),
            *(tokenize, detokenize),
            *(health, health_head, metrics, cache_stats),
            *(cache_entries, cache_flush, cache_clear, cache_verify, cache_session_close),
            *(cache_limits, set_cache_limits, cache_peek, cache_prewarm),
        ],
        dependencies={
            "serving": Provide(lambda: serving, sync_to_thread=False),
            "metrics_text": Provide(lambda: metrics_text, sync_to_thread=False),
        },
        guards=[KeyGuard(api_key=api_key, admin_key=admin_key)],
        exception_handlers={Exception: ErrorHandler(body_bytes_max=body_bytes_max)},
        request_max_body_size=body_bytes_max,
        on_startup=[ask_for_stats],
        openapi_config=None,
        logging_config=None,
    )
