"""From the shared fields of a body to a wish."""

from collections.abc import Mapping
from typing import Final

from ...application.calls import GenerationWish, SamplingWish
from ...domain.errors import RequestError
from .wire_generation import GenerationBody

SESSION_HEADERS: Final = ("x-session-id", "x-session-affinity")
"""Where agents put the hint that has no field in OpenAI's bodies; the first one counts."""


def wish_of(
    body: GenerationBody,
    headers: Mapping[str, str],
    *,
    max_tokens: int | None,
    top_logprobs: int | None,
) -> GenerationWish:
    """What a body asks for, as the service takes it.

    Args:
        headers: by lower-case name.
        max_tokens: under whichever name the route has it.
        top_logprobs: None reports no log probabilities.

    Raises:
        RequestError: it asks for several answers.
    """
    if body.n not in {None, 1}:
        raise RequestError(
            f"this server gives one answer per request, not {body.n}", field="n", code="unsupported"
        )
    return GenerationWish(
        model=body.model,
        sampling=_sampling(body, top_logprobs),
        max_tokens=max_tokens,
        stop=_stops(body.stop),
        ignore_end=bool(body.ignore_eos),
        session=_session(body, headers),
        cache_salt=body.cache_salt or "",
    )


def _sampling(body: GenerationBody, top_logprobs: int | None) -> SamplingWish:
    return SamplingWish(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        seed=body.seed,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=body.logit_bias or {},
        top_logprobs=top_logprobs,
    )


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    match stop:
        case None:
            return ()
        case str():
            return (stop,)
        case _:
            return tuple(stop)


def _session(body: GenerationBody, headers: Mapping[str, str]) -> str | None:
    """The first hint that says something."""
    hints = (body.session_id, body.prompt_cache_key, *map(headers.get, SESSION_HEADERS))
    return next((hint for hint in hints if hint), None)
