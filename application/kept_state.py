"""A state as values: what a slot hands over when it loses it, and takes when it gets it back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..domain.anchor import Anchor, AnchorKind
from ..domain.end import End
from ..domain.entry_succession import ANCHORS_SAVED
from ..domain.grid import Grid, Span
from ..domain.namespace import Namespace
from ..domain.offers import Offer
from ..domain.tokens import TokenIds


@dataclass(frozen=True, slots=True)
class Survey:
    """What a slot can do for a prompt.

    Attributes:
        shared: how many leading tokens they have in common; 0 across namespaces.
        offers: verified, usable ways to start.
        unusable: anchors that lie above `shared`, or that leave no token to forward.
    """

    shared: int
    offers: tuple[Offer, ...]
    unusable: tuple[Anchor, ...]


@dataclass(frozen=True, slots=True)
class AdoptedState:
    """A state that was brought into a slot from elsewhere.

    Attributes:
        ids: all of its tokens, as the model read them.
        key_ids: the same as caches compare them.
        taint: rows from here on were not written by a cold grid prefill.
        end: of the generation that stopped at its line; None for a grid line.
    """

    ids: TokenIds
    key_ids: TokenIds
    namespace: Namespace
    taint: int
    end: End | None

    @property
    def line(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Lasting:
    """What a medium keeps of a state: the newest grid anchors, and one end, at its highest line.

    Attributes:
        anchors: ascending by line.
        end: what is known of the highest one, if that is no grid anchor.
    """

    anchors: tuple[Anchor, ...]
    end: End | None


def lasting(
    anchors: Sequence[Anchor], end: End | None, regions: Sequence[Span], grid: Grid
) -> Lasting:
    """What a medium is to keep of a state.

    Its highest line is kept whatever stands there: an anchor off the grid is stored as an end. One
    is, for example, where a generation ended before the last, whose end was given up since.

    Args:
        anchors: all that the state has, the end's included.
        end: of the last generation.
        regions: the spans that generations wrote.
    """
    if not anchors:
        return Lasting((), None)
    # Two may stand at one line: then the end has what the other has, and more.
    top = max(anchors, key=lambda anchor: (anchor.line, anchor.kind is AnchorKind.END))
    line = top.line
    on_grid = sorted(
        (one for one in anchors if one.kind is AnchorKind.GRID and grid.has(one.line)),
        key=lambda anchor: anchor.line,
    )
    if top.kind is AnchorKind.GRID and grid.has(line):
        return Lasting(tuple(on_grid[-ANCHORS_SAVED:]), None)
    if end is None or end.line != line:
        end = End(line, regions=tuple(span for span in regions if span.end <= line))
    # The newest of all are chosen first: an end on a grid line takes the place of one.
    below = (one for one in on_grid[-ANCHORS_SAVED:] if one.line < line)
    return Lasting((*below, replace(top, kind=AnchorKind.END)), end)


@dataclass(frozen=True, slots=True)
class KeptState:
    """A conversation apart from its rows.

    Attributes:
        ids: up to its highest line.
        key_ids: the same as caches compare them.
        taint: rows from here on were not written by a cold grid prefill.
        anchors: ascending, the end's included; none above the last id.
        end: of the last generation, whose anchor is among them; None where none is.
        regions: the spans that generations wrote, oldest first.
    """

    ids: TokenIds
    key_ids: TokenIds
    namespace: Namespace
    taint: int
    anchors: tuple[Anchor, ...]
    end: End | None
    regions: tuple[Span, ...]

    @property
    def line(self) -> int:
        return len(self.ids)

    def lasting(self, grid: Grid) -> Lasting:
        """What a medium keeps of it."""
        return lasting(self.anchors, self.end, self.regions, grid)

    def below(self, line: int) -> "KeptState":
        """Its part up to a line, at which it has an anchor."""
        ends = self.end is not None and self.end.line <= line
        return KeptState(
            ids=self.ids[:line],
            key_ids=self.key_ids[:line],
            namespace=self.namespace,
            taint=min(self.taint, line),
            anchors=tuple(anchor for anchor in self.anchors if anchor.line <= line),
            end=self.end if ends else None,
            regions=tuple(region for region in self.regions if region.end <= line),
        )
