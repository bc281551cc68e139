"""The chat against a small server of OpenAI's API that answers from a script."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from anchorline.adapters.cli.chat_client import ChatClient, stream_lines
from anchorline.adapters.cli.chat_command import chat_command
from anchorline.adapters.cli.chat_session import ChatSession
from anchorline.adapters.cli.program import CliParts, build_cli
from anchorline.settings import ServeSettings

FIGURES = {
    "usage": {
        "prompt_tokens": 535,
        "anchorline": {
            "cache": {"source": "end", "gate": "preserved", "cached": 512, "reread": 23}
        },
    },
    "timings": {"ttft_ms": 41.2, "predicted_n": 46, "predicted_ms": 200.0},
}


def said(**delta: str) -> str:
    return "data: " + json.dumps({"choices": [{"delta": delta}]}, ensure_ascii=False) + "\n\n"


def ended(reason: str = "stop", last: Mapping[str, object] | None = None) -> str:
    last = {"choices": [], **(last or {})}
    choice = json.dumps({"choices": [{"delta": {}, "finish_reason": reason}]})
    return f"data: {choice}\n\ndata: {json.dumps(last)}\n\ndata: [DONE]\n\n"


@dataclass
class Script:
    """What the server answers, in turn, and what it was asked."""

    answers: list[str | tuple[int, str]]
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    keys: list[str | None] = field(default_factory=list[str | None])


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script([])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, json.dumps({"data": [{"id": "toy"}]}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            script.bodies.append(json.loads(body))
            answer = script.answers.pop(0)
            self.reply(*(answer if isinstance(answer, tuple) else (200, answer)))

        def reply(self, status: int, text: str) -> None:
            script.keys.append(self.headers["authorization"])
            payload = text.encode()
            self.send_response(status)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        script.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield script
        server.shutdown()
        thread.join()


def chat(script: Script, *lines: str, options: Sequence[str] = (), color: bool = False) -> Result:
    command = ["--url", script.url, *options]
    runner = CliRunner(env={"ANCHORLINE_API_KEY": None})
    text = "".join(f"{line}\n" for line in lines)
    return runner.invoke(chat_command(), command, input=text, color=color)


def test_an_answer_is_shown_with_its_reasoning_and_its_figures(script: Script) -> None:
    script.answers = [
        ": prefill 256/535\n\n"
        + said(reasoning_content="Two and ")
        + said(reasoning_content="two.")
        + said(content="\n\n4")
        + said(content=", surely")
        + ended(last=FIGURES)
    ]
    result = chat(script, "2 + 2?")
    assert result.exit_code == 0
    assert result.output == (
        "Two and two.\n\n4, surely\n"
        "cached 512 · re-read 23 · end, preserved · first token 41 ms · 230 tok/s\n"
    )


def test_reasoning_and_figures_are_dimmed_and_the_answer_is_not(script: Script) -> None:
    script.answers = [said(reasoning_content="hm") + said(content="4") + ended(last=FIGURES)]
    output = chat(script, "2 + 2?", color=True).output
    dim, plain = "\x1b[2m", "\x1b[0m"
    assert output.startswith(f"{dim}hm{plain}\n\n4\n{dim}cached 512")


def test_the_conversation_goes_back_with_its_reasoning(script: Script) -> None:
    script.answers = [
        said(reasoning_content="hm") + said(content="\n\n4") + ended(),
        said(content="6") + ended(),
    ]
    chat(script, "2 + 2?", "", "  3 + 3?  ", options=["--system", "Count."])
    assert script.bodies[0]["messages"] == [
        {"role": "system", "content": "Count."},
        {"role": "user", "content": "2 + 2?"},
    ]
    assert script.bodies[1]["messages"][2:] == [
        {"role": "assistant", "content": "\n\n4", "reasoning_content": "hm"},
        {"role": "user", "content": "3 + 3?"},
    ]


def test_options_become_fields_of_the_request(script: Script) -> None:
    script.answers = [said(content="4") + ended()]
    options = ["--temperature", "0", "--max-tokens", "9", "--session", "s", "--no-think"]
    chat(script, "2 + 2?", options=options)
    (body,) = script.bodies
    del body["messages"]
    assert body == {
        "model": "toy",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": 9,
        "session_id": "s",
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_the_key_is_sent_with_every_request(script: Script) -> None:
    script.answers = [said(content="4") + ended()]
    chat(script, "2 + 2?", options=["--api-key", "k"])
    assert script.keys == ["Bearer k", "Bearer k"]


def test_an_answer_that_was_cut_off_says_so(script: Script) -> None:
    script.answers = [said(content="four and") + ended("length", FIGURES)]
    assert "230 tok/s · cut off" in chat(script, "2 + 2?").output


def test_a_server_without_our_figures_will_do(script: Script) -> None:
    script.answers = [said(content="4") + ended(last={"usage": {"prompt_tokens": 3}})]
    result = chat(script, "2 + 2?")
    assert result.exit_code == 0
    assert result.output.startswith("4\n")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            (400, json.dumps({"error": {"message": "the prompt is too long"}})),
            "the prompt is too long (status 400)",
        ),
        ((500, "<html>oh</html>"), "<html>oh</html> (status 500)"),
        ((502, ""), "no message (status 502)"),
        ((401, json.dumps({"error": {"message": "no key"}})), "give the key with --api-key"),
        (said(content="4") + 'data: {"error": {"message": "out of memory"}}\n\n', "out of memory"),
        (said(content="4"), "left before the answer's end"),
        ("data: {{\n\n", "no part of a chat"),
    ],
)
def test_a_failed_turn_is_shown_and_forgotten_and_the_chat_goes_on(
    answer: str | tuple[int, str], message: str, script: Script
) -> None:
    script.answers = [answer, said(content="6") + ended()]
    result = chat(script, "2 + 2?", "3 + 3?")
    assert result.exit_code == 0
    assert result.stderr.startswith("anchorline: ")
    assert message in result.stderr
    assert result.stdout.rstrip().endswith("6")
    assert script.bodies[1]["messages"] == [{"role": "user", "content": "3 + 3?"}]


def test_edit_asks_in_place_of_the_last_question(script: Script) -> None:
    script.answers = [said(content=text) + ended() for text in ("one", "two", "three")]
    chat(script, "1?", "2?", "/edit 3?")
    assert [message["content"] for message in script.bodies[2]["messages"]] == ["1?", "one", "3?"]


def test_an_edit_that_fails_leaves_the_last_turn_as_it_was(script: Script) -> None:
    script.answers = [said(content="one") + ended(), (500, ""), said(content="3") + ended()]
    chat(script, "1?", "/edit 2?", "3?")
    assert [message["content"] for message in script.bodies[2]["messages"]] == ["1?", "one", "3?"]


def test_new_forgets_the_conversation_and_keeps_the_system_text(script: Script) -> None:
    script.answers = [said(content="one") + ended(), said(content="two") + ended()]
    chat(script, "/system Count.", "1?", "/new", "2?")
    assert [message["content"] for message in script.bodies[1]["messages"]] == ["Count.", "2?"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("/help", "/edit TEXT"),
        ("/edit", "write: /edit TEXT"),
        ("/edit 2?", "nothing was asked yet"),
        ("/nwe", "there is no command /nwe"),
        ("/system", "no system text"),
    ],
)
def test_commands_ask_the_server_nothing(line: str, shown: str, script: Script) -> None:
    result = chat(script, line)
    assert shown in result.output
    assert not script.bodies


def test_exit_leaves_the_rest_of_the_input_alone(script: Script) -> None:
    assert chat(script, "/exit", "1?").exit_code == 0
    assert not script.bodies


def converse(
    script: Script, monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]
) -> None:
    """Type lines at the prompt of an interactive chat; a type is an exception to raise there."""
    typed = iter((*lines, EOFError))

    def prompt(_: str) -> str:
        line = next(typed)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", prompt)
    with ChatClient(script.url, None) as client:
        ChatSession(client, "", {}, interactive=True).run()


def test_on_a_terminal_the_progress_of_a_prefill_passes_by(
    script: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script.answers = [": prefill 256/535\n\n: ping\n\n" + said(content="4") + ended(last=FIGURES)]
    converse(script, monkeypatch, "2 + 2?")
    assert capsys.readouterr().out.startswith("\rreading 256/535\r4\ncached 512")


def test_on_a_terminal_ctrl_c_stops_an_answer_and_forgets_its_question(
    script: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script.answers = [said(content="4") + ended(), said(content="6") + ended()]
    ask = ChatClient.ask

    def stopped(*_: object) -> NoReturn:
        monkeypatch.setattr(ChatClient, "ask", ask)
        raise KeyboardInterrupt

    monkeypatch.setattr(ChatClient, "ask", stopped)
    converse(script, monkeypatch, "2 + 2?", "3 + 3?")
    assert capsys.readouterr().out.startswith("stopped; the question is forgotten\n")
    assert script.bodies[0]["messages"] == [{"role": "user", "content": "3 + 3?"}]


def test_ctrl_c_at_the_prompt_leaves_the_chat(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        converse(script, monkeypatch, KeyboardInterrupt)


def test_a_models_text_cannot_steer_the_terminal(script: Script) -> None:
    script.answers = [said(content="a\x1b[2Jb\x9b1mc\td") + ended()]
    assert chat(script, "1?").output.startswith("a[2Jb1mc\td\n")


def test_a_stream_is_cut_at_line_feeds_alone_and_across_chunks() -> None:
    text = "data: a\u2028b\x85c\r\ndata: é\n\nrest".encode()
    chunks = [text[at : at + 1] for at in range(len(text))]
    assert list(stream_lines(chunks)) == ["data: a\u2028b\x85c", "data: é", ""]


def no_work(*_: object) -> NoReturn:
    raise AssertionError("a chat needs none of this")


def test_without_a_server_one_is_told_how_to_start_it(script: Script) -> None:
    parts = CliParts("1", ServeSettings, no_work, no_work, no_work)
    gone = script.url.rpartition(":")[0] + ":1"  # a port that only root could listen on
    result = CliRunner().invoke(build_cli(parts), ["chat", "--url", gone], input="1?\n")
    assert result.exit_code == 1
    assert result.stderr == (
        f"anchorline: no server answers at {gone}; start one with: anchorline serve\n"
    )


def test_a_url_of_something_else_is_refused(script: Script) -> None:
    parts = CliParts("1", ServeSettings, no_work, no_work, no_work)
    for url in ("nonsense", "http://", "http://[::1"):
        result = CliRunner().invoke(build_cli(parts), ["chat", "--url", url], input="1?\n")
        assert result.exit_code == 1
        assert result.stderr.startswith("anchorline: ")
        assert result.stderr.count("\n") == 1
