"""POST /v1/cache/sessions/{session}/close."""

from typing import Any, Final

from litestar import Request, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from msgspec import Struct

from ...domain.errors import RequestError
from ...domain.namespace import Namespace
from .auth import ADMIN
from .decoding import decode
from .serving import Serving

BODY_BYTES_MAX: Final = 16384
"""More than the longest salt takes, whatever its characters."""


class CloseBody(Struct, frozen=True):
    """Whose session is meant.

    Attributes:
        cache_salt: of the session's requests; None closes it under every salt.
    """

    cache_salt: str | None = None


class ClosedBody(Struct, frozen=True):
    """How many places were known as the newest of the session; what stands there stays."""

    closed: int


@post("/v1/cache/sessions/{session:str}/close", status_code=200, opt=dict(ADMIN))
async def cache_session_close(
    request: Request[Any, Any, Any], session: FromPath[str], serving: NamedDependency[Serving]
) -> ClosedBody:
    """A session is over: nothing is kept for its sake any more, and what is kept stays."""
    namespace = _namespace(await request.body())
    closed: int = await serving.questions.ask(
        lambda answer: serving.service.close_session(session, namespace, answer),
        serving.stats_timeout_s,
    )
    return ClosedBody(closed)


def _namespace(data: bytes) -> Namespace | None:
    """The only one that is meant; None where all are."""
    if len(data) > BODY_BYTES_MAX:
        raise RequestError(f"a body of {len(data)} bytes is longer than any of this route's")
    body = decode(data, CloseBody) if data.strip() else CloseBody()
    return None if body.cache_salt is None else Namespace(salt=body.cache_salt)
