"""What is given up with a state that was found wrong: everything that it may have come into.

A row depends on the rows below it and on no other, and whatever is shared between slots and memory
is shared over tokens that were compared one by one. So what is wrong from one place on can have
come into nothing but states of the same tokens up to there: they all go, and with them whatever
shares a row or a copy with the wrong one, at whichever place.

    wrong    0 ========= x . . . . .      x: the first place that departs
    goes     0 ========= x . . .          the same tokens up to it
    goes     0 ==== [ shared block ] - -  another conversation, over rows of the wrong one
    stays    0 ---------------------      it has nothing of it

What the medium has of it is verified by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..domain.anchor import Anchor, SectionsHandle
from ..domain.mismatch import Difference
from ..domain.namespace import Namespace
from ..domain.tokens import TokenIds
from .kept_blocks import KeptBlock
from .ram_entry import RamEntry
from .ram_tier import RamTier
from .slots import Slot


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A state that departs from what it should be.

    Attributes:
        ids: its tokens up to the place, and with it, where it departs.
        blocks: of its rows, which others may share.
        copies: of its sections, likewise.
    """

    namespace: Namespace
    ids: TokenIds
    blocks: frozenset[KeptBlock]
    copies: frozenset[SectionsHandle]


class Distrust:
    """Gives up what is wrong, in slots and in memory. On the engine thread, while nothing runs."""

    def __init__(
        self, slots: Sequence[Slot], ram: RamTier | None, forget: Callable[[Slot], object]
    ) -> None:
        """Takes what there is.

        Args:
            forget: makes an idle slot drop what it holds.
        """
        self._slots = slots
        self._ram = ram
        self._forget = forget

    def resident(self, slot: Slot, difference: Difference) -> None:
        """What stands in a slot is wrong."""
        if self._ram is None:
            self._forget(slot)  # without memory no slot has anything of another's
            return
        resident = slot.resident
        blocks = (block for entry in self._ram.entries for block in entry.blocks)
        wrong = _Wrong(
            resident.namespace,
            _until(resident.ids, difference),
            frozenset(block for block in blocks if _stands(block, slot)),
            _copies(resident.resumable),
        )
        self._give_up(self._ram, wrong)

    def entry(self, entry: RamEntry, difference: Difference) -> None:
        """An entry in memory is wrong."""
        assert self._ram is not None
        wrong = _Wrong(
            entry.namespace,
            _until(entry.ids, difference),
            frozenset(entry.blocks),
            _copies(entry.state.anchors),
        )
        self._give_up(self._ram, wrong)

    def _give_up(self, ram: RamTier, wrong: _Wrong) -> None:
        """The wrong one is among those that go: it is of its own tokens."""
        # Who shares with whom is seen before the first of them goes.
        slots = [slot for slot in self._slots if _may_hold(slot, wrong)]
        entries = [entry for entry in ram.entries if _may_have(entry, wrong)]
        for entry in entries:
            ram.distrust(entry)
        for slot in slots:
            self._forget(slot)


def _until(ids: TokenIds, difference: Difference) -> TokenIds:
    """The tokens below the place that departs; with that of a row."""
    place = difference.line if difference.row is None else difference.row + 1
    return ids[:place].copy()


def _copies(anchors: Sequence[Anchor]) -> frozenset[SectionsHandle]:
    return frozenset(anchor.handle for anchor in anchors)


def _stands(block: KeptBlock, slot: Slot) -> bool:
    """Whether rows of a block are the resident's of a slot; above its length they are others'."""
    return slot.index in block.places and block.span.start < slot.resident.length


def _may_have(entry: RamEntry, wrong: _Wrong) -> bool:
    return (
        not wrong.blocks.isdisjoint(entry.blocks)
        or not wrong.copies.isdisjoint(_copies(entry.state.anchors))
        or _is_of(entry.namespace, entry.ids, wrong)
    )


def _may_hold(slot: Slot, wrong: _Wrong) -> bool:
    resident = slot.resident
    return (
        any(_stands(block, slot) for block in wrong.blocks)
        or not wrong.copies.isdisjoint(_copies(resident.resumable))
        or _is_of(resident.namespace, resident.ids, wrong)
    )


def _is_of(namespace: Namespace, ids: TokenIds, wrong: _Wrong) -> bool:
    """Whether a state is of the same tokens up to the place that departs."""
    return namespace == wrong.namespace and np.array_equal(ids[: len(wrong.ids)], wrong.ids)
