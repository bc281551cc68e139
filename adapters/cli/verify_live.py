"""`anchorline verify --live`: have a running server recompute what it keeps."""

from collections.abc import Iterator

import msgspec

from .admin_client import AdminClient, AdminFailed
from .cache_commands import decoded


class Mismatch(msgspec.Struct):
    """A wrong state, as the server reports it."""

    entry: str
    kind: str
    line: int
    part: str
    row: int | None = None
    dump: str | None = None


class Skipped(msgspec.Struct):
    """An entry that could not be judged."""

    entry: str
    why: str


class Verified(msgspec.Struct):
    """The answer of `/v1/cache/verify`."""

    finished: bool
    samples: int
    tokens: int
    mismatches: list[Mismatch]
    skipped: list[Skipped]


def verified_live(
    client: AdminClient, url: str, samples: int | None, entry: str | None
) -> Verified:
    """Ask a server, and wait until it is done.

    Raises:
        AdminFailed: it refuses, or stops.
    """
    body = {"samples": samples, "entry": entry}
    wanted = {name: value for name, value in body.items() if value is not None}
    verified = decoded(client.ask("POST", "/v1/cache/verify", body=wanted).body, Verified, url)
    if not verified.finished:
        raise AdminFailed(f"the server stops; {verified.samples} entries were verified before")
    if entry is not None and not verified.samples:
        raise AdminFailed(f"{entry}: {verified.skipped[0].why}" if verified.skipped else entry)
    return verified


def live_lines(verified: Verified) -> Iterator[str]:
    """What is told of it: a table of what is wrong, and a verdict."""
    yield f"{verified.samples} entries verified, {verified.tokens} tokens recomputed"
    for skipped in verified.skipped:
        yield f"skipped: {skipped.entry}: {skipped.why}"
    rows = [("entry", "what departs", "part", "row", "line", "file")]
    for wrong in verified.mismatches:
        row = "-" if wrong.row is None else str(wrong.row)
        rows.append(
            (wrong.entry, wrong.kind, wrong.part, row, str(wrong.line), wrong.dump or "none")
        )
    if verified.mismatches:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for cells in rows:
            padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            yield "  ".join(padded).rstrip()
        yield f"{len(verified.mismatches)} wrong states were found and given up"
    elif verified.samples:
        yield "all is as it should be"
