"""The program `anchorline`: its commands, and how its failures are shown."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import msgspec

from ...domain.errors import AnchorlineError, RequestError, SettingsError
from .cache_commands import clear_command, flush_command, stats_command
from .chat_command import chat_command
from .failure import Failure, UsageFailure
from .limits_command import limits_command
from .models_command import Flags, GetModel, ListModels, ProveModel, models_command
from .peek_command import peek_command
from .replay_command import Replays, replay_command
from .setting_options import SettingsCommand, config_option, setting_options
from .simulate_command import Worlds, simulate_command
from .verify_command import VerifyStore, verify_command

EXIT_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class CliParts:
    """What the commands do, handed in so that `--help` imports none of it.

    Attributes:
        version: of the package.
        settings: a struct whose fields become options: each `Annotated` with one `msgspec.Meta`
            that has a description and, in its `extra`, a `group`.
        serve: serves until it is stopped; takes the flags and the configuration file asked for.
        list_models: the models that can be served by name; takes the same.
        get_model: makes a model present; takes its name, the same, and what shows its steps.
        verify: goes over the stored state; None leaves the command out.
        worlds: makes what the simulation is asked of; None leaves the command out.
        replays: makes what reads traces; None leaves the command out.
        prove_model: says whether exact arithmetic can be proved of a model; takes its name, the
            flags and the configuration file; None leaves the option out.
    """

    version: str
    settings: type[msgspec.Struct]
    serve: Callable[[Flags, Path | None], None]
    list_models: ListModels
    get_model: GetModel
    verify: VerifyStore | None = None
    worlds: Callable[[], Worlds] | None = None
    replays: Callable[[], Replays] | None = None
    prove_model: ProveModel | None = None


class Program(click.Group):
    """A group that turns the package's errors into lines and exit codes."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was asked for.

        Raises:
            Failure: what went wrong, in one line; with `--debug` the error itself goes through.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            raise  # click ends quietly: whoever read the output has left
        except (AnchorlineError, OSError) as error:
            if ctx.params["debug"]:
                raise
            usage = isinstance(error, SettingsError | RequestError)
            raise (UsageFailure if usage else Failure)(str(error)) from error


def build_cli(parts: CliParts) -> click.Group:
    """The whole program; calling it runs it on `sys.argv` and exits."""
    program = Program(
        "anchorline",
        params=[
            click.Option(
                ["--debug"], is_flag=True, envvar="ANCHORLINE_DEBUG", help="Show tracebacks."
            )
        ],
        help="Serve hybrid language models, and resume conversations from exact state.",
        epilog="Begin with: anchorline serve; then, in a second terminal: anchorline chat",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    click.version_option(parts.version, prog_name="anchorline")(program)
    program.add_command(_serve_command(parts))
    program.add_command(chat_command())
    program.add_command(
        models_command(parts.settings, parts.list_models, parts.get_model, parts.prove_model)
    )
    for command in (stats_command(), limits_command(), flush_command(), clear_command()):
        program.add_command(command)
    program.add_command(peek_command())
    if parts.verify is not None:
        program.add_command(verify_command(parts.settings, parts.verify))
    if parts.worlds is not None:
        program.add_command(simulate_command(parts.worlds))
    if parts.replays is not None:
        program.add_command(replay_command(parts.replays))
    return program


def _serve_command(parts: CliParts) -> click.Command:
    def serve(config: Path | None, **flags: object) -> None:
        parts.serve(flags, config)

    return SettingsCommand(
        "serve",
        callback=serve,
        params=[
            click.Argument(["model"], required=False),
            *setting_options(parts.settings, but=("model",)),
            config_option(),
        ],
        short_help="Serve a model over an OpenAI-compatible API.",
        help="Serve MODEL [toy]: a built-in name, directory, GGUF file or Hugging Face id.",
        epilog="Sources, the strongest first: --some-name, ANCHORLINE_SOME_NAME in the "
        "environment, some_name under [serve] in anchorline.toml.",
    )
