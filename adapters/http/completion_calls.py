"""From a completion body to a call of the service."""

from collections.abc import Mapping, Sequence
from typing import Final

from ...application.calls import CompletionCall
from ...domain.errors import RequestError
from ...domain.tokens import TokenIds, token_ids
from .wire_completions import CompletionBody
from .wishes import wish_of

LOGPROBS_MAX: Final = 20
"""Alternatives per token; as many as chats may ask for."""


def completion_call(body: CompletionBody, headers: Mapping[str, str]) -> CompletionCall:
    """The call a body stands for.

    Args:
        headers: by lower-case name.

    Raises:
        RequestError: a field asks for what cannot be served.
    """
    _check_supported(body)
    if body.logprobs is not None and not 0 <= body.logprobs <= LOGPROBS_MAX:
        raise RequestError(f"{body.logprobs} is not between 0 and {LOGPROBS_MAX}", field="logprobs")
    wish = wish_of(body, headers, max_tokens=body.max_tokens, top_logprobs=body.logprobs)
    return CompletionCall(_prompt(body.prompt), wish)


def _check_supported(body: CompletionBody) -> None:
    asked_for = {
        "best_of": body.best_of not in {None, 1},
        "echo": bool(body.echo),
        "suffix": bool(body.suffix),
    }
    for field, asked in asked_for.items():
        if asked:
            raise RequestError("this is not supported", field=field, code="unsupported")


def _prompt(prompt: str | list[str | int | list[int]]) -> str | TokenIds:
    match prompt:
        case str():
            return prompt
        case [str() as text]:
            return text
        case [list() as ids]:
            return _ids(ids)
        case [int(), *_]:
            return _ids(_only_ids(prompt))
        case []:
            raise RequestError("the prompt is empty", field="prompt")
        case _:
            raise RequestError(
                f"this server takes one prompt per request, not {len(prompt)}",
                field="prompt",
                code="unsupported",
            )


def _only_ids(prompt: Sequence[str | int | list[int]]) -> list[int]:
    ids: list[int] = []
    for at, index in enumerate(prompt):
        if not isinstance(index, int):
            raise RequestError("the other items are token ids", field=f"prompt.{at}")
        ids.append(index)
    return ids


def _ids(ids: list[int]) -> TokenIds:
    try:
        return token_ids(ids)
    except ValueError as error:
        raise RequestError(str(error), field="prompt") from error
