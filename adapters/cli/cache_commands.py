"""`anchorline flush`, `clear` and `stats`: the cache of a running server."""

from collections.abc import Callable
from typing import TypeVar

import click
import msgspec

from ...domain.byte_size import size
from .admin_client import AdminClient, AdminFailed
from .stats_table import Stats, stats_rows

_T = TypeVar("_T")


class _Why(msgspec.Struct):
    message: str = "not durable"


class _Flushed(msgspec.Struct):
    """The answer to a flush, or to one that a stopping server refuses."""

    durable: bool = False
    saved: int = 0
    entries: int = 0
    longest: int = 0
    error: _Why | None = None


class _Cleared(msgspec.Struct):
    """The answer to a clear."""

    ram_tokens: int
    disk_bytes: int


def flush_command() -> click.Command:
    """The command, which fails unless everything is durable."""

    def flush(url: str, api_key: str | None, admin_key: str | None) -> None:
        with AdminClient(url, api_key, admin_key) as client:
            answer = client.ask("POST", "/v1/cache/flush", bad_status=503)
        flushed = decoded(answer.body, _Flushed, url)
        if not flushed.durable:
            raise AdminFailed((flushed.error or _Why()).message)
        click.echo(
            f"durable: {flushed.entries} entries, the longest of {flushed.longest} tokens; "
            f"{flushed.saved} saved now"
        )

    return _server_command(
        "flush",
        flush,
        short_help="Make all conversations of a server durable.",
        help="Write every conversation of a running server to its disk, and wait for it. Fails if "
        "anything is not durable afterwards.",
    )


def clear_command() -> click.Command:
    """The command."""

    def clear(url: str, api_key: str | None, admin_key: str | None, tier: str) -> None:
        with AdminClient(url, api_key, admin_key) as client:
            answer = client.ask("POST", f"/v1/cache/clear?tier={tier}")
        cleared = decoded(answer.body, _Cleared, url)
        freed = {
            "ram": f"{cleared.ram_tokens} tokens left memory",
            "disk": f"{size(cleared.disk_bytes)} left the disk",
        }
        click.echo("; ".join(text for name, text in freed.items() if tier in (name, "all")))

    return _server_command(
        "clear",
        clear,
        click.Option(
            ["--tier"],
            type=click.Choice(["ram", "disk", "all"]),
            default="ram",
            show_default=True,
            help="What is cleared.",
        ),
        short_help="Forget what a server keeps and nothing is using.",
        help="Forget what a running server keeps and nothing is using.",
    )


def stats_command() -> click.Command:
    """The command."""

    def stats(url: str, api_key: str | None, admin_key: str | None, raw: bool) -> None:
        with AdminClient(url, api_key, admin_key) as client:
            answer = client.ask("GET", "/v1/cache/stats")
        if raw:
            click.echo(answer.body.decode("utf-8", "replace"))
            return
        for label, text in stats_rows(decoded(answer.body, Stats, url)):
            click.echo(f"{label:<20}  {text}")

    return _server_command(
        "stats",
        stats,
        click.Option(["--json", "raw"], is_flag=True, help="As the server gives it."),
        short_help="Show the figures of a server's cache.",
        help="Show the figures of a running server's cache.",
    )


def _server_command(
    name: str,
    callback: Callable[..., None],
    *options: click.Option,
    short_help: str,
    help: str,  # noqa: A002, click's name for it
) -> click.Command:
    """A command for a running server."""
    return click.Command(
        name,
        callback=callback,
        params=[*options, *server_options()],
        short_help=short_help,
        help=help,
    )


def client_options() -> list[click.Parameter]:
    """Where a running server is, and its key."""
    return [
        click.Option(
            ["--url"],
            default="http://127.0.0.1:8000",
            show_default=True,
            envvar="ANCHORLINE_URL",
            metavar="URL",
            help="Of the server.",
        ),
        click.Option(
            ["--api-key"],
            envvar="ANCHORLINE_API_KEY",
            metavar="KEY",
            help="Better given as ANCHORLINE_API_KEY: others see a command's options.",
        ),
    ]


def server_options() -> list[click.Parameter]:
    """Where a running server is, and its keys."""
    return [
        *client_options(),
        click.Option(
            ["--admin-key"],
            envvar="ANCHORLINE_ADMIN_KEY",
            metavar="KEY",
            help="The same, where the server has one; as ANCHORLINE_ADMIN_KEY.",
        ),
    ]


def decoded(body: bytes, kind: type[_T], url: str) -> _T:
    """An answer as a struct.

    Raises:
        AdminFailed: it is another one than this program knows.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise AdminFailed(f"{url} is no server of this program's version: {error}") from error
