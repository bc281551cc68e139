"""`anchorline simulate`: live through made-up worlds, and tell what went wrong in them."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, cast

import click

from .failure import UsageFailure

EXIT_VIOLATION: Final = 1
STEPS: Final = 10_000


class Worlds(Protocol):
    """What can be done with worlds; a failure is plain values, as they are written to a file."""

    def live(
        self, seed: int, steps: int, shown: Callable[[int], None], *, exact: bool
    ) -> tuple[str, Mapping[str, Any] | None]:
        """Live through a seed; its figures in a line, and the failure if there was one.

        Args:
            shown: told how many steps are done.
            exact: the arithmetic is row-invariant, whatever the seed draws.
        """
        ...

    def shorten(
        self, failure: Mapping[str, Any], shown: Callable[[int, int], None]
    ) -> Mapping[str, Any]:
        """The same failure with as short a history as can be found.

        Args:
            shown: told how many replays were made, and how long the shortest history is.
        """
        ...

    def replay(self, failure: Mapping[str, Any]) -> str | None:
        """Live through a failure's history; what it ends in, None if all went well.

        Raises:
            ValueError: it is no failure.
        """
        ...

    def told(self, failure: Mapping[str, Any]) -> list[str]:
        """A failure's history, a line for each action."""
        ...


def simulate_command(worlds: Callable[[], Worlds]) -> click.Command:
    """The command. Its exit code 1 says that a rule was broken, and nothing else."""

    def simulate(seed: int, steps: int, seeds: int, replay: Path | None, *, exact: bool) -> None:
        broken = (
            _live(worlds(), range(seed, seed + seeds), steps, exact=exact)
            if replay is None
            else _replay(worlds(), replay)
        )
        if broken:
            click.get_current_context().exit(EXIT_VIOLATION)

    return click.Command(
        "simulate",
        callback=simulate,
        params=[
            click.Option(
                ["--seed"], type=int, default=0, show_default=True, help="The first world's."
            ),
            click.Option(
                ["--steps"],
                type=click.IntRange(1),
                default=STEPS,
                show_default=True,
                help="Things that happen in each; most are requests.",
            ),
            click.Option(
                ["--seeds"],
                type=click.IntRange(1),
                default=1,
                show_default=True,
                help="How many worlds, one seed after the other.",
            ),
            click.Option(
                ["--exact"],
                is_flag=True,
                help="Row-invariant arithmetic in all of them, and not in a quarter.",
            ),
            click.Option(
                ["--replay"],
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="Live through a history that an earlier run has written.",
            ),
        ],
        short_help="Live through made-up worlds, and check every state.",
        help="Clients, restarts, crashes and damage drawn by a seed, over the real rules and an "
        "engine whose every state can be checked. Needs no model and writes no state.",
        epilog="Exit code: 0 nothing went wrong, 1 a rule was broken: the history is shown as "
        "short as it could be made, and written to a file to replay.",
    )


def _live(worlds: Worlds, seeds: range, steps: int, *, exact: bool) -> bool:
    """Live through some seeds up to the first failure; whether there was one."""
    for seed in seeds:
        with click.progressbar(length=steps, label=f"seed {seed}", file=sys.stderr) as bar:
            done = 0

            def show(now: int) -> None:
                nonlocal done
                bar.update(now - done)
                done = now

            line, failure = worlds.live(seed, steps, show, exact=exact)
        click.echo(line)
        if failure is not None:
            _tell(worlds, failure)
            return True
    return False


def _tell(worlds: Worlds, failure: Mapping[str, Any]) -> None:
    """Show a failure with a history as short as can be found, and write it down."""
    click.echo(f"step {failure['step']}: {failure['rule']}: {failure['message']}")
    short = worlds.shorten(
        failure,
        lambda runs, length: click.echo(
            f"\rshortening: {length} actions after {runs} replays", err=True, nl=False
        ),
    )
    click.echo(err=True)
    for line in worlds.told(short):
        click.echo(f"  {line}")
    path = Path(f"simulate-seed-{failure['seed']}.json")
    path.write_text(json.dumps(short, indent=1) + "\n", encoding="utf-8")
    click.echo(f"replay it with: anchorline simulate --replay {path}")


def _replay(worlds: Worlds, path: Path) -> bool:
    """Live through a recorded history; whether it ends in a violation."""
    try:
        failure = cast("Mapping[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        ended = worlds.replay(failure)
        lines = worlds.told(failure)
    except (ValueError, TypeError) as error:
        raise UsageFailure(f"{path}: {error}") from error
    for line in lines:
        click.echo(f"  {line}")
    click.echo(ended or "nothing went wrong")
    return ended is not None
