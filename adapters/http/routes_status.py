"""GET /health, GET /metrics and GET /v1/cache/stats."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from litestar import MediaType, Request, Response, get, head
from litestar.di import NamedDependency
from msgspec import Struct

from .auth import ADMIN, OPEN
from .serving import Serving
from .stats_reader import Known

HEALTH_WAIT_S: Final = 0.05
"""How long /health waits for fresh figures before it gives the last ones."""

DRAINING: Final = "draining"
"""The key of the application's state that says whether the server is stopping."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where the text of /metrics comes from."""

    exposition: Callable[[], bytes]
    content_type: str


class Load(Struct, frozen=True):
    """Requests as last reported by the engine thread, `age_s` seconds ago."""

    running: int
    queued: int
    age_s: float


class Disk(Struct, frozen=True):
    """The tier on a medium; bytes and level are as last reported by the engine thread.

    Attributes:
        bytes: that all of it takes.
        write_level: where today's writing stands: ok, over, hard; None without a tier.
    """

    on: bool
    bytes: int
    write_level: str | None


class Verify(Struct, frozen=True):
    """What verifying kept state has found, as last reported by the engine thread.

    Attributes:
        serves_cold: a kept state was wrong, and requests resume from nothing until a restart.
    """

    mode: str
    samples: int
    mismatches: int
    serves_cold: bool


class HealthBody(Struct, frozen=True):
    """Whether the server is well; what is None was not reported by the engine thread yet.

    Attributes:
        verify: None as well where nothing is verified.
    """

    status: Literal["ok", "draining"]
    model: str
    version: str
    uptime_s: float
    requests: Load | None
    disk: Disk | None
    verify: Verify | None


@get("/health", opt=dict(OPEN))
async def health(request: Request[Any, Any, Any], serving: NamedDependency[Serving]) -> HealthBody:
    """Answers at once, whatever the engine is doing."""
    known = await serving.stats.latest(HEALTH_WAIT_S)
    return HealthBody(
        status="draining" if request.app.state.get(DRAINING) else "ok",
        model=serving.model,
        version=serving.version,
        uptime_s=round(serving.clock.monotonic() - serving.started_s, 3),
        requests=None if known is None else _load(known),
        disk=None if known is None else _disk(known),
        verify=None if known is None else _verify(known),
    )


@head("/health", opt=dict(OPEN))
async def health_head() -> None:
    """The status alone, for load balancers."""


@get("/metrics", sync_to_thread=True)
def metrics(metrics_text: NamedDependency[Metrics]) -> Response[bytes]:
    """All metrics, in Prometheus' format."""
    # As a header: Litestar would add a second charset to a media type.
    return Response(metrics_text.exposition(), headers={"content-type": metrics_text.content_type})


@get("/v1/cache/stats", opt=dict(ADMIN))
async def cache_stats(serving: NamedDependency[Serving]) -> Response[bytes]:
    """The cache's figures, taken between two steps of the engine."""
    stats = await serving.stats.fresh(serving.stats_timeout_s)
    return Response(msgspec.json.encode(stats), media_type=MediaType.JSON)


def _load(known: Known) -> Load:
    return Load(known.stats.running, known.stats.queued, round(known.age_s, 3))


def _disk(known: Known) -> Disk:
    disk = known.stats.disk
    if disk is None:
        return Disk(on=False, bytes=0, write_level=None)
    return Disk(on=True, bytes=disk.bytes_used, write_level=disk.write_level)


def _verify(known: Known) -> Verify | None:
    stats = known.stats.verify
    if stats is None:
        return None
    found = sum(stats.mismatches.values())
    return Verify(stats.mode, stats.samples, found, stats.serves_cold)
