"""Conversations on the medium: what is resident is written before it is lost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..domain.anchor import Anchor
from ..domain.end import End
from ..domain.entry import EntryId, Role
from ..domain.grid import Grid
from ..domain.prompt_chain import PromptChain
from ..domain.write_guard import WriteCause
from .disk_tier import DiskTier
from .entry_ids import entry_id
from .entry_write import EntryWrite, Snapshot
from .ram_entry import RamEntry
from .request import NO_SLOT
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
        write_kept: Callable[[RamEntry, Snapshot, PromptChain, Sequence[Anchor]], EntryWrite],
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
        self._write_kept = write_kept
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
        return self._lacks(self._chain(resident, line), resident.lasting.end)

    def is_dirty_entry(self, entry: RamEntry) -> bool:
        """Whether memory has something that can be resumed and that the medium does not hold."""
        stored = None if entry.stored is None else self._tier.index.entry(entry.stored)
        if stored is not None and any(anchor.line == entry.line for anchor in stored.anchors):
            return False
        return self._lacks(entry.chain, entry.state.lasting(self._grid).end)

    def was_given_up(self, entry: RamEntry) -> bool:
        """Whether the medium had all that memory has of it, and let it go since its last use."""
        had, line, used_s = self._tier.given_up.had, entry.line, entry.last_used_s
        if entry.stored is not None and had(entry.stored, line, used_s, ends=False):
            return True
        ends = entry.state.lasting(self._grid).end is not None
        return had(self._own_id(entry.chain), line, used_s, ends=ends)

    def _lacks(self, chain: PromptChain, end: End | None) -> bool:
        """Whether the medium lacks the conversation of a chain's tokens, or its end."""
        stored = self._tier.index.entry(self._own_id(chain))
        # Damage may have cut the entry of these very tokens back to a lower line.
        if stored is None or stored.anchors[-1].line < chain.length:
            return True
        return end is not None and stored.end is None

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
        line, lasting = resident.highest, resident.lasting
        chain = self._chain(resident, line)
        under_way = self._under_way(self._writes.of_slot(slot), chain, lasting.end)
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
            end=lasting.end,
        )
        work = self._start_write(slot, snapshot, chain, lasting.anchors)
        write = Write(slot, work, ready=True)
        self._writes.add(write)
        return write

    def save_entry(self, entry: RamEntry, cause: WriteCause) -> Write | None:
        """Begin to write what memory keeps; see `save`. The entry is lent until it is copied."""
        if not self.is_dirty_entry(entry):
            return None
        chain, state, lasting = entry.chain, entry.state, entry.state.lasting(self._grid)
        under_way = self._under_way(self._writes.of_slot(NO_SLOT), chain, lasting.end)
        if under_way is not None:
            return under_way
        if not self._may_write(cause, chain):
            return None
        snapshot = Snapshot(
            fingerprint=self._tier.fingerprint,
            namespace=entry.namespace,
            role=Role.CONVERSATION,
            session=entry.session,
            ids=state.ids,
            key_ids=state.key_ids,
            taint=state.taint,
            end=lasting.end,
        )
        write = Write(
            NO_SLOT, self._write_kept(entry, snapshot, chain, lasting.anchors), ready=True
        )
        entry.lent += 1
        write.entry = entry
        self._writes.add(write)
        return write

    def _under_way(
        self, writes: Sequence[Write], chain: PromptChain, end: End | None
    ) -> Write | None:
        """A write of just this conversation that nothing has cut short."""
        for write in writes:
            work = write.work
            same = work.snapshot.role is Role.CONVERSATION and work.chain.length == chain.length
            if (
                same
                and work.chain.key(chain.length) == chain.key(chain.length)
                and work.snapshot.end == end
                and not work.dropped
                and work.failure is None
            ):
                return write
        return None

    def _own_id(self, chain: PromptChain) -> EntryId:
        """Of the conversation of a chain's tokens."""
        return entry_id(Role.CONVERSATION, self._tier.fingerprint, chain.key(chain.length))

    def _chain(self, resident: ResidentPrefix, line: int) -> PromptChain:
        return PromptChain(resident.key_ids[:line].copy(), resident.namespace, self._grid)
