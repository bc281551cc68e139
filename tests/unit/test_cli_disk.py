"""The commands around stored state: flush, clear and stats of a server, and verify without one."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from anchorline.adapters.cli.models_command import Flags
from anchorline.adapters.cli.program import CliParts, build_cli
from anchorline.adapters.cli.stats_table import Prefetch, Ram, Responses, Stats, stats_rows
from anchorline.adapters.cli.verify_command import Counted, VerifyStore
from anchorline.application.rebuild import RebuildReport
from anchorline.application.verify import Damage, VerifyReport
from anchorline.domain.byte_size import size
from anchorline.domain.errors import SettingsError, StorageUnavailable
from anchorline.domain.stored_entry import ObjectName
from anchorline.settings import ServeSettings
from support.scripted_http import QuietHandler, served

ROOT = Path(__file__).resolve().parents[2]

WHOLE = VerifyReport(
    objects=12,
    nbytes=3 << 20,
    damaged=0,
    damage=(),
    missing=0,
    entries=2,
    broken=0,
    orphans=0,
    orphan_bytes=0,
    strange=0,
    needs_rebuild=False,
)
NAME = ObjectName("ab" * 32 + "/blocks/cd/cd-ef.blk")
HURT = replace(WHOLE, damaged=1, damage=(Damage(NAME, "its checksum"),), broken=1)


def unused(*_: object) -> NoReturn:
    raise AssertionError("this command was not asked for")


def run(
    *arguments: str, verify: VerifyStore = unused, environ: Mapping[str, str] | None = None
) -> Result:
    parts = CliParts("1.2.3", ServeSettings, unused, unused, unused, verify)
    clean: dict[str, str | None] = dict.fromkeys(
        ("ANCHORLINE_DEBUG", "ANCHORLINE_CONFIG", "ANCHORLINE_API_KEY", "ANCHORLINE_ADMIN_KEY")
    )
    runner = CliRunner(env={**clean, "COLUMNS": "80", "NO_PROXY": "127.0.0.1", **(environ or {})})
    return runner.invoke(build_cli(parts), arguments, prog_name="anchorline")


@pytest.mark.parametrize("command", [(), ("flush",), ("clear",), ("stats",), ("verify",)])
def test_help_fits_a_screen(command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    lines = result.output.splitlines()

    assert result.exit_code == 0
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 80


def test_help_shows_no_key_that_is_set() -> None:
    environ = {"ANCHORLINE_API_KEY": "hunter2", "ANCHORLINE_ADMIN_KEY": "hunter2"}
    for command in ("flush", "clear", "stats"):
        assert "hunter2" not in run(command, "--help", environ=environ).output


# --- verify ---------------------------------------------------------------------------------------


@dataclass
class Asked:
    """A store that was gone over: what was asked for, and what is reported."""

    report: VerifyReport = WHOLE
    calls: list[tuple[Flags, Path | None, bool]] = field(
        default_factory=list[tuple[Flags, Path | None, bool]]
    )

    def __call__(
        self, flags: Flags, config: Path | None, repair: bool, progress: Counted
    ) -> VerifyReport:
        self.calls.append((dict(flags), config, repair))
        for done in range(31):
            progress(done, 30)
        return self.report


def raising(error: BaseException) -> VerifyStore:
    def verify(flags: Flags, config: Path | None, repair: bool, progress: Counted) -> VerifyReport:
        del flags, config, repair, progress
        raise error

    return verify


def test_a_whole_store_is_exit_code_0() -> None:
    result = run("verify", verify=Asked())

    assert result.exit_code == 0
    assert result.stdout == "12 objects, 3.0 MiB; 2 entries\nall is whole\n"


def test_verify_hands_on_what_was_given() -> None:
    asked = Asked()
    run("verify", "--cache-dir", "/kept", "--config", "a.toml", "--repair", verify=asked)
    run("verify", verify=asked)

    assert asked.calls == [
        ({"cache_dir": "/kept"}, Path("a.toml"), True),
        ({"cache_dir": None}, None, False),
    ]


def test_without_a_terminal_progress_is_a_line_for_each_tenth() -> None:
    lines = run("verify", verify=Asked()).stderr.splitlines()

    assert len(lines) == 10
    assert lines[0] == "checked 3 of 30 objects"
    assert lines[-1] == "checked 30 of 30 objects"


def test_an_empty_store_shows_no_progress() -> None:
    def verify(flags: Flags, config: Path | None, repair: bool, progress: Counted) -> VerifyReport:
        del flags, config, repair
        progress(0, 0)
        return replace(WHOLE, objects=0, nbytes=0, entries=0)

    assert run("verify", verify=verify).stderr == ""


class Terminal(io.StringIO):
    """A standard error that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_progress_is_a_bar() -> None:
    program = build_cli(CliParts("1", ServeSettings, unused, unused, unused, Asked()))
    with contextlib.redirect_stderr(Terminal()) as terminal:
        program.main(["verify"], prog_name="anchorline", standalone_mode=False)

    assert "checking" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_damage_is_exit_code_1_and_is_named() -> None:
    result = run("verify", verify=Asked(HURT))

    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == [
        f"damaged: {NAME}: its checksum",
        "found: 1 damaged, 1 broken entries",
        "damage was found",
    ]


