"""POST /v1/cache/flush, POST /v1/cache/clear and GET /v1/cache/entries."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from litestar import MediaType, Request, Response, get, post
from litestar.di import NamedDependency
from msgspec import UNSET, Struct, UnsetType

from ...application.durability import FlushReport
from ...application.stats import Cleared, EntryStats
from ...domain.errors import RequestError
from .auth import ADMIN
from .errors import ErrorDetail
from .questions import NotInTime
from .routes_status import HEALTH_WAIT_S
from .serving import Serving
from .stats_reader import RETRY_AFTER_S

ClearedTier: TypeAlias = Literal["ram", "disk", "all"]

FLUSHES_OPEN_MAX: Final = 8
"""How many flushes may be under way."""

QUESTIONS_OPEN_MAX: Final = 64
"""How many other questions the engine thread may have open."""


class FlushBody(Struct, frozen=True):
    """What a flush found and did; see `durability.FlushReport` for the other fields.

    Attributes:
        finished: False where it goes on after the answer; the other figures are zeros then.
        error: why it is not durable.
    """

    durable: bool
    finished: bool
    tier: bool
    saved: int
    pending: int
    failed: int
    dropped: int
    missing: int
    entries: int
    longest: int
    error: ErrorDetail | UnsetType = UNSET


class ClearedBody(Struct, frozen=True):
    """What a clear has freed: tokens that stood in slots, and bytes on the medium."""

    tier: ClearedTier
    ram_tokens: int
    disk_bytes: int


@post("/v1/cache/flush", status_code=200, opt=dict(ADMIN))
async def cache_flush(serving: NamedDependency[Serving]) -> Response[FlushBody]:
    """Make every conversation durable; 200 only if that is so."""
    try:
        report = await serving.flushes.ask(serving.service.flush, serving.flush_timeout_s)
    except NotInTime:
        return _flush_answer(await _unfinished(serving), finished=False)
    return _flush_answer(report, finished=True)


@post("/v1/cache/clear", status_code=200, opt=dict(ADMIN))
async def cache_clear(
    request: Request[Any, Any, Any], serving: NamedDependency[Serving]
) -> ClearedBody:
    """Forget what nothing is using; `tier` is ram, disk or all."""
    tier = _tier(request.query_params)
    cleared: Cleared = await serving.questions.ask(
        lambda answer: serving.service.clear(ram=tier != "disk", disk=tier != "ram", answer=answer),
        serving.stats_timeout_s,
    )
    return ClearedBody(tier, cleared.ram_tokens, cleared.disk_bytes)


@get("/v1/cache/entries", opt=dict(ADMIN))
async def cache_entries(serving: NamedDependency[Serving]) -> Response[bytes]:
    """Everything that is kept, residents first; never a text of a user."""
    entries: tuple[EntryStats, ...] = await serving.questions.ask(
        serving.service.entries, serving.stats_timeout_s
    )
    return Response(msgspec.json.encode({"entries": entries}), media_type=MediaType.JSON)


def _tier(query: Mapping[str, str]) -> ClearedTier:
    tier = query.get("tier", "ram")
    for known in get_args(ClearedTier):
        if tier == known:
            return known
    raise RequestError(f"{tier[:100]!r} is no tier; give ram, disk or all", field="tier")


async def _unfinished(serving: Serving) -> FlushReport:
    """What is known of a flush that goes on."""
    known = await serving.stats.latest(HEALTH_WAIT_S)
    disk = None if known is None else known.stats.disk
    writes = 0 if disk is None else disk.pending_writes
    # The flush itself waits at the least, be it only for a request to end.
    return FlushReport(durable=False, tier=True, pending=max(writes, 1))


def _flush_answer(report: FlushReport, *, finished: bool) -> Response[FlushBody]:
    why = UNSET if report.durable else _not_durable(report, finished=finished)
    body = FlushBody(
        durable=report.durable,
        finished=finished,
        tier=report.tier,
        saved=report.saved,
        pending=report.pending,
        failed=report.failed,
        dropped=report.dropped,
        missing=report.missing,
        entries=report.entries,
        longest=report.longest,
        error=why,
    )
    headers = {} if report.durable else {"Retry-After": str(RETRY_AFTER_S)}
    return Response(body, status_code=200 if report.durable else 503, headers=headers)


def _not_durable(report: FlushReport, *, finished: bool) -> ErrorDetail:
    if not finished:
        why, code = f"the flush goes on; pending: {report.pending}", "flush_pending"
    elif not report.tier:
        why, code = "nothing is kept on disk by this server", "no_disk_tier"
    else:
        counts = {"failed": report.failed, "dropped": report.dropped, "missing": report.missing}
        found = ", ".join(f"{name}: {count}" for name, count in counts.items() if count)
        why, code = f"not everything is durable; {found}", "not_durable"
    return ErrorDetail(why, "server_error", None, code)
