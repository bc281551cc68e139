"""`anchorline replay`: its figures, its exit codes, and what it says of other files."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from anchorline.adapters.cli.program import CliParts, build_cli
from anchorline.domain.errors import StateError
from anchorline.settings import ServeSettings
from anchorline.simulation.replays import Replays
from support.traces import a_session


def unused(*_: object) -> NoReturn:
    raise AssertionError("this command was not asked for")


def run(*arguments: object, replays: Callable[[], Any] = Replays) -> Result:
    parts = CliParts("1.2.3", ServeSettings, unused, unused, unused, replays=replays)
    runner = CliRunner(env={"COLUMNS": "80"})
    command = ["replay", *map(str, arguments)]
    return runner.invoke(build_cli(parts), command, prog_name="anchorline")


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    """Two sessions that take turns."""
    paths = [tmp_path / f"{name}.json" for name in ("one", "two")]
    for number, path in enumerate(paths):
        path.write_text(json.dumps(a_session(4, start_s=number)))
    return paths


def test_help_fits_a_screen() -> None:
    lines = run("--help").output.splitlines()

    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 80


def test_each_policy_has_its_figures(traces: list[Path]) -> None:
    result = run(*traces, "--window", 512, "--grid", 8)

    assert result.exit_code == 0
    assert "8 requests of 2 sessions, 952 prompt tokens in a window of 512" in result.stdout
    assert "unavoidable: 262 tokens" in result.stdout
    for policy in ("value", "lru", "cost-size"):
        assert f"{policy}: read 262 tokens, 1.000 times the unavoidable ones" in result.stdout


def test_all_figures_are_one_json_object(traces: list[Path]) -> None:
    result = run(*traces, "--window", 512, "--grid", 8, "--retention", "lru", "--json")

    found = json.loads(result.stdout)
    assert found["traces"] == ["one", "two"]
    assert (found["window"], found["grid"], found["slots"]) == (512, 8, 1)
    assert (found["ram_bytes"], found["row_bytes"]) == (2 << 30, 2 << 10)
    (policy,) = found["policies"]
    assert policy["retention"] == "lru"
    assert policy["ratio"] == 1.0


def test_the_requests_that_read_most_again_are_shown_where_asked(traces: list[Path]) -> None:
    asked = (*traces, "--window", 512, "--grid", 8, "--ram-bytes", 0, "--retention", "lru")

    without, two = run(*asked).stdout, run(*asked, "--worst", 2).stdout

    assert "request 3" not in without
    assert "  one request 3: read 155 of 155, unavoidable 16, from none" in two
    assert two.count("unavoidable 16") == 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"[]", "three: the trace is no JSON object"),
        (b'{"block_size": 64, "requests": [{}]}', "three: request 0 has no time `t`"),
    ],
)
def test_a_file_that_is_no_trace_is_the_callers_mistake(
    tmp_path: Path, traces: list[Path], content: bytes, told: str
) -> None:
    wrong = tmp_path / "three.json"
    wrong.write_bytes(content)

    result = run(*traces, wrong)

    assert result.exit_code == 2
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_two_traces_of_one_name_are_refused(tmp_path: Path, traces: list[Path]) -> None:
    again = tmp_path / "elsewhere" / "one.json"
    again.parent.mkdir()
    again.write_bytes(traces[0].read_bytes())

    result = run(*traces, again)

    assert result.exit_code == 2
    assert "two traces are called one" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--window", "1", "1 is less than 2"),
        ("--slots", "0", "0 is less than 1"),
        ("--grid", "-1", "-1 is less than 1"),
        ("--worst", "-1", "-1 is less than 0"),
        ("--retention", "lru,best", "'best'; the policies are value, lru, cost-size"),
        ("--ram-bytes", "much", "'much' is no number of bytes; one is 2.5GiB"),
    ],
)
def test_an_option_that_makes_no_sense_is_the_callers_mistake(
    traces: list[Path], option: str, value: str, told: str
) -> None:
    result = run(*traces, option, value)

    assert result.exit_code == 2
    assert told in result.stderr
    assert option in result.stderr


def test_a_wrong_state_is_a_failure_in_one_line(traces: list[Path]) -> None:
    class Wrong:
        requests = 8

        def read(self, traces: Mapping[str, object], window: int) -> "Wrong":
            assert window == 16_384
            assert list(traces) == ["one", "two"]
            return self

        def run(self, retention: str, **how: object) -> Mapping[str, Any]:
            raise StateError(f"a wrong state at line 7 under {retention} in {how['slots']} slots")

    result = run(*traces, "--slots", 3, replays=Wrong)

    assert result.exit_code == 1
    assert "anchorline: a wrong state at line 7 under value in 3 slots" in result.stderr
