"""`anchorline peek`: what is asked of a server, and what is shown."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from anchorline.adapters.cli.program import CliParts, build_cli
from anchorline.settings import ServeSettings
from support.scripted_http import QuietHandler, served

CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
ON_DISK = {
    "tier": "disk",
    "source": "conversation",
    "line": 4096,
    "gate": "preserved",
    "cached_tokens": 4096,
    "reread_tokens": 904,
    "reread_eta_ms": 350.125,
    "restore_ms": 12.0,
    "tokens": 5000,
    "session": "mine",
    "nearest": {"shares": 4096, "parts_at": 5000},
}
NOTHING = {
    **ON_DISK,
    "tier": "none",
    "source": "none",
    "line": 0,
    "restore_ms": 0.0,
    "session": None,
    "nearest": {"shares": 0, "parts_at": 0},
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

    def run(self, *arguments: str, sent: object = CHAT) -> Result:
        parts = CliParts("1", ServeSettings, unused, unused, unused)
        runner = CliRunner(env={"NO_PROXY": "127.0.0.1", "ANCHORLINE_URL": self.url})
        stdin = sent if isinstance(sent, str) else json.dumps(sent)
        command = ["peek", *arguments]
        return runner.invoke(build_cli(parts), command, input=stdin, prog_name="anchorline")


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script(answer=ON_DISK)

    class Handler(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802, the base's name
            script.asked.append((self.path, json.loads(self.body())))
            self.reply(script.status, json.dumps(script.answer))

    with served(Handler) as script.url:
        yield script


def test_what_a_request_would_resume_from_is_told_in_words(script: Script) -> None:
    result = script.run()

    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "resumes from    conversation, in the tier disk; preserved",
        "cached          4096 of 5000 tokens",
        "to be read      904 tokens",
        "restore         12.0 ms",
        "first token     after 350.1 ms",
        "nearest kept    parts from it after 4096 to 5000 tokens",
        "session         mine",
    ]
    assert script.asked == [("/v1/cache/peek", CHAT)]


@pytest.mark.parametrize(
    ("nearest", "text"),
    [
        ({"shares": 0, "parts_at": 0}, "nothing begins alike"),
        ({"shares": 43, "parts_at": 43}, "parts from it after 43 tokens"),
        ({"shares": 5000, "parts_at": None}, "has all of it"),
    ],
)
def test_where_the_nearest_kept_sequence_parts_is_told(
    script: Script, nearest: object, text: str
) -> None:
    script.answer = {**NOTHING, "nearest": nearest}

    lines = script.run().output.splitlines()

    assert lines[0] == "resumes from    nothing"
    assert lines[-1] == f"nearest kept    {text}"
    assert not any(line.startswith(("restore", "session")) for line in lines)


def test_the_body_may_stand_in_a_file(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text(json.dumps({"prompt": [1, 2, 3]}))

    result = script.run(str(file), sent="")

    assert result.exit_code == 0
    assert script.asked == [("/v1/cache/peek", {"prompt": [1, 2, 3]})]


def test_as_json_it_is_told_as_the_server_tells_it(script: Script) -> None:
    assert json.loads(script.run("--json").output) == ON_DISK


@pytest.mark.parametrize(
    ("sent", "text"), [("{", "BODY is not JSON"), ("[1]", "BODY is no body of a request")]
)
def test_what_is_no_body_is_not_sent(script: Script, sent: str, text: str) -> None:
    result = script.run(sent=sent)

    assert result.exit_code == 2
    assert result.output.startswith(f"anchorline: {text}")
    assert script.asked == []


def test_what_the_server_refuses_is_told(script: Script) -> None:
    script.status, script.answer = 400, {"error": {"message": "there is no message to answer"}}

    result = script.run(sent={"messages": []})

    assert result.exit_code == 1
    assert result.output == "anchorline: there is no message to answer (status 400)\n"
