"""How much of its prompt a request may read again: the rule of each kind, as data, and its check.

What the present policies can promise:

- On a slot that nobody else used since, a request that goes on from the whole last sequence starts
  at the end of the last answer: only new tokens are read.
- There, one that parts from the last sequence, or repeats it, starts at the highest grid line below
  the parting that the last prefill passed, if that is among the newest, which are never dropped.
- Whoever used the slots, a request starts at the highest line that stands in an idle slot for it.
- And at the highest that the medium offers, less the tokens that could be read while it is brought
  in; where the medium was sound, and nothing had to leave it meanwhile.
- So it does at the highest that memory offers, less the same. Where memory is plenty, it offers
  what the conversation's own slot did, but for less than a grid step, whoever came between.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..application.request import Decision, Finished
from ..application.slots import Slot
from ..domain.grid import Grid
from ..domain.namespace import Namespace
from ..domain.offers import usable_line
from ..domain.tokens import TokenIds, common_prefix
from .action import Kind
from .violation import violated


class Promise(enum.Enum):
    """Where a request starts on a slot that nobody else used."""

    END = "the end of the last answer"
    GRID = "the highest grid line below the parting"
    NOTHING = "anywhere"


PROMISES: Final[Mapping[Kind, Promise]] = {
    Kind.TURN: Promise.END,
    Kind.READ: Promise.END,
    Kind.TAG: Promise.END,
    Kind.LIMIT: Promise.END,
    Kind.CANCEL: Promise.END,
    Kind.COMEBACK: Promise.END,
    Kind.RETURN: Promise.GRID,
    Kind.RETRY: Promise.GRID,
    Kind.STRIPPED: Promise.GRID,
    Kind.EDIT: Promise.GRID,
    Kind.BRANCH: Promise.GRID,
    Kind.COMPACT: Promise.GRID,
    Kind.OTHER: Promise.END,
    Kind.CHAT: Promise.END,
    Kind.SUMMARY: Promise.NOTHING,
    Kind.BEGIN: Promise.NOTHING,
    Kind.TITLE: Promise.NOTHING,
}


@dataclass(frozen=True, slots=True)
class Standing:
    """What a client's last request left in its slot.

    Attributes:
        used: the slot's count of placements then: another one says that somebody was there.
        life: of the server.
        end: where its answer stopped; None where no end was kept.
        lines: grid lines that its prefill passed and whose anchors are never dropped.
    """

    slot: int
    used: int
    life: int
    namespace: Namespace
    ids: TokenIds
    end: int | None
    lines: tuple[int, ...]

    @classmethod
    def after(
        cls, slot: Slot, life: int, finished: Finished, prompt: int, grid: Grid, newest: int
    ) -> "Standing":
        """What stands there when a request has just ended."""
        passed = list(grid.lines(finished.decision.cached, prompt))
        return cls(
            slot=slot.index,
            used=slot.used,
            life=life,
            namespace=slot.resident.namespace,
            ids=slot.resident.ids.copy(),
            end=None if slot.resident.end is None else slot.resident.end.line,
            lines=tuple(passed[-newest:]),
        )

    def is_undisturbed(self, slots: Sequence[Slot], life: int) -> bool:
        """Whether nobody used the slot since, nor was another conversation healed in it."""
        slot = slots[self.slot]
        resident = slot.resident
        shared = common_prefix(resident.ids, self.ids)
        return (
            self.life == life
            and slot.used == self.used
            and 0 < shared == min(len(self.ids), resident.length)
        )

    def promised(self, promise: Promise, prompt: TokenIds) -> int:
        """The line at which a prompt starts at the latest."""
        highest = min(common_prefix(self.ids, prompt), usable_line(len(prompt)))
        lines = [line for line in self.lines if line <= highest]
        if self.end is not None and self.end <= highest:
            lines.append(self.end)
        return 0 if promise is Promise.NOTHING else max(lines, default=0)


def line_in_slots(
    slots: Sequence[Slot],
    prompt: TokenIds,
    namespace: Namespace,
    cost: Callable[[Slot], int] = lambda slot: 0,
) -> int:
    """The highest line at which a prompt can start in an idle slot as it is.

    Args:
        cost: tokens that may as well be read as that slot be taken.
    """
    best = 0
    for slot in slots:
        resident = slot.resident
        if not slot.idle or resident.namespace != namespace:
            continue
        highest = min(common_prefix(resident.ids, prompt), usable_line(len(prompt)))
        best = max([best, *(line - cost(slot) for line in resident.lines if line <= highest)])
    return best


def check_reread(decision: Decision, promised: int, why: str) -> None:
    """A request that starts lower than promised reads again what it should not.

    Raises:
        Violation: it does.
    """
    if decision.cached < promised:
        told = f"starts at {decision.cached} of {decision.cached + decision.reread}"
        violated("reread", f"{told} where {promised} was promised: {why}")
