"""A state as values: what a slot hands over when it loses it, and takes when it gets it back."""

from dataclasses import dataclass

from ..domain.anchor import Anchor
from ..domain.end import End
from ..domain.grid import Span
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
