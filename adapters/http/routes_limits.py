"""GET and POST /v1/cache/limits: how much memory the caches may take."""

from typing import Any, Final

from litestar import Request, get, post
from litestar.di import NamedDependency
from msgspec import UNSET, Struct, UnsetType

from ...application.memory_stats import MemoryStats
from ...domain.errors import RequestError
from ...domain.memory_plan import LIMITS, Figure
from .auth import ADMIN
from .decoding import decode
from .serving import Serving

BODY_BYTES_MAX: Final = 4096


class LimitsBody(Struct, frozen=True):
    """Limits to be set, in bytes; a null leaves one to the server, and what is missing stays.

    Attributes:
        pool: whose limits; None is the one that the model runs in.
        ceiling: of all that the server holds between requests.
        peak: of all that it holds during a prefill.
        slack: of free blocks that it may keep.
        ram_bytes_max: of conversations that lost their slot.
    """

    pool: str | None = None
    ceiling: int | UnsetType | None = UNSET
    peak: int | UnsetType | None = UNSET
    slack: int | UnsetType | None = UNSET
    ram_bytes_max: int | UnsetType | None = UNSET


class PoolBody(Struct, frozen=True):
    """One pool of memory: its limits in force, and where they stand."""

    pool: str
    total: int
    available: int
    held: int
    limits: dict[str, Figure]
    caches: dict[str, int]


class PoolsBody(Struct, frozen=True):
    """All pools, the one that the model runs in first."""

    pools: tuple[PoolBody, ...]


@get("/v1/cache/limits", opt=dict(ADMIN))
async def cache_limits(serving: NamedDependency[Serving]) -> PoolsBody:
    """The limits in force, and where each comes from."""
    return _shown(await serving.questions.ask(serving.service.memory, serving.stats_timeout_s))


@post("/v1/cache/limits", status_code=200, opt=dict(ADMIN))
async def set_cache_limits(
    request: Request[Any, Any, Any], serving: NamedDependency[Serving]
) -> PoolsBody:
    """Change some of them; what they have no room for any more is given back at once."""
    pool, changes = _wanted(await request.body())
    answered: tuple[MemoryStats, ...] | RequestError = await serving.questions.ask(
        lambda answer: serving.service.set_limits(pool, changes, answer), serving.stats_timeout_s
    )
    if isinstance(answered, RequestError):
        raise answered
    return _shown(answered)


def _wanted(data: bytes) -> tuple[str | None, dict[str, int | None]]:
    if len(data) > BODY_BYTES_MAX:
        raise RequestError(f"a body of {len(data)} bytes is longer than any of this route's")
    body = decode(data, LimitsBody)
    given: dict[str, int | UnsetType | None] = {name: getattr(body, name) for name in LIMITS}
    changes = {name: value for name, value in given.items() if value is not UNSET}
    if not changes:
        raise RequestError(f"nothing is to be set; give one of {', '.join(LIMITS)}")
    return body.pool, changes


def _shown(pools: tuple[MemoryStats, ...]) -> PoolsBody:
    return PoolsBody(
        tuple(
            PoolBody(
                stats.pool, stats.total, stats.available, stats.held, stats.limits, stats.caches
            )
            for stats in pools
        )
    )
