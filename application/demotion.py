"""Idle demotion: what nobody used for a while leaves memory, once the medium has it."""

from typing import Final

from ..domain.write_guard import WriteCause
from ..ports.clock import Clock
from .conversations import Conversations
from .ram_tier import RamTier

LOOK_EVERY_S: Final = 5.0


class Demotion:
    """Makes memory free for others. On the engine thread, while no request has anything to do."""

    def __init__(
        self, ram: RamTier, conversations: Conversations, clock: Clock, idle_s: float
    ) -> None:
        """Takes both tiers.

        Args:
            idle_s: unused for so long, an entry leaves.
        """
        self._ram = ram
        self._conversations = conversations
        self._clock = clock
        self._idle_s = idle_s
        self._looked_s = clock.monotonic()

    def step(self) -> None:
        """Let the idle entries go that are durable; have those written that are not."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s < min(LOOK_EVERY_S, self._idle_s):
            return
        self._looked_s = now_s
        for entry in self._ram.entries:
            if entry.lent or now_s - entry.last_used_s < self._idle_s:
                continue
            if not self._conversations.is_dirty_entry(entry):
                self._ram.demote(entry)
            elif (
                entry.line >= self._conversations.policy.idle_tokens_min
                # What the medium has just let go for others stays, for as long as there is room.
                and not self._conversations.was_given_up(entry)
            ):
                # It leaves once that is durable; a write that fails leaves it where it is.
                self._conversations.save_entry(entry, WriteCause.EVICTION)
