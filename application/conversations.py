"""Conversations on the medium: what is resident is written before it is lost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..domain.anchor import Anchor
from ..domain.entry import Role
from ..domain.entry_succession import ANCHORS_SAVED
from ..domain.grid import Grid
from ..domain.prompt_chain import PromptChain
from ..domain.write_guard import WriteCause
from .disk_tier import DiskTier
from .entry_ids import entry_id
from .entry_write import EntryWrite, Snapshot
from .resident_prefix import ResidentPrefix
from .writes import Write, Writes


@dataclass(frozen=True, slots=True)
class SavePolicy:
    """When a conversation is written.

    Attributes:
        evicted_tokens_min: one that another replaces is written from this length on.
        lost_tokens_min: if it would lose at least so many tokens.
        idle_tokens_min: one that nobody used for a while is written from this length on.
        idle_s: what a while is; None never writes for that reason.
    """

    evicted_tokens_min: int
    lost_tokens_min: int
    idle_tokens_min: int
    idle_s: float | None


class Conversations:
    """Saves what is resident in slots. On the engine thread."""

    def __init__(
        self,
        tier: DiskTier,
        writes: Writes,
        grid: Grid,
        policy: SavePolicy,
        start_write: Callable[[int, Snapshot, PromptChain, Sequence[Anchor]], EntryWrite],
        may_write: Callable[[WriteCause, PromptChain], bool],
    ) -> None:
        """Takes where writes go.

        Args:
            may_write: whether a conversation may be written now, with room made for it.
        """
        self._tier = tier
        self._writes = writes
        self._grid = grid
        self.policy = policy
        self._start_write = start_write
        self._may_write = may_write

    def must_save(self, resident: ResidentPrefix, shared: int, *, same_session: bool) -> bool:
        """Whether a request that shares `shared` tokens may not replace the rest as it is."""
        lost = resident.length - shared
        return (
            not same_session
            and resident.length >= self.policy.evicted_tokens_min
            and lost >= self.policy.lost_tokens_min
            and self.is_dirty(resident)
        )

    def is_dirty(self, resident: ResidentPrefix) -> bool:
        """Whether something can be resumed in the slot that the medium does not hold."""
        line = resident.highest
        if line == 0:
            return False
        chain = self._chain(resident, line)
        stored = self._tier.index.entry(
            entry_id(Role.CONVERSATION, self._tier.fingerprint, chain.key(line))
        )
        # Damage may have cut the entry of these very tokens back to a lower line.
        if stored is None or stored.anchors[-1].line < line:
            return True
        return resident.end is not None and resident.end.line == line and stored.end is None

    def save(
        self, slot: int, resident: ResidentPrefix, session: str | None, cause: WriteCause
    ) -> Write | None:
        """Begin to write a slot's conversation; None if there is nothing to write, or it may not.

        Where it is being written already, that write is returned: a second one would write nothing
        more, and room would be made for both.
        Copying is left to `Writes.step`: the rows must not change before it is `copied`.
        """
        if not self.is_dirty(resident):
            return None
        line = resident.highest
        chain = self._chain(resident, line)
        under_way = self._under_way(slot, chain, resident)
        if under_way is not None:
            return under_way
        if not self._may_write(cause, chain):
            return None
        snapshot = Snapshot(
            fingerprint=self._tier.fingerprint,
            namespace=resident.namespace,
            role=Role.CONVERSATION,
            session=session,
            ids=resident.ids[:line].copy(),
            key_ids=resident.key_ids[:line].copy(),
            taint=min(resident.taint.line, line),
            end=resident.end,
        )
        anchors = [anchor for anchor in resident.anchors if anchor.line <= line][-ANCHORS_SAVED:]
        end = resident.end_anchor
        # One below a higher anchor, as a prefill that was cancelled leaves it, ends no block.
        if end is not None and end.line == line:
            anchors = [*(anchor for anchor in anchors if anchor.line < end.line), end]
        work = self._start_write(slot, snapshot, chain, anchors)
        write = Write(slot, work, ready=True)
        self._writes.add(write)
        return write

    def _under_way(self, slot: int, chain: PromptChain, resident: ResidentPrefix) -> Write | None:
        """A write of just this conversation that nothing has cut short."""
        for write in self._writes.of_slot(slot):
            work = write.work
            same = work.snapshot.role is Role.CONVERSATION and work.chain.length == chain.length
            if (
                same
                and work.chain.key(chain.length) == chain.key(chain.length)
                and work.snapshot.end == resident.end
                and not work.dropped
                and work.failure is None
            ):
                return write
        return None

    def _chain(self, resident: ResidentPrefix, line: int) -> PromptChain:
        return PromptChain(resident.key_ids[:line].copy(), resident.namespace, self._grid)
