"""POST /v1/cache/verify."""

from typing import Any, Final

from litestar import Request, post
from litestar.di import NamedDependency
from msgspec import Struct

from ...application.live_verify import SAMPLES_MAX
from ...application.live_verify_report import Found, LiveReport, Skipped
from ...domain.errors import RequestError, Unavailable
from .auth import ADMIN
from .decoding import decode
from .questions import NotInTime
from .serving import Serving
from .stats_reader import RETRY_AFTER_S

VERIFIES_OPEN_MAX: Final = 4
"""How many calls may wait for their entries."""

SAMPLES_DEFAULT: Final = 8

ENTRY_CHARACTERS_MAX: Final = 200
BODY_BYTES_MAX: Final = 4096


class VerifyBody(Struct, frozen=True):
    """What is to be verified.

    Attributes:
        samples: entries at most; those that were not verified for the longest come first.
        entry: the id of the only one.
    """

    samples: int | None = None
    entry: str | None = None


class VerifiedBody(Struct, frozen=True):
    """What came of it.

    Attributes:
        finished: False where the server began to stop before it was done.
        samples: entries that were judged.
        tokens: that were forwarded for it.
    """

    finished: bool
    samples: int
    tokens: int
    mismatches: tuple[Found, ...]
    skipped: tuple[Skipped, ...]


@post("/v1/cache/verify", status_code=200, opt=dict(ADMIN))
async def cache_verify(
    request: Request[Any, Any, Any], serving: NamedDependency[Serving]
) -> VerifiedBody:
    """Recompute kept state cold while nobody asks for anything, and hold it against itself."""
    samples, entry = _wanted(await request.body())
    try:
        report: LiveReport = await serving.verifies.ask(
            lambda answer: serving.service.verify(samples, entry, answer),
            serving.verify_timeout_s,
        )
    except NotInTime:
        raise Unavailable(
            "it goes on; what it finds will stand in /v1/cache/stats and in the log",
            retry_after_s=RETRY_AFTER_S,
        ) from None
    return VerifiedBody(
        report.finished, report.samples, report.tokens, report.mismatches, report.skipped
    )


def _wanted(data: bytes) -> tuple[int, str | None]:
    if len(data) > BODY_BYTES_MAX:
        raise RequestError(f"a body of {len(data)} bytes is longer than any of this route's")
    body = decode(data, VerifyBody) if data.strip() else VerifyBody()
    samples = SAMPLES_DEFAULT if body.samples is None else body.samples
    if not 1 <= samples <= SAMPLES_MAX:
        raise RequestError(f"{samples} is not between 1 and {SAMPLES_MAX}", field="samples")
    if body.entry is not None and not 1 <= len(body.entry) <= ENTRY_CHARACTERS_MAX:
        raise RequestError("that is no id of an entry", field="entry")
    return samples, body.entry
