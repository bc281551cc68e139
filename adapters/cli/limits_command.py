"""`anchorline limits`: how much memory a running server may take."""

from collections.abc import Iterator
from typing import Final

import click
import msgspec

from ...domain.byte_size import bytes_from, size
from ...domain.errors import SettingsError
from .admin_client import AdminClient
from .cache_commands import decoded, server_options
from .stats_table import Pool

PATH: Final = "/v1/cache/limits"

COMPUTED: Final = "auto"
"""Leaves a limit to the server."""


class _Pools(msgspec.Struct):
    """The answer, whether limits were set or only asked for."""

    pools: list[Pool]


def limits_command() -> click.Command:
    """The command, which sets what it is given, and shows what is in force."""

    def limits(
        url: str, api_key: str | None, admin_key: str | None, pool: str | None, **wanted: str | None
    ) -> None:
        changes = {name: _bytes(name, text) for name, text in wanted.items() if text is not None}
        with AdminClient(url, api_key, admin_key) as client:
            if changes:
                body = changes if pool is None else {"pool": pool, **changes}
                answer = client.ask("POST", PATH, body=body)
            else:
                answer = client.ask("GET", PATH)
        for line in _lines(decoded(answer.body, _Pools, url).pools):
            click.echo(line)

    return click.Command(
        "limits",
        callback=limits,
        params=[
            _limit("--ceiling", "Of all it holds between requests."),
            _limit("--peak", "Of all it holds during a prefill."),
            _limit("--slack", "Of free blocks that it keeps."),
            _limit("--ram-bytes-max", "For conversations that lost their slot."),
            click.Option(["--pool"], metavar="NAME", help="Whose; the one that the model runs in."),
            *server_options(),
        ],
        short_help="Show and set how much memory a server may take.",
        help="Show how much memory a running server may take, and set what is given. BYTES as "
        "2.5GiB; auto leaves a limit to the server. A restart forgets what was set.",
    )


def _limit(name: str, text: str) -> click.Option:
    return click.Option([name], metavar="BYTES", help=text)


def _bytes(name: str, text: str) -> int | None:
    if text == COMPUTED:
        return None
    try:
        return bytes_from(text)
    except ValueError as error:
        raise SettingsError(f"{name} is {text!r}; it must be a size as 2.5GiB, or auto") from error


def _lines(pools: list[Pool]) -> Iterator[str]:
    for pool in pools:
        yield f"memory of the {pool.pool}: {size(pool.held)} held, {size(pool.available)} available"
        for name, figure in pool.limits.items():
            yield f"  {name:<14} {size(figure.bytes):>10}  {figure.why}"
