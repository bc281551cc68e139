"""`anchorline verify --live`: what is asked of a server, what is shown, and the exit code."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from anchorline.adapters.cli.program import CliParts, build_cli
from anchorline.settings import ServeSettings
from support.scripted_http import QuietHandler, served

WHOLE: dict[str, object] = {
    "finished": True,
    "samples": 2,
    "tokens": 398,
    "mismatches": [],
    "skipped": [],
}
WRONG = {
    "entry": "slot-0",
    "tier": "slot",
    "gate": "bitwise",
    "kind": "bitwise_rows",
    "line": 96,
    "part": "layer3.keys",
    "row": 70,
    "dump": "0000000001-verify.json",
}


def unused(*_: object) -> NoReturn:
    raise AssertionError("this command was not asked for")


@dataclass
class Script:
    """What the server answers, and what it was asked."""

    status: int = 200
    answer: object = None
    url: str = ""
    asked: list[tuple[str, object]] = field(default_factory=list[tuple[str, object]])

    def run(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Result:
        parts = CliParts("1", ServeSettings, unused, unused, unused, unused)
        runner = CliRunner(env={"NO_PROXY": "127.0.0.1", **(environ or {})})
        command = ["verify", *arguments, "--url", self.url]
        return runner.invoke(build_cli(parts), command, prog_name="anchorline")


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script(answer=WHOLE)

    class Handler(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802, the base's name
            script.asked.append((self.path, json.loads(self.body())))
            self.reply(script.status, json.dumps(script.answer))

    with served(Handler) as script.url:
        yield script


def test_a_server_whose_state_is_right_is_exit_code_0(script: Script) -> None:
    result = script.run("--live")

    assert result.exit_code == 0
    assert result.output == ("2 entries verified, 398 tokens recomputed\nall is as it should be\n")
    assert script.asked == [("/v1/cache/verify", {})]


def test_what_is_wanted_is_handed_on(script: Script) -> None:
    script.run("--live", "--samples", "3")
    script.run("--live", "--entry", "slot-0")

    assert [body for _, body in script.asked] == [{"samples": 3}, {"entry": "slot-0"}]


def test_wrong_states_are_a_table_and_exit_code_1(script: Script) -> None:
    script.answer = {**WHOLE, "mismatches": [WRONG, {**WRONG, "row": None, "dump": None}]}
    result = script.run("--live")

    assert result.exit_code == 1
    assert result.output.splitlines()[1:] == [
        "entry   what departs  part         row  line  file",
        "slot-0  bitwise_rows  layer3.keys  70   96    0000000001-verify.json",
        "slot-0  bitwise_rows  layer3.keys  -    96    none",
        "2 wrong states were found and given up",
    ]


def test_what_could_not_be_judged_is_told(script: Script) -> None:
    skipped = {"entry": "slot-0", "why": "it was replaced meanwhile"}
    script.answer = {**WHOLE, "samples": 0, "skipped": [skipped]}
    result = script.run("--live")

    assert result.exit_code == 0
    assert "skipped: slot-0: it was replaced meanwhile\n" in result.output
    assert "as it should be" not in result.output


def test_an_entry_that_is_not_there_is_exit_code_2(script: Script) -> None:
    skipped = {"entry": "slot-7", "why": "nothing that can be resumed has this id"}
    script.answer = {**WHOLE, "samples": 0, "skipped": [skipped]}
    result = script.run("--live", "--entry", "slot-7")

    assert result.exit_code == 2
    assert result.stderr == "anchorline: slot-7: nothing that can be resumed has this id\n"


def test_a_server_that_verifies_nothing_is_exit_code_2(script: Script) -> None:
    script.status, script.answer = 400, {"error": {"message": "start it with --verify on"}}
    result = script.run("--live")

    assert result.exit_code == 2
    assert "start it with --verify on" in result.stderr


def test_a_server_that_stops_meanwhile_is_exit_code_2(script: Script) -> None:
    script.answer = {**WHOLE, "finished": False}

    assert script.run("--live").exit_code == 2


@pytest.mark.parametrize(
    "arguments", [("--live", "--repair"), ("--live", "--cache-dir", "x"), ("--samples", "3")]
)
def test_options_that_do_not_go_together_are_refused(
    script: Script, arguments: tuple[str, ...]
) -> None:
    result = script.run(*arguments)

    assert result.exit_code == 2
    assert script.asked == []


def test_a_configuration_file_in_the_environment_does_not_matter(script: Script) -> None:
    assert script.run("--live", environ={"ANCHORLINE_CONFIG": "a.toml"}).exit_code == 0
