"""What conversations may count on where memory is plenty: whoever came between, they are there."""

import math
from typing import Final

from ..application.ram_tier import RamTier
from ..application.slots import Slot
from ..domain.namespace import Namespace
from ..domain.prompt_chain import PromptChain
from ..domain.tokens import TokenIds
from .clients import Ask
from .machine import Machine
from .reread import PROMISES, Standing, line_in_slots
from .traits import PLENTY_BYTES
from .violation import violated

JUNCTIONS: Final = 8
"""Anchors beside the newest that a slot must have room for, to keep those where prompts part.

Those who ask beside a conversation leave some of their own.
"""

PREFILL_TOKENS_PER_S: Final = 1000.0
"""What the checkable engine says of itself; a prefill takes no time on the world's clock."""


class Remembered:
    """What each conversation of each client left when its last turn had ended."""

    def __init__(self, machine: Machine) -> None:
        """Nobody has asked yet."""
        self._machine = machine
        self._left: dict[tuple[int, int], tuple[Standing, int]] = {}

    def forget(self) -> None:
        """The process has ended, or memory was cleared on request."""
        self._left.clear()

    def went_on(self, ask: Ask, standing: Standing | None) -> None:
        """A request has ended; what it left, if it ended well."""
        if not ask.kept:
            return  # whoever asks beside a conversation costs it nothing
        talk = ask.client, ask.talk
        if standing is not None:
            self._left[talk] = standing, self._machine.server.engine.spoils
        else:
            self._left.pop(talk, None)

    def line(self, ask: Ask, prompt: TokenIds, namespace: Namespace) -> int:
        """The line at which a prompt may start at the latest, as far as memory decides that.

        Raises:
            Violation: nothing that is kept reaches as far as it must.
        """
        server, ram = self._machine.server, self._machine.server.scheduler.ram
        if ram is None:
            return 0
        if ram.bytes_max < PLENTY_BYTES:
            self.forget()  # others have taken it: whoever loses a slot now may not be kept
        chain = PromptChain(prompt, namespace, server.engine.profile.grid)
        ways = ram.ways(server.request(prompt.tolist()).prompt, chain, counts=False)
        kept = max((way.anchor.line for way in ways), default=0)
        promised = self._promised(ask, prompt, namespace)
        best = max(kept, line_in_slots(server.scheduler.slots, prompt, namespace))
        if best < promised:
            violated("reread", f"{best} is kept where {promised} was promised: memory is plenty")
        worth = [
            offer.line - tokens_in(offer.move_seconds) - in_the_way(ram, slot, len(prompt))
            for slot in server.scheduler.slots
            for offer in [ram.offer(way, slot.index) for way in ways]
        ]
        return max(worth, default=0)

    def _promised(self, ask: Ask, prompt: TokenIds, namespace: Namespace) -> int:
        """Less than a grid step may be lost: that is read again sooner than it is kept."""
        machine, server = self._machine, self._machine.server
        ram, left = server.scheduler.ram, self._left.get((ask.client, ask.talk))
        # Where less than that is a conversation's own, it is found in one that parted from it: by
        # the anchor where it did, which has to stand beside the newest.
        few = machine.traits.anchors < machine.traits.newest + JUNCTIONS
        if ram is None or left is None or few:
            return 0
        standing, spoils = left
        gone = ram.counts.evicted + ram.counts.demoted + ram.counts.cut
        if gone or spoils != server.engine.spoils or standing.namespace != namespace:
            return 0
        line = standing.promised(PROMISES[ask.kind], prompt)
        return max(line - machine.traits.grid, 0)


def in_the_way(ram: RamTier, slot: Slot, length: int) -> int:
    """Tokens that can be read while what stands in a slot leaves it for a prompt, at most."""
    standing = ram.blocks.at_risk(slot.index, 0, length)
    standing += min(length, slot.resident.highest) * ram.blocks.row_bytes
    return tokens_in(ram.rate.seconds(standing, 0))


def tokens_in(seconds: float) -> int:
    """Tokens that can be read in a time."""
    return math.ceil(seconds * PREFILL_TOKENS_PER_S)
