"""`anchorline limits`, and what `anchorline stats` says of memory."""

import json
from collections.abc import Mapping

import pytest
from click.testing import CliRunner, Result

from anchorline.adapters.cli.program import CliParts, build_cli
from anchorline.adapters.cli.stats_table import Figure, Pool, Stats, stats_rows
from anchorline.domain.byte_size import GIB, MIB
from anchorline.settings import ServeSettings
from support.scripted_http import QuietHandler, served

IN_FORCE = {
    "pools": [
        {
            "pool": "host",
            "total": 8 * GIB,
            "available": 3 * GIB,
            "held": 2 * GIB,
            "limits": {
                "ceiling": {"bytes": 4 * GIB, "why": "as set"},
                "slack": {"bytes": 256 * MIB, "why": "an eighth"},
            },
            "caches": {"parked": 5},
        }
    ]
}


def run(*arguments: str, environ: Mapping[str, str] | None = None) -> Result:
    def unused(*_: object) -> None:
        raise AssertionError("this command was not asked for")

    parts = CliParts("1", ServeSettings, unused, unused, unused)  # type: ignore[arg-type]
    clean: dict[str, str | None] = dict.fromkeys(
        ("ANCHORLINE_DEBUG", "ANCHORLINE_API_KEY", "ANCHORLINE_ADMIN_KEY")
    )
    runner = CliRunner(env={**clean, "COLUMNS": "80", "NO_PROXY": "127.0.0.1", **(environ or {})})
    return runner.invoke(build_cli(parts), ["limits", *arguments], prog_name="anchorline")


def asked(*arguments: str) -> tuple[Result, list[tuple[str, str, object]]]:
    """What the command shows, and what it has asked of the server."""
    requests: list[tuple[str, str, object]] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802, the base's name
            requests.append(("GET", self.path, None))
            self.reply(200, json.dumps(IN_FORCE))

        def do_POST(self) -> None:  # noqa: N802, the base's name
            requests.append(("POST", self.path, json.loads(self.body())))
            self.reply(200, json.dumps(IN_FORCE))

    with served(Handler) as url:
        return run("--url", url, *arguments), requests


def test_without_a_limit_it_only_shows_what_is_in_force() -> None:
    result, requests = asked()

    assert result.exit_code == 0
    assert requests == [("GET", "/v1/cache/limits", None)]
    assert result.output.splitlines() == [
        "memory of the host: 2.0 GiB held, 3.0 GiB available",
        "  ceiling           4.0 GiB  as set",
        "  slack           256.0 MiB  an eighth",
    ]


def test_sizes_are_read_as_people_write_them_and_auto_leaves_one_to_the_server() -> None:
    _, requests = asked("--ceiling", "4GiB", "--slack", "auto", "--ram-bytes-max", "0")

    assert requests == [
        ("POST", "/v1/cache/limits", {"ceiling": 4 * GIB, "slack": None, "ram_bytes_max": 0})
    ]


def test_a_pool_can_be_named() -> None:
    _, requests = asked("--pool", "cuda:0", "--peak", "1GiB")

    assert requests == [("POST", "/v1/cache/limits", {"pool": "cuda:0", "peak": GIB})]


def test_what_is_no_size_is_refused_before_anybody_is_asked() -> None:
    result, requests = asked("--peak", "much")

    assert (result.exit_code, requests) == (2, [])
    assert "peak is 'much'; it must be a size as 2.5GiB, or auto" in result.output


def test_what_the_server_refuses_is_shown_as_it_says() -> None:
    class Handler(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802, the base's name
            self.body()
            self.reply(400, '{"error": {"message": "ceiling: too much"}}')

    with served(Handler) as url:
        result = run("--url", url, "--ceiling", "1TB")

    assert result.exit_code == 1
    assert result.output == "anchorline: ceiling: too much (status 400)\n"


def test_help_fits_a_screen() -> None:
    lines = run("--help").output.splitlines()

    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 80


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        (Pool("host", 2 * GIB, limits={"ceiling": Figure(4 * GIB)}), "2.0 GiB of 4.0 GiB"),
        (
            Pool(
                "host", GIB, limits={"ceiling": Figure(GIB)}, caches={"a": MIB, "b": MIB}, short=3
            ),
            "1.0 GiB of 1.0 GiB, 2.0 MiB in caches; 3 prompts did not fit",
        ),
    ],
)
def test_the_figures_have_a_row_for_each_pool(pool: Pool, text: str) -> None:
    assert ("memory of host", text) in list(stats_rows(Stats(memory=[pool])))
