"""`anchorline chat`: talk to a running server."""

import click

from .cache_commands import client_options
from .chat_client import ChatClient
from .chat_session import ChatSession, is_interactive


def chat_command() -> click.Command:
    """The command."""
    return click.Command(
        "chat",
        callback=_chat,
        params=[
            *client_options(),
            click.Option(["--system"], default="", metavar="TEXT", help="System text."),
            click.Option(["--no-think"], is_flag=True, help="Answer without reasoning first."),
            click.Option(
                ["--temperature"],
                type=click.FloatRange(0, 2),
                metavar="T",
                help="0 takes the likeliest token each time.",
            ),
            click.Option(
                ["--max-tokens"],
                type=click.IntRange(1),
                metavar="N",
                help="Of an answer, its reasoning included.",
            ),
            click.Option(["--session"], metavar="NAME", help="A hint for the server's cache."),
        ],
        short_help="Talk to a running server.",
        help="Talk to a running server: type a question, read the answer as it is written. "
        "/help lists the commands inside. Without a terminal each line of the input is a question.",
    )


def _chat(
    url: str,
    api_key: str | None,
    system: str,
    no_think: bool,
    temperature: float | None,
    max_tokens: int | None,
    session: str | None,
) -> None:
    interactive = is_interactive()
    with ChatClient(url, api_key) as client:
        options: dict[str, object] = {"model": client.model()}
        if no_think:
            options["chat_template_kwargs"] = {"enable_thinking": False}
        given = {"temperature": temperature, "max_tokens": max_tokens, "session_id": session}
        options |= {name: value for name, value in given.items() if value is not None}
        if interactive:
            click.secho(f"{options['model']} at {url}; /help lists the commands", dim=True)
        ChatSession(client, system, options, interactive=interactive).run()