def test_repaired_damage_is_exit_code_1_and_says_what_was_done() -> None:
    report = replace(HURT, repaired=True, shortened=1, deleted=2)
    result = run("verify", "--repair", verify=Asked(report))

    assert result.exit_code == 1
    assert result.stdout.splitlines()[-2:] == [
        "repaired: 1 objects moved aside, 1 entries shortened, 2 unneeded objects deleted",
        "damage was found and repaired",
    ]


def test_what_is_not_named_is_counted() -> None:
    result = run("verify", verify=Asked(replace(HURT, damaged=1000)))
    assert "damaged: 999 more\n" in result.stdout


def test_orphans_are_told_and_no_damage() -> None:
    result = run("verify", verify=Asked(replace(WHOLE, orphans=3, orphan_bytes=5 << 10)))

    assert result.exit_code == 0
    assert "3 objects that no entry needs, 5.0 KiB; the next start" in result.stdout


def test_a_lost_catalog_is_damage_that_a_start_repairs() -> None:
    result = run("verify", verify=Asked(replace(WHOLE, needs_rebuild=True)))

    assert result.exit_code == 1
    assert "the catalog is lost; the next start of a server makes it again\n" in result.stdout


def test_a_catalog_that_was_made_again_is_told() -> None:
    rebuilt = RebuildReport(objects=12, damaged=0, entries=2, lost=3)
    report = replace(WHOLE, needs_rebuild=True, repaired=True, rebuilt=rebuilt)
    result = run("verify", "--repair", verify=Asked(report))

    assert "made the catalog again: 2 entries; 3 anchors could not be taken up" in result.stdout


@pytest.mark.parametrize(
    "error",
    [StorageUnavailable("a server uses it"), SettingsError("no such"), OSError("no drive")],
    ids=lambda error: type(error).__name__,
)
def test_a_store_that_cannot_be_opened_is_exit_code_2(error: Exception) -> None:
    result = run("verify", verify=raising(error))

    assert result.exit_code == 2
    assert result.stderr == f"anchorline: {error}\n"
    assert result.stdout == ""


def test_debug_lets_an_error_of_verify_through() -> None:
    error = StorageUnavailable("a server uses it")
    assert run("--debug", "verify", verify=raising(error)).exception is error


def test_ctrl_c_ends_verify_quietly() -> None:
    assert run("verify", verify=raising(KeyboardInterrupt())).exit_code == 130


def test_verify_imports_nothing_before_it_is_asked_for() -> None:
    code = (
        "import sys; from anchorline.__main__ import main\n"
        "sys.argv = ['anchorline', 'verify', '--help']\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'litestar', 'httpx', 'numpy', 'sqlite3'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / ".path")},
        check=False,
    )
    assert result.returncode == 0, result.stderr


