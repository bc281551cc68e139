"""`anchorline peek`: what a request would resume from on a running server."""

from collections.abc import Iterator
from typing import BinaryIO, cast

import click
import msgspec

from ...domain.errors import RequestError
from .admin_client import AdminClient
from .cache_commands import decoded, server_options


class Nearest(msgspec.Struct):
    """The kept sequence that has most of the prompt."""

    shares: int
    parts_at: int | None


class Peeked(msgspec.Struct):
    """The answer of `/v1/cache/peek`."""

    tier: str
    source: str
    line: int
    gate: str
    reread_tokens: int
    reread_eta_ms: float
    restore_ms: float
    tokens: int
    session: str | None
    nearest: Nearest


def peek_command() -> click.Command:
    """The command."""

    def peek(
        body: BinaryIO, url: str, api_key: str | None, admin_key: str | None, raw: bool
    ) -> None:
        asked = _body(body)
        with AdminClient(url, api_key, admin_key) as client:
            answer = client.ask("POST", "/v1/cache/peek", body=asked)
        if raw:
            click.echo(answer.body.decode("utf-8", "replace"))
            return
        for label, text in peek_rows(decoded(answer.body, Peeked, url)):
            click.echo(f"{label:<14}  {text}")

    return click.Command(
        "peek",
        callback=peek,
        params=[
            click.Argument(["body"], type=click.File("rb"), default="-"),
            click.Option(["--json", "raw"], is_flag=True, help="As the server gives it."),
            *server_options(),
        ],
        short_help="Show what a request would resume from.",
        help="Show what a request would resume from on a running server. BODY is a file with the "
        "JSON body of a chat or a completion; without one it is read from the standard input. "
        "Nothing is run, and nothing is counted.",
    )


def peek_rows(peeked: Peeked) -> Iterator[tuple[str, str]]:
    """What is told of it, by label."""
    if peeked.tier == "none":
        yield "resumes from", "nothing"
    else:
        yield "resumes from", f"{peeked.source}, in the tier {peeked.tier}; {peeked.gate}"
    yield "cached", f"{peeked.line} of {peeked.tokens} tokens"
    yield "to be read", f"{peeked.reread_tokens} tokens"
    if peeked.restore_ms:
        yield "restore", f"{peeked.restore_ms:.1f} ms"
    yield "first token", f"after {peeked.reread_eta_ms:.1f} ms"
    yield "nearest kept", _nearest(peeked.nearest)
    if peeked.session is not None:
        yield "session", peeked.session


def _nearest(nearest: Nearest) -> str:
    if nearest.parts_at is None:
        return "has all of it"
    if nearest.shares == 0:
        return "nothing begins alike"
    if nearest.parts_at == nearest.shares:
        return f"parts from it after {nearest.shares} tokens"
    return f"parts from it after {nearest.shares} to {nearest.parts_at} tokens"


def _body(file: BinaryIO) -> dict[str, object]:
    """The body that is to be asked about.

    Raises:
        RequestError: it is none.
    """
    try:
        found: object = msgspec.json.decode(file.read())
    except msgspec.DecodeError as error:
        raise RequestError(f"BODY is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestError("BODY is no body of a request: a JSON object with messages, or a prompt")
    return cast("dict[str, object]", found)
