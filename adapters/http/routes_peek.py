"""POST /v1/cache/peek and POST /v1/cache/prewarm: what a request would find, before it is sent."""

from collections.abc import Mapping
from typing import Any

from litestar import Request, post
from litestar.di import NamedDependency
from msgspec import UNSET, Raw, Struct, UnsetType

from ...application.peek import Peeked
from ...application.prewarm import PrewarmReport
from ...application.request import GenerationRequest
from ...application.service import Service
from ...domain.errors import RequestError
from .auth import ADMIN
from .chat_calls import chat_call
from .completion_calls import completion_call
from .decoding import decode
from .serving import Serving
from .usage import milliseconds
from .wire_chat import ChatBody
from .wire_completions import CompletionBody


class _Kind(Struct, frozen=True):
    """Which route a body is meant for; read again as a body of that route."""

    messages: Raw | UnsetType = UNSET
    prompt: Raw | UnsetType = UNSET


class NearestBody(Struct, frozen=True):
    """See `peek.Nearest`."""

    shares: int
    parts_at: int | None


class PeekBody(Struct, frozen=True):
    """What a request would resume from.

    Attributes:
        line: where its prefill would start.
        cached_tokens: the same, under the name that responses have for it.
        restore_ms: that bringing state in would take, at measured rates.
        reread_eta_ms: that this and the prefill of the rest would take.
        tokens: of the prompt.
    """

    tier: str
    source: str
    line: int
    gate: str
    cached_tokens: int
    reread_tokens: int
    reread_eta_ms: float
    restore_ms: float
    tokens: int
    session: str | None
    nearest: NearestBody


class WarmedBody(Struct, frozen=True):
    """What was brought in, and from where."""

    tier: str
    line: int
    bytes: int
    ms: float


class PrewarmBody(Struct, frozen=True):
    """What came of it: what was brought in, or why nothing was."""

    prewarmed: bool
    restore: WarmedBody | UnsetType = UNSET
    why: str | UnsetType = UNSET


@post("/v1/cache/peek", status_code=200, opt=dict(ADMIN))
async def cache_peek(
    request: Request[Any, Any, Any], serving: NamedDependency[Serving]
) -> PeekBody:
    """What a chat or a completion would resume from; it is not run, and nothing is counted."""
    asked = await _asked(request, serving)
    peeked: Peeked = await serving.questions.ask(
        lambda answer: serving.service.peek(asked, answer), serving.stats_timeout_s
    )
    return PeekBody(
        tier=peeked.tier.value,
        source=peeked.source.value,
        line=peeked.line,
        gate=peeked.gate.value,
        cached_tokens=peeked.line,
        reread_tokens=peeked.reread,
        reread_eta_ms=milliseconds(peeked.first_token_s),
        restore_ms=milliseconds(peeked.restore_s),
        tokens=peeked.tokens,
        session=peeked.session,
        nearest=NearestBody(peeked.nearest.shares, peeked.nearest.parts_at),
    )


@post("/v1/cache/prewarm", status_code=200, opt=dict(ADMIN))
async def cache_prewarm(
    request: Request[Any, Any, Any], serving: NamedDependency[Serving]
) -> PrewarmBody:
    """Bring what a chat or a completion would resume from into an idle slot."""
    asked = await _asked(request, serving)
    report: PrewarmReport = await serving.questions.ask(
        lambda answer: serving.service.prewarm(asked, answer), serving.stats_timeout_s
    )
    if report.warmed is None:
        why = UNSET if report.why is None else report.why.value
        return PrewarmBody(prewarmed=False, why=why)
    warmed = report.warmed
    took_ms = milliseconds(warmed.seconds)
    restore = WarmedBody(warmed.tier.value, warmed.line, warmed.nbytes, took_ms)
    return PrewarmBody(prewarmed=True, restore=restore)


async def _asked(request: Request[Any, Any, Any], serving: Serving) -> GenerationRequest:
    """The very request that the body would be, were it sent to its own route."""
    return await serving.worker.run(
        _prepared, await request.body(), serving.service, dict(request.headers)
    )


def _prepared(data: bytes, service: Service, headers: Mapping[str, str]) -> GenerationRequest:
    kind = decode(data, _Kind)
    if kind.messages is not UNSET:
        return service.prepare_chat(chat_call(decode(data, ChatBody), headers))
    if kind.prompt is not UNSET:
        return service.prepare_completion(completion_call(decode(data, CompletionBody), headers))
    raise RequestError(
        "give the body of a chat, with messages, or of a completion, with a prompt",
        field="messages",
        code="missing_required_parameter",
    )