# --- a running server -----------------------------------------------------------------------------


@dataclass
class Script:
    """What the server answers, and what it was asked."""

    status: int = 200
    answer: object = None
    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    keys: list[tuple[str | None, str | None]] = field(
        default_factory=list[tuple[str | None, str | None]]
    )


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()

    class Handler(QuietHandler):
        def answer(self) -> None:
            script.asked.append((self.command, self.path))
            script.keys.append((self.headers["authorization"], self.headers["x-admin-key"]))
            text = script.answer if isinstance(script.answer, str) else json.dumps(script.answer)
            self.reply(script.status, text)

        do_GET = do_POST = answer  # noqa: N815, names of the base class

    with served(Handler) as script.url:
        yield script


def test_flush_posts_and_says_what_is_durable(script: Script) -> None:
    script.answer = {"durable": True, "saved": 2, "entries": 5, "longest": 4096}
    result = run("flush", "--url", script.url)

    assert result.exit_code == 0
    assert result.output == "durable: 5 entries, the longest of 4096 tokens; 2 saved now\n"
    assert script.asked == [("POST", "/v1/cache/flush")]


def test_flush_fails_with_the_servers_reason(script: Script) -> None:
    script.status = 503
    script.answer = {"durable": False, "error": {"message": "failed: 2"}}
    result = run("flush", "--url", script.url)

    assert result.exit_code == 1
    assert result.stderr == "anchorline: failed: 2\n"


def test_flush_fails_where_a_server_stops(script: Script) -> None:
    script.status = 503
    script.answer = {"error": {"message": "the server is stopping"}}
    result = run("flush", "--url", script.url)

    assert result.exit_code == 1
    assert "the server is stopping" in result.stderr


@pytest.mark.parametrize(
    ("options", "path", "said"),
    [
        ((), "?tier=ram", "7 tokens left memory\n"),
        (("--tier", "disk"), "?tier=disk", "2.0 KiB left the disk\n"),
        (("--tier", "all"), "?tier=all", "7 tokens left memory; 2.0 KiB left the disk\n"),
    ],
)
def test_clear_says_what_was_freed(
    script: Script, options: tuple[str, ...], path: str, said: str
) -> None:
    script.answer = {"tier": "ram", "ram_tokens": 7, "disk_bytes": 2048}
    result = run("clear", *options, "--url", script.url)

    assert result.output == said
    assert script.asked == [("POST", f"/v1/cache/clear{path}")]


def test_clear_knows_the_tiers() -> None:
    result = run("clear", "--tier", "tape")
    assert result.exit_code == 2
    assert "tape" in result.stderr


@pytest.mark.parametrize("command", ["flush", "clear", "stats"])
def test_both_keys_are_sent_where_they_belong(script: Script, command: str) -> None:
    script.answer = {"durable": True, "ram_tokens": 0, "disk_bytes": 0}
    run(command, "--url", script.url, "--api-key", "a", "--admin-key", "b")
    environ = {"ANCHORLINE_API_KEY": "c", "ANCHORLINE_ADMIN_KEY": "d", "ANCHORLINE_URL": script.url}
    run(command, environ=environ)
    run(command, "--url", script.url)

    assert script.keys == [("Bearer a", "b"), ("Bearer c", "d"), (None, None)]


@pytest.mark.parametrize("command", ["flush", "clear", "stats"])
def test_a_refusal_is_one_line(script: Script, command: str) -> None:
    script.status = 401
    script.answer = {"error": {"message": "this route needs the admin key"}}
    result = run(command, "--url", script.url)

    assert result.exit_code == 1
    assert result.stderr == (
        "anchorline: this route needs the admin key; give the key with --admin-key or --api-key "
        "(status 401)\n"
    )


@pytest.mark.parametrize("command", ["flush", "clear", "stats"])
def test_another_server_is_one_line(script: Script, command: str) -> None:
    script.answer = "<html>hello</html>"
    result = run(command, "--url", script.url)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"anchorline: {script.url} is no server of this program")


