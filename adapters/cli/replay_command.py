"""`anchorline replay`: what a cache would have saved on sessions of agents, by retention policy."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import click

from ...domain.byte_size import bytes_from, size
from ...domain.ram_retention import Retention
from .failure import UsageFailure

WINDOW: Final = 16_384
GRID: Final = 64
RAM: Final = "2GiB"
ROW: Final = "2KiB"
SECTION: Final = "80KiB"
POLICIES: Final = tuple(policy.value for policy in Retention)
LEAST: Final = {"--window": 2, "--worst": 0}
"""Of counts that are not at least 1: a prompt and its answer have a token each."""


class Replay(Protocol):
    """Sessions that can be served again and again."""

    @property
    def requests(self) -> int:
        """How many there are in all sessions."""
        ...

    def run(
        self,
        retention: str,
        *,
        slots: int,
        grid: int,
        ram_bytes: int,
        row_bytes: int,
        section_bytes: int,
        shown: Callable[[], None],
    ) -> Mapping[str, Any]:
        """Serve all of them under a policy; figures as plain values.

        Args:
            ram_bytes: 0 keeps nothing outside the slots.
            shown: called after each request.

        Raises:
            StateError: a state was wrong.
        """
        ...


class Replays(Protocol):
    """Reads traces."""

    def read(self, traces: Mapping[str, object], window: int) -> Replay:
        """Take traces by their names, as their files' JSON values have them.

        Raises:
            ValueError: one is no trace.
        """
        ...


def replay_command(replays: Callable[[], Replays]) -> click.Command:
    """The command."""

    def replay(
        traces: Sequence[Path],
        window: int,
        slots: int,
        grid: int,
        retention: Sequence[str],
        ram_bytes: int,
        row_bytes: int,
        section_bytes: int,
        worst: int,
        *,
        as_json: bool,
    ) -> None:
        try:
            sessions = replays().read(_read(traces), window)
        except ValueError as error:
            raise UsageFailure(str(error)) from error
        found: list[Mapping[str, Any]] = []
        total = sessions.requests * len(retention)
        with click.progressbar(length=total, label="requests", file=sys.stderr) as bar:
            for policy in retention:
                figures = sessions.run(
                    policy,
                    slots=slots,
                    grid=grid,
                    ram_bytes=ram_bytes,
                    row_bytes=row_bytes,
                    section_bytes=section_bytes,
                    shown=lambda: bar.update(1),
                )
                found.append(figures)
        about = {
            "traces": [path.stem for path in traces],
            "window": window,
            "grid": grid,
            "slots": slots,
            "ram_bytes": ram_bytes,
            "row_bytes": row_bytes,
            "section_bytes": section_bytes,
        }
        lines = (
            [json.dumps({**about, "policies": found})] if as_json else _told(about, found, worst)
        )
        for line in lines:
            click.echo(line)

    return click.Command(
        "replay",
        callback=replay,
        params=_params(),
        short_help="Serve recorded agent sessions, and tell what was read again.",
        help="Serve what the sessions TRACE... asked, in the order of their times, once for each "
        "policy. Tokens are made up from the ids of blocks: needs no model.",
        epilog="A trace is a JSON object with block_size and requests of t, in, out, hash_ids. "
        "Unavoidable are tokens that no request before has read.",
    )


def _params() -> list[click.Parameter]:
    return [
        click.Argument(
            ["traces"],
            nargs=-1,
            required=True,
            metavar="TRACE...",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
        ),
        _count("--window", WINDOW, "Tokens of a slot; longer sessions are shortened."),
        _count("--slots", 1, "Conversations that can stand ready at once."),
        _count("--grid", GRID, "Tokens from one line to the next."),
        click.Option(
            ["--retention"],
            callback=_policies,
            default=",".join(POLICIES),
            metavar="NAME,...",
            help=f"What leaves memory first.  [{','.join(POLICIES)}]",
        ),
        _bytes("--ram-bytes", RAM, "For conversations that lost their slot."),
        _bytes("--row-bytes", ROW, "What a token takes."),
        _bytes("--section-bytes", SECTION, "What a line to resume at takes."),
        _count("--worst", 0, "How many requests to show that read most again."),
        click.Option(["--json", "as_json"], is_flag=True, help="All figures as one JSON object."),
    ]


def _count(name: str, default: int, text: str) -> click.Option:
    def checked(context: click.Context, option: click.Parameter, value: int) -> int:
        del context
        if value < (least := LEAST.get(name, 1)):
            raise click.BadParameter(f"{value} is less than {least}", param=option)
        return value

    # An `IntRange` would show its range behind each default.
    help_text = f"{text}  [{default}]" if default else text
    return click.Option(
        [name], type=int, callback=checked, default=default, metavar="N", help=help_text
    )


def _bytes(name: str, default: str, text: str) -> click.Option:
    return click.Option(
        [name], callback=_size, default=default, metavar="BYTES", help=f"{text}  [{default}]"
    )


def _size(context: click.Context, option: click.Parameter, text: str) -> int:
    del context
    try:
        return bytes_from(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; one is 2.5GiB", param=option) from error


def _policies(context: click.Context, option: click.Parameter, text: str) -> list[str]:
    del context
    asked = [name.strip() for name in text.split(",")]
    if unknown := [name for name in asked if name not in POLICIES]:
        told = f"{', '.join(map(repr, unknown))}; the policies are {', '.join(POLICIES)}"
        raise click.BadParameter(told, param=option)
    return asked


def _read(paths: Sequence[Path]) -> Mapping[str, object]:
    """What files say, by their names.

    Raises:
        ValueError: two have one name, or one is no JSON.
    """
    found: dict[str, object] = {}
    for path in paths:
        if path.stem in found:
            raise ValueError(f"two traces are called {path.stem}: a session needs its own name")
        found[path.stem] = _values(path)
    return found


def _values(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from error


def _told(
    about: Mapping[str, Any], found: Sequence[Mapping[str, Any]], worst: int
) -> Iterator[str]:
    """The figures, to read."""
    first = found[0]
    yield (
        f"{first['requests']} requests of {len(about['traces'])} sessions, "
        f"{first['prompt_tokens']:,} prompt tokens in a window of {about['window']:,}, grid "
        f"{about['grid']}, slots {about['slots']}, memory {size(about['ram_bytes'])}"
    )
    yield f"unavoidable: {first['unavoidable']:,} tokens"
    for figures in found:
        yield ""
        yield (
            f"{figures['retention']}: read {figures['reread']:,} tokens, "
            f"{figures['ratio']:.3f} times the unavoidable ones"
        )
        hits = sorted(figures["hits"].items(), key=lambda one: -one[1])
        yield "  resumed from: " + ", ".join(
            f"{source} {count} ({figures['cached'][source]:,} tokens)" for source, count in hits
        )
        yield (
            f"  memory: {figures['kept']} kept, {figures['evicted']} evicted, {figures['cut']} "
            f"cut; {size(figures['bytes_out'])} out of slots, {size(figures['bytes_in'])} into them"
        )
        for one in figures["worst"][:worst]:
            yield (
                f"  {one['session']} request {one['request']}: read {one['reread']:,} of "
                f"{one['prompt']:,}, unavoidable {one['unavoidable']:,}, from {one['source']}"
            )
