"""Entries in memory: conversations and heads that no slot is needed for."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..domain.anchor import Anchor, AnchorKind
from ..domain.entry import EntryId, Role
from ..domain.grid import Span
from ..domain.namespace import Namespace
from ..domain.prefix_key import PrefixKey
from ..domain.prompt_chain import PromptChain
from ..domain.sums import PartSums
from ..domain.tokens import TokenIds
from ..domain.way_index import Way
from .kept_blocks import KeptBlock
from .kept_state import KeptState


@dataclass(slots=True, eq=False)
class RamEntry:
    """One kept state.

    Attributes:
        state: its tokens and its copies of sections.
        blocks: all of its rows, ascending and without gaps from row 0.
        session: the caller's hint, never an identity.
        stored: the entry on the medium that it was read from.
        credit: see `ram_retention`.
        lent: how many are bringing it into a slot, or writing it: it stays until they are done.
    """

    id: EntryId
    role: Role
    state: KeptState
    blocks: tuple[KeptBlock, ...]
    chain: PromptChain
    session: str | None
    created_s: float
    last_used_s: float
    stored: EntryId | None = None
    hits: int = 0
    credit: float = 0.0
    lent: int = 0

    @property
    def namespace(self) -> Namespace:
        return self.state.namespace

    @property
    def ids(self) -> TokenIds:
        return self.state.ids

    @property
    def line(self) -> int:
        """The highest line it can be resumed at."""
        return self.state.line

    def blocks_below(self, line: int) -> Sequence[KeptBlock]:
        """The blocks that a resume at a line needs."""
        return [block for block in self.blocks if block.span.start < line]

    def seals_below(self, line: int) -> list[tuple[Span, PartSums]]:
        """The seals of its rows below one of its anchors."""
        return [
            (span, sums)
            for block in self.blocks_below(line)
            for span, sums in block.seals
            if span.end <= line
        ]

    def ways(self) -> list[Way[Anchor]]:
        """The lines at which it continues a prompt."""
        grid = self.chain.grid
        found: list[Way[Anchor]] = []
        for anchor in self.state.anchors:
            line = anchor.line
            # A line off the grid is looked for above the grid line below it.
            below = grid.floor(line - 1)
            tainted = line > self.state.taint
            found.append(
                Way(
                    owner=self.id,
                    key=self.chain.key(line),
                    below=self.chain.key(below) if below > 0 else None,
                    line=line,
                    kind=anchor.kind,
                    what=anchor,
                    same=(anchor.handle, self.blocks[(line - 1) // grid.step], tainted),
                )
            )
        return found

    def block_ends(self) -> list[tuple[int, PrefixKey]]:
        """The lines and keys at the ends of its blocks."""
        return [(block.span.end, self.chain.key(block.span.end)) for block in self.blocks]


def is_part_of(older: RamEntry, newer: RamEntry) -> bool:
    """Whether nothing is lost with an older entry once a newer one of the same session is kept."""
    if older.session != newer.session or older.line > newer.line:
        return False
    full = older.blocks[:-1] if older.state.end is not None else older.blocks
    if any(block is not other for block, other in zip(full, newer.blocks, strict=False)):
        return False
    lines = {anchor.line for anchor in newer.state.anchors}
    grid = [one.line for one in older.state.anchors if one.kind is AnchorKind.GRID]
    continued = older.state.end is not None or set(grid) <= lines
    return continued and bool((newer.state.key_ids[: older.line] == older.state.key_ids).all())
