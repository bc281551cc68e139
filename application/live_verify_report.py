"""What verifying a running server finds, as plain values."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ..domain.fingerprint import Fingerprint
from ..domain.mismatch import Mismatch

MismatchSink: TypeAlias = Callable[[Mismatch], str | None]
"""Writes a mismatch down, and tells a person; the name of the file, or None if there is none."""


class VerifyMode(enum.Enum):
    """What is done about a running server's state."""

    ON = "on"
    """Samples are verified; what is found wrong is given up."""

    STRICT = "strict"
    """The same, and after a mismatch every request is served cold."""


@dataclass(frozen=True, slots=True)
class VerifyPolicy:
    """How a running server verifies what it keeps.

    Attributes:
        idle_s: how long nobody may have asked anything before a sample; None samples only when
            asked to.
        fingerprint: of the running arithmetic.
        sink: what is told of each mismatch, on the engine thread.
    """

    mode: VerifyMode
    idle_s: float | None
    fingerprint: Fingerprint
    sink: MismatchSink


@dataclass(frozen=True, slots=True)
class Found:
    """A mismatch, as it is reported.

    Attributes:
        gate: whose promise was broken.
        dump: the name of the file with the token ids; None where none could be written.
    """

    entry: str
    tier: str
    gate: str
    kind: str
    line: int
    part: str
    row: int | None
    dump: str | None


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry that could not be judged."""

    entry: str
    why: str


@dataclass(frozen=True, slots=True)
class LiveReport:
    """What came of verifying so many entries.

    Attributes:
        finished: False where the server stopped before it was done.
        samples: entries that were judged.
        tokens: that were forwarded for it.
    """

    finished: bool
    samples: int
    tokens: int
    mismatches: tuple[Found, ...]
    skipped: tuple[Skipped, ...]


def found_of(mismatch: Mismatch, dump: str | None) -> Found:
    """A mismatch as it is reported to who asked."""
    difference = mismatch.difference
    return Found(
        entry=mismatch.entry,
        tier=mismatch.tier.value,
        gate=difference.kind.gate.value,
        kind=difference.kind.value,
        line=difference.line,
        part=difference.part,
        row=difference.row,
        dump=dump,
    )


def journal_row(mismatch: Mismatch, dump: str | None) -> dict[str, object]:
    """A mismatch as the journal has it: no token, and no salt."""
    return {"event": "verify_mismatch", **mismatch.facts(), "dump": dump or ""}
