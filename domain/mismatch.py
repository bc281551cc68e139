"""Kept states that are not what they are said to be."""

import enum
from dataclasses import dataclass

from .entry import Tier
from .fingerprint import Fingerprint
from .namespace import Namespace
from .prefix_key import root_key
from .taint_line import Gate
from .tokens import TokenIds


class Kind(enum.Enum):
    """What departed from what it should be."""

    BITWISE_ROWS = "bitwise_rows"
    """Rows below the taint line, from those of a cold prefill."""

    BITWISE_SECTIONS = "bitwise_sections"
    """An anchor that resumes under the bitwise gate, from the sections of a cold prefill."""

    PRESERVED_ROWS = "preserved_rows"
    """Rows above the taint line, from their own sums when they were written."""

    PRESERVED_SECTIONS = "preserved_sections"
    """An anchor above the taint line, or an end, from its own sums when it was taken."""

    @property
    def gate(self) -> Gate:
        """The gate whose promise is broken."""
        return (
            Gate.BITWISE if self in (Kind.BITWISE_ROWS, Kind.BITWISE_SECTIONS) else Gate.PRESERVED
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """The first departure that was found in one entry.

    Attributes:
        line: of the anchor, or the end of the span of rows.
        part: the name of a view or a section.
        row: the first one that departs, or of the span that does, where no bytes are left to
            compare; None for sections.
    """

    kind: Kind
    line: int
    part: str
    row: int | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A wrong state, with everything that it takes to make it again.

    Attributes:
        entry: its id, as `/v1/cache/entries` shows it.
        fingerprint: of the arithmetic.
        namespace: under which it was made; its salt must be shown to nobody.
        ids: the tokens up to the line of the difference.
    """

    entry: str
    tier: Tier
    difference: Difference
    fingerprint: Fingerprint
    namespace: Namespace
    ids: TokenIds
    grid: int

    def facts(self) -> dict[str, str | int | None]:
        """What may be told of it to whoever runs the server: no token, and no salt."""
        difference = self.difference
        return {
            "entry": self.entry,
            "tier": self.tier.value,
            "gate": difference.kind.gate.value,
            "kind": difference.kind.value,
            "line": difference.line,
            "part": difference.part,
            "row": difference.row,
            "fingerprint": self.fingerprint,
            "grid": self.grid,
            "namespace": self.namespace_digest,
        }

    @property
    def namespace_digest(self) -> str:
        """Stands for the namespace; the key that its prefixes begin with on the medium."""
        return root_key(self.namespace).hex()
