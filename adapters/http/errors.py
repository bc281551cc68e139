"""Errors as OpenAI's API spells them: the one place where an exception becomes an answer."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException
from msgspec import Struct

from ...domain.errors import (
    AnchorlineError,
    Cancelled,
    Draining,
    MemoryShort,
    QueueFull,
    RequestError,
    Unavailable,
)

_log = logging.getLogger("anchorline.http")

_INVALID = "invalid_request_error"
_SERVER = "server_error"
_CLIENT_CLOSED_REQUEST = 499


class ErrorDetail(Struct, frozen=True):
    """What went wrong.

    Attributes:
        param: the body's field at fault, in dotted form (`messages.0.content`), or None.
        code: the machine-readable reason.
    """

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Struct, frozen=True):
    """The body of every answer that is an error."""

    error: ErrorDetail


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """A status with its body and what headers it needs."""

    status: int
    body: ErrorBody
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def error_answer(error: BaseException) -> ErrorAnswer:
    """The answer an exception becomes; one that nobody planned for is logged and not shown."""
    match error:
        case RequestError():
            return _bad_request(error)
        case Unavailable():
            return ErrorAnswer(
                503,
                _body(str(error), _SERVER, _unavailable_code(error)),
                {"Retry-After": str(error.retry_after_s)},
            )
        case Cancelled():
            return ErrorAnswer(_CLIENT_CLOSED_REQUEST, _body(str(error), _SERVER, "cancelled"))
        case AnchorlineError():
            return ErrorAnswer(500, _body(str(error), _SERVER, "engine_error"))
        case _:
            _log.error("a request failed for a fault of ours", exc_info=error)
            return ErrorAnswer(500, _body("internal error", _SERVER, "internal_error"))


class ErrorHandler:
    """Litestar's handler of every exception."""

    def __init__(self, *, body_bytes_max: int) -> None:
        """Takes the limit that a 413 names."""
        self._body_bytes_max = body_bytes_max

    def __call__(self, request: Request[Any, Any, Any], error: Exception) -> Response[ErrorBody]:
        answer = (
            self._of_http(request, error)
            if isinstance(error, HTTPException)
            else error_answer(error)
        )
        return Response(
            answer.body,
            status_code=answer.status,
            headers=dict(answer.headers),
            media_type=MediaType.JSON,
        )

    def _of_http(self, request: Request[Any, Any, Any], error: HTTPException) -> ErrorAnswer:
        """What Litestar refused before a route was reached, or a guard in front of it."""
        path = request.scope["path"]
        message, code = {
            401: (error.detail, "invalid_api_key"),
            403: (error.detail, "forbidden"),
            404: (f"there is no {request.method} {path} on this server", "unknown_url"),
            405: (f"{path} does not take {request.method}", "method_not_allowed"),
            413: (f"the body is longer than {self._body_bytes_max} bytes", "request_too_large"),
        }.get(error.status_code, (error.detail, "invalid_request"))
        kind = _INVALID if error.status_code < 500 else _SERVER
        return ErrorAnswer(error.status_code, _body(message, kind, code), error.headers or {})


def _bad_request(error: RequestError) -> ErrorAnswer:
    # The field stands in the text too: people read the message, programs read `param`.
    message = str(error) if error.field is None else f"{error.field}: {error}"
    status = 404 if error.code == "model_not_found" else 400
    return ErrorAnswer(status, _body(message, _INVALID, error.code, error.field))


def _unavailable_code(error: Unavailable) -> str:
    match error:
        case QueueFull():
            return "queue_full"
        case MemoryShort():
            return "memory_short"
        case Draining():
            return "draining"
        case _:
            return "unavailable"


def _body(message: str, kind: str, code: str, param: str | None = None) -> ErrorBody:
    return ErrorBody(ErrorDetail(message, kind, param, code))
