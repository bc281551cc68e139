"""An interactive chat: questions in, answers shown as they stream."""

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Final

import click

from .chat_client import ChatClient, Ended, Reading, Said, TurnFailed

HELP: Final = """\
/new          begin a new conversation
/edit TEXT    ask TEXT in place of the last question
/system TEXT  set the system text, from the next question on
/help         this list
/exit         leave, as the end of the input does
Ctrl-C stops an answer. A line that is no command is a question."""

_CONTROLS: Final = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])
"""Control characters, but for tabs and line ends: a model's text must not steer the terminal."""


class ChatSession:
    """One conversation with a server.

    Args:
        system: the system text; "" for none.
        options: fields of every request's body.
        interactive: someone reads along and types: prompts and passing lines are shown.
    """

    def __init__(
        self, client: ChatClient, system: str, options: Mapping[str, object], *, interactive: bool
    ) -> None:
        self._client = client
        self._system = system
        self._options = options
        self._interactive = interactive
        self._turns: list[tuple[dict[str, str], dict[str, str]]] = []
        self._line_open = False
        self._status = False

    def run(self) -> None:
        """Answer questions until `/exit` or the end of the input."""
        for line in self._lines():
            command, _, rest = line.partition(" ")
            rest = rest.strip()
            match command:
                case "/exit":
                    return
                case "/help":
                    click.echo(HELP)
                case "/new":
                    self._turns.clear()
                    click.secho("a new conversation", dim=True)
                case "/system":
                    self._system = rest
                    click.secho("the system text is set" if rest else "no system text", dim=True)
                case "/edit" if rest and self._turns:
                    self._ask(rest, len(self._turns) - 1)
                case "/edit":
                    click.echo("nothing was asked yet" if rest else "write: /edit TEXT")
                case _ if command.startswith("/"):
                    click.echo(f"there is no command {command}; /help lists them")
                case _ if line.strip():
                    self._ask(line.strip(), len(self._turns))
                case _:
                    pass

    def _lines(self) -> Iterator[str]:
        if not self._interactive:
            for line in sys.stdin:
                yield line.rstrip("\n")
            return
        with contextlib.suppress(ImportError):
            importlib.import_module("readline")  # gives `input` line editing and a history
        while True:
            try:
                yield input("> ")
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                click.echo()
                raise

    def _ask(self, question: str, after: int) -> None:
        """Ask `question` after that many turns; what came later goes once it is answered."""
        turns = self._turns[:after]
        asked = {"role": "user", "content": question}
        messages = [{"role": "system", "content": self._system}] if self._system else []
        messages += [message for turn in turns for message in turn]
        try:
            said = self._show([*messages, asked])
        except TurnFailed as error:
            self._end_line()
            click.echo(f"anchorline: {error}", err=True)
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            self._end_line()
            click.secho("stopped; the question is forgotten", dim=True)
        else:
            self._turns = [*turns, (asked, said)]

    def _show(self, messages: list[dict[str, str]]) -> dict[str, str]:
        """Stream an answer to the screen; returns the assistant's message."""
        reasoning = ""
        content = ""
        with contextlib.closing(self._client.ask(messages, self._options)) as events:
            for event in events:
                match event:
                    case Reading(done, total):
                        self._show_status(f"reading {done}/{total}")
                    case Said():
                        if event.reasoning:
                            self._write(click.style(_harmless(event.reasoning), dim=True))
                        text = event.content
                        if not content.strip("\n"):
                            text = text.lstrip("\n")
                            gap = "\n\n" if text and reasoning + event.reasoning else ""
                            self._write(gap)
                        self._write(_harmless(text))
                        reasoning += event.reasoning
                        content += event.content
                    case Ended(reason, figures):
                        self._end_line()
                        cut = ("cut off at the longest answer allowed",) * (reason == "length")
                        click.secho(" · ".join(figures + cut), dim=True)
        answer = {"role": "assistant", "content": content}
        # Sent back with the next question, so that the prompt continues what the engine read.
        return answer | ({"reasoning_content": reasoning} if reasoning else {})

    def _write(self, text: str) -> None:
        """Add to the answer on the screen, in place of a status."""
        if text:
            click.echo(("\r\x1b[K" if self._status else "") + text, nl=False)
            self._status = False
            self._line_open = True

    def _show_status(self, status: str) -> None:
        """Show a line that stands until the next event, to someone who reads along."""
        if self._interactive and not self._line_open:
            click.secho(f"\r{status}", dim=True, nl=False)
            self._status = True

    def _end_line(self) -> None:
        """Leave the line that was begun, if one was."""
        if self._line_open or self._status:
            click.echo("\r\x1b[K" if self._status else "", nl=not self._status)
        self._line_open = self._status = False


def is_interactive() -> bool:
    """Whether a person types and reads."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _harmless(text: str) -> str:
    return text.translate(_CONTROLS)
