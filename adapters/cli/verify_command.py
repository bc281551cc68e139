"""`anchorline verify`: check the state that a server keeps, stopped or running."""

import contextlib
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import click
import msgspec

from ...domain.byte_size import size
from ...domain.errors import AnchorlineError
from .admin_client import AdminClient
from .cache_commands import server_options
from .failure import UsageFailure
from .models_command import Flags
from .setting_options import config_option, setting_options
from .verify_live import live_lines, verified_live

if TYPE_CHECKING:  # `anchorline --help` imports no arrays
    from ...application.verify import VerifyReport

Counted: TypeAlias = Callable[[int, int], None]
"""Shows how many of how many objects have been looked at."""

VerifyStore: TypeAlias = Callable[[Flags, Path | None, bool, Counted], "VerifyReport"]
"""Takes the flags, the configuration file, whether to repair, and what shows the progress."""

EXIT_DAMAGE: Final = 1


def verify_command(settings: type[msgspec.Struct], verify_store: VerifyStore) -> click.Command:
    """The command. Its exit code 1 says that damage was found, and nothing else."""

    def verify(
        config: Path | None,
        repair: bool,
        live: bool,
        cache_dir: str | None,
        samples: int | None,
        entry: str | None,
        **of_server: str | None,
    ) -> None:
        context = click.get_current_context()
        if live and (repair or cache_dir):
            raise UsageFailure("--live asks a running server; it goes with no --repair and no path")
        if not live and (samples or entry):
            raise UsageFailure("--samples and --entry go with --live")
        try:
            if live:
                found = _live(_Asked(samples, entry), **of_server)
            else:
                found = _offline(verify_store, {"cache_dir": cache_dir}, config, repair=repair)
        except (AnchorlineError, OSError) as error:
            if context.find_root().params.get("debug"):
                raise
            raise UsageFailure(str(error)) from error
        if found:
            context.exit(EXIT_DAMAGE)

    return click.Command(
        "verify",
        callback=verify,
        params=[
            click.Option(
                ["--repair"],
                is_flag=True,
                help="Move damaged objects aside, cut entries back to what can be resumed, and "
                "delete what nobody needs.",
            ),
            *setting_options(settings, only=("cache_dir",)),
            config_option(),
            click.Option(
                ["--live"], is_flag=True, help="Have a running server recompute what it keeps."
            ),
            click.Option(["--samples"], type=int, metavar="N", help="Entries, with --live.  [8]"),
            click.Option(["--entry"], metavar="ID", help="The only one, with --live."),
            *server_options(),
        ],
        short_help="Check the state that a server keeps.",
        help="Read all of the stored state, while no server uses it, and check every byte and "
        "every entry.",
        epilog="Exit code: 0 all is whole, 1 damage was found, repaired or not, 2 it could not be "
        "opened or read.",
    )


def _offline(verify_store: VerifyStore, flags: Flags, config: Path | None, *, repair: bool) -> bool:
    """Go over a store; whether there was damage."""
    with _progress() as progress:
        report = verify_store(flags, config, repair, progress)
    for line in report_lines(report):
        click.echo(line)
    return not report.ok


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a server is asked for; None is left to it."""

    samples: int | None
    entry: str | None


def _live(asked: _Asked, *, url: str | None, api_key: str | None, admin_key: str | None) -> bool:
    """Ask a server; whether something was wrong."""
    assert url is not None
    with AdminClient(url, api_key, admin_key) as client:
        verified = verified_live(client, url, asked.samples, asked.entry)
    for line in live_lines(verified):
        click.echo(line)
    return bool(verified.mismatches)


def report_lines(report: "VerifyReport") -> Generator[str]:
    """What is told of a walk."""
    yield f"{report.objects} objects, {size(report.nbytes)}; {report.entries} entries"
    for damage in report.damage:
        yield f"damaged: {damage.name}: {damage.reason}"
    if report.damaged > len(report.damage):
        yield f"damaged: {report.damaged - len(report.damage)} more"
    found = {
        "damaged": report.damaged,
        "missing": report.missing,
        "broken entries": report.broken,
        "strange names": report.strange,
    }
    if any(found.values()):
        yield "found: " + ", ".join(f"{count} {what}" for what, count in found.items() if count)
    if report.orphans and not report.repaired:
        yield (
            f"{report.orphans} objects that no entry needs, {size(report.orphan_bytes)}; "
            "the next start of a server deletes them"
        )
    if report.needs_rebuild and report.objects and not report.repaired:
        yield "the catalog is lost; the next start of a server makes it again"
    if report.repaired:
        yield from _repair_lines(report)
    yield _verdict(report)


def _repair_lines(report: "VerifyReport") -> Generator[str]:
    if report.rebuilt is not None:
        yield (
            f"made the catalog again: {report.rebuilt.entries} entries; "
            f"{report.rebuilt.lost} anchors could not be taken up"
        )
        if report.rebuilt.unread:
            yield (
                f"the drive did not give {report.rebuilt.unread} objects; "
                "the next start of a server tries again"
            )
    done = {
        "objects moved aside": report.damaged,
        "entries shortened": report.shortened,
        "entries dropped": report.dropped,
        "unneeded objects deleted": report.deleted,
    }
    if any(done.values()):
        yield "repaired: " + ", ".join(f"{count} {what}" for what, count in done.items() if count)


def _verdict(report: "VerifyReport") -> str:
    if report.ok:
        return "all is whole"
    return "damage was found and repaired" if report.repaired else "damage was found"


@contextlib.contextmanager
def _progress() -> Generator[Counted]:
    """On a terminal a bar, else a line for each tenth; on standard error."""
    with contextlib.ExitStack() as stack:
        if not sys.stderr.isatty():
            yield _tenths()
            return
        update: Callable[[int], None] | None = None
        shown = 0

        def show(done: int, total: int) -> None:
            nonlocal update, shown
            if update is None:
                bar = click.progressbar(length=total, label="checking", file=sys.stderr)
                update = stack.enter_context(bar).update
            update(done - shown)
            shown = done

        yield show


def _tenths() -> Counted:
    shown = 0

    def show(done: int, total: int) -> None:
        nonlocal shown
        if total and done * 10 // total > shown:
            shown = done * 10 // total
            click.echo(f"checked {done} of {total} objects", err=True)

    return show
