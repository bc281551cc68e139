"""What every answer says about its tokens, its cache and its time."""

from msgspec import Struct

from ...application.request import Decision, Finished, GenerationRequest


class PromptTokensDetails(Struct, frozen=True):
    """`cached_tokens` needed no forward; an integer always, 0 on a miss."""

    cached_tokens: int


class CompletionTokensDetails(Struct, frozen=True):
    """`reasoning_tokens` are part of the completion tokens."""

    reasoning_tokens: int


class CacheReport(Struct, frozen=True):
    """Where the prefill started.

    Attributes:
        tier: where the state stood: slot or none.
        source: what it was: resident, end or none.
        gate: what it is equal to: bitwise, preserved or cold.
        cached: prompt tokens that needed no forward.
        reread: prompt tokens that were forwarded.
        quarantined: stored parts that failed their check on the way.
    """

    tier: str
    source: str
    gate: str
    cached: int
    reread: int
    restore_ms: float
    quarantined: int


class PartsReport(Struct, frozen=True):
    """What the prompt's tokens stand for.

    system + tools + history + images are the prompt; with `injected` they are cached + reread.
    """

    system: int
    tools: int
    history: int
    injected: int
    images: int


class OwnUsage(Struct, frozen=True):
    """What no field of OpenAI's has room for."""

    cache: CacheReport
    parts: PartsReport


class UsageBody(Struct, frozen=True):
    """Tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
    anchorline: OwnUsage


class TimingsBody(Struct, frozen=True):
    """Milliseconds and tokens of one request's phases, under llama.cpp's names and two more.

    `ttft_ms` counts from the request's arrival, `queue_ms` up to the start of its prefill.
    """

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float
    ttft_ms: float
    queue_ms: float


def usage_of(request: GenerationRequest, finished: Finished) -> UsageBody:
    """The usage of a request that has ended."""
    usage, decision = finished.usage, finished.decision
    parts = request.prompt.parts
    return UsageBody(
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        total_tokens=usage.prompt + usage.completion,
        prompt_tokens_details=PromptTokensDetails(decision.cached),
        completion_tokens_details=CompletionTokensDetails(usage.reasoning),
        anchorline=OwnUsage(
            cache=_cache_report(decision),
            parts=PartsReport(
                system=parts.system,
                tools=parts.tools,
                history=parts.history,
                injected=decision.cached + decision.reread - usage.prompt,
                images=parts.images,
            ),
        ),
    )


def timings_of(finished: Finished) -> TimingsBody:
    """The timings of a request that has ended."""
    decision, timings, usage = finished.decision, finished.timings, finished.usage
    return TimingsBody(
        cache_n=decision.cached,
        prompt_n=decision.reread,
        prompt_ms=milliseconds(timings.prompt_s),
        prompt_per_second=_rate(decision.reread, timings.prompt_s),
        predicted_n=usage.completion,
        predicted_ms=milliseconds(timings.predicted_s),
        # The prefill gave the first token; the time after it went into the others.
        predicted_per_second=_rate(usage.completion - 1, timings.predicted_s),
        ttft_ms=milliseconds(timings.ttft_s),
        queue_ms=milliseconds(timings.queue_s),
    )


def _cache_report(decision: Decision) -> CacheReport:
    return CacheReport(
        tier=decision.tier.value,
        source=decision.source.value,
        gate=decision.gate.value,
        cached=decision.cached,
        reread=decision.reread,
        restore_ms=milliseconds(decision.restore_s),
        quarantined=decision.quarantined,
    )


def milliseconds(seconds: float) -> float:
    """To microseconds, as responses tell times."""
    return round(seconds * 1000, 3)


def _rate(tokens: int, seconds: float) -> float:
    """Tokens per second; 0 where no time passed, as JSON has no infinity."""
    return round(tokens / seconds, 3) if tokens > 0 and seconds > 0 else 0.0