@pytest.mark.parametrize("command", ["flush", "clear", "stats"])
@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense"])
def test_where_no_server_is_the_error_says_so(command: str, url: str) -> None:
    result = run(command, "--url", url)

    assert result.exit_code == 1
    assert url in result.stderr
    assert len(result.stderr.splitlines()) == 1


# --- the table ------------------------------------------------------------------------------------

FIGURES: dict[str, object] = {
    "enabled": True,
    "slots": [
        {"slot": 0, "length": 100, "taint": 90, "anchors": [32, 64], "end": 99, "busy": True},
        {"slot": 1, "length": 0, "taint": 0, "anchors": [], "end": None, "busy": False},
        {"slot": 2, "length": 50, "taint": 50, "anchors": [], "end": None, "busy": False},
    ],
    "queued": 2,
    "running": 1,
    "requests": 10,
    "misses": 3,
    "hits": {"end": 5, "conversation": 2},
    "tokens_cached": {"end": 600, "conversation": 150},
    "tokens_reread": 250,
    "disk": {
        "bytes_used": 3 << 30,
        "bytes_free": 5 << 30,
        "bytes_max": 80 << 30,
        "entries": {"head": 1, "conversation": 3},
        "foreign": 1,
        "restores": 4,
        "bytes_read": 1 << 20,
        "evicted": 2,
        "quarantined": 1,
        "pending_writes": 0,
        "read_bytes_per_s": 2.0 * (1 << 30),
        "written_by_day": {"2026-11-29": {"head": 1024, "conversation": 2048}},
        "write_level": "ok",
    },
    "something_new": 1,
}


def test_figures_are_shown_as_a_table(script: Script) -> None:
    script.answer = FIGURES
    result = run("stats", "--url", script.url)

    assert result.exit_code == 0
    assert result.output == (
        "requests              10: 7 resumed, 3 cold\n"
        "resumed from          conversation 2, end 5\n"
        "prompt tokens         750 cached, 250 re-read (75% cached)\n"
        "now                   1 running, 2 waiting\n"
        "slot 0                100 tokens, clean up to 90, 2 anchors, end at 99; busy\n"
        "slot 1                empty\n"
        "slot 2                50 tokens, all clean, 0 anchors, no end kept; idle\n"
        "disk                  3.0 GiB of 80.0 GiB, 5.0 GiB free\n"
        "disk entries          conversation 3, head 1; 1 of other models\n"
        "disk reads            4 restores, 1.0 MiB at 2.0 GiB/s\n"
        "disk writes           0 pending; the day's budget: ok\n"
        "gone                  2 entries evicted, 1 objects quarantined\n"
        "written 2026-11-29    3.0 KiB: conversation 2.0 KiB, head 1.0 KiB\n"
    )
    assert max(len(line) for line in result.output.splitlines()) <= 80


def test_json_is_the_servers_own(script: Script) -> None:
    script.answer = FIGURES
    assert json.loads(run("stats", "--json", "--url", script.url).output) == FIGURES


@pytest.mark.parametrize(
    ("stats", "row"),
    [
        (Stats(), ("disk", "off")),
        (Stats(enabled=False), ("cache", "off: every request starts cold")),
        (Stats(), ("prompt tokens", "0 cached, 0 re-read")),
        (
            Stats(prefetch=Prefetch(begun=3, arrived=2, bytes_read=2048)),
            ("read ahead", "2 of 3 entries, 2.0 KiB"),
        ),
        (Stats(ram=Ram(healed=2)), ("healed", "2 entries were read again on the grid")),
        (
            Stats(responses=Responses(answers=2, bytes_held=512, bytes_max=2048, hits=1, misses=3)),
            ("answers kept", "2 in 512 B of 2.0 KiB; 1 of 4 requests were answered so"),
        ),
    ],
)
def test_what_is_off_or_empty_is_said(stats: Stats, row: tuple[str, str]) -> None:
    assert row in list(stats_rows(stats))


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_bytes_are_shown_as_people_write_them(nbytes: int, shown: str) -> None:
    assert size(nbytes) == shown
