"""The conversation whose slot a request takes: kept in memory, written, or knowingly given up."""

from collections.abc import Sequence

from ..domain.displacement import Displacement, Incoming, displace
from ..domain.entry import EntryId, Role
from ..domain.write_guard import WriteCause
from ..ports.engine import Engine
from .disk_service import DiskService
from .entry_write import Progress
from .ram_entry import RamEntry
from .ram_tier import RamTier
from .request import GenerationRequest
from .slots import Placement, Preparation, Slot, Slots
from .writes import Write


class Displacing:
    """Settles what becomes of conversations, before a row of theirs is overwritten."""

    def __init__(
        self, engine: Engine, disk: DiskService | None, ram: RamTier | None, slots: Slots
    ) -> None:
        self._profile = engine.profile
        self._disk = disk
        self._ram = ram
        self._slots = slots

    def begin(self, preparation: Preparation) -> None:
        """Decide, and do it where nothing has to be waited for."""
        ram = self._ram
        if ram is None:
            preparation.displaced = True
            preparation.save = self._save(preparation.request, preparation.placement)
            return
        self._save_or_settle(ram, preparation)

    def step(self, preparation: Preparation, *, wait: bool) -> None:
        """Wait for the entries that must be durable before they leave; then settle it."""
        ram, disk = self._ram, self._disk
        assert ram is not None
        assert disk is not None, "only writes are waited for"
        preparation.saves = [one for one in preparation.saves if disk.writes.is_pending(one)]
        if preparation.saves:
            if disk.writes.step() is Progress.WAITING and wait:
                disk.writes.wait()
            return
        self._save_or_settle(ram, preparation)

    def _save_or_settle(self, ram: RamTier, preparation: Preparation) -> None:
        """Begin to write what has to leave and would be lost, each entry once; else settle it.

        While it was waited for, others may have taken the room that was counted on.
        """
        fate = self._fate(ram, preparation)
        coming = self._needed_at_most(ram, preparation.placement, fate)
        coming += self._at_risk(ram, preparation, fate.elsewhere.end)
        unsafe = _unsafe_victims(ram, coming, preparation.placement)
        victims = [one for one in unsafe if one.id not in preparation.tried]
        preparation.tried.update(one.id for one in victims)
        preparation.saves = self._save_entries(victims)
        if not preparation.saves:
            self._settle(ram, preparation, fate)

    def _fate(self, ram: RamTier, preparation: Preparation) -> Displacement:
        request, placement = preparation.request, preparation.placement
        resident = placement.slot.resident
        sections = ram.sections_needed(resident)
        row_bytes = max(ram.blocks.row_bytes, 1)
        incoming = Incoming(
            prompt=len(request.prompt),
            line=placement.line_in_place,
            reach=min(len(request.prompt) + request.max_tokens, self._profile.window),
            same_session=is_same_session(request, placement.slot),
        )
        earlier = ram.blocks.at_risk(placement.slot.index, resident.highest, incoming.reach)
        room = ram.room() + _changing_places(ram, placement) - earlier
        return displace(
            resident.length,
            resident.lines,
            incoming,
            self._profile.grid,
            room=(room - sections) // row_bytes,
            spare=(ram.free() - sections) // row_bytes,
        )

    def _needed(self, ram: RamTier, placement: Placement, fate: Displacement) -> int:
        """Bytes that memory has to have free for a conversation that is kept."""
        if fate.role is None:
            return 0
        slot = placement.slot
        rows = ram.blocks.copies_needed(slot.index, fate.elsewhere)
        return max(rows - _changing_places(ram, placement), 0) + ram.sections_needed(slot.resident)

    def _needed_at_most(self, ram: RamTier, placement: Placement, fate: Displacement) -> int:
        """The same once all have gone that share bytes with it."""
        if fate.role is None:
            return 0
        rows = len(fate.elsewhere) * ram.blocks.row_bytes
        # Rows change places, copies of sections do not.
        sections = ram.sections_at_most(placement.slot.resident)
        return max(rows - _changing_places(ram, placement), 0) + sections

    def _at_risk(self, ram: RamTier, preparation: Preparation, start: int) -> int:
        """Bytes of copies that are to come, beside those of what the request displaces.

        Other requests are under way, each with rows before it that stood in its slot before.
        """
        request, placement = preparation.request, preparation.placement
        reach = min(len(request.prompt) + request.max_tokens, self._profile.window)
        earlier = ram.blocks.at_risk(placement.slot.index, start, reach)
        return earlier + _crossing(ram, placement) + self._slots.promised(but=placement.slot)

    def _save_entries(self, entries: Sequence[RamEntry]) -> list[Write]:
        """Begin to write what memory keeps; none of those that may not be written."""
        disk = self._disk
        if disk is None:
            return []
        save = disk.conversations.save_entry
        writes = [save(one, WriteCause.EVICTION) for one in entries]
        return [write for write in writes if write is not None]

    def _save_behind(self, ram: RamTier, to_come: int, placement: Placement) -> None:
        """Begin to write what may have to go: while one is being written, the next one would."""
        tried: set[EntryId] = set()
        while True:
            unsafe = _unsafe_victims(ram, to_come, placement)
            victims = [one for one in unsafe if one.id not in tried]
            if not victims:
                return
            tried.update(one.id for one in victims)
            self._save_entries(victims)

    def _settle(self, ram: RamTier, preparation: Preparation, fate: Displacement) -> None:
        placement = preparation.placement
        slot = placement.slot
        preparation.displaced = True
        if fate.role is None or not self._make_room(ram, placement, fate):
            preparation.save = self._save(preparation.request, placement)
            return
        entry = ram.keep(slot.index, slot.resident, fate.top, fate.role, slot.session)
        if fate.role is Role.PIN:
            # What stands above the head is in memory no more.
            preparation.save = self._save(preparation.request, placement)
        if preparation.save is None:
            self._save_kept(entry)
        # It may have to go itself, before all is copied that stands in the request's way.
        to_come = self._at_risk(ram, preparation, placement.line_in_place)
        self._save_behind(ram, to_come, placement)

    def _make_room(self, ram: RamTier, placement: Placement, fate: Displacement) -> bool:
        """Make room for what is kept, which is more once who shared it has gone for it."""
        needed = self._needed(ram, placement, fate)
        while ram.free() < needed:
            if not ram.make_room(needed, leaving=placement.slot.index):
                return False
            needed = self._needed(ram, placement, fate)
        return True

    def _save_kept(self, entry: RamEntry) -> None:
        """Have a long one written behind everybody's back, before it must leave."""
        disk = self._disk
        if disk is not None and entry.line >= disk.conversations.policy.evicted_tokens_min:
            disk.conversations.save_entry(entry, WriteCause.EVICTION)

    def _save(self, request: GenerationRequest, placement: Placement) -> Write | None:
        """Begin to write the conversation that this request replaces, if it is worth it."""
        disk, slot = self._disk, placement.slot
        if disk is None:
            return None
        same, shared = is_same_session(request, slot), placement.decision.shared
        if not disk.conversations.must_save(slot.resident, shared, same_session=same):
            return None
        return disk.conversations.save(slot.index, slot.resident, slot.session, WriteCause.EVICTION)


def _unsafe_victims(ram: RamTier, nbytes: int, placement: Placement) -> list[RamEntry]:
    """Those that may have to go, while what the request resumes from must stay and after that."""
    victims = ram.unsafe_victims(nbytes)
    if placement.way is not None:
        later = ram.unsafe_victims(nbytes, placement.way.entry)
        victims.extend(one for one in later if one not in victims)
    return victims


def _changing_places(ram: RamTier, placement: Placement) -> int:
    """Bytes of copies that are needed no more once what they are of stands in the slot.

    Where there is room for no other, each block that comes in changes places with one that leaves.
    """
    if placement.way is None:
        return 0
    entry, line = placement.way.entry, placement.way.anchor.line
    return sum(
        ram.blocks.bytes_of(block)
        for block in entry.blocks_below(line)
        if block.handle is not None and placement.slot.index not in block.places
    )


def _crossing(ram: RamTier, placement: Placement) -> int:
    """Bytes of copies that are made on the way from other slots."""
    if placement.way is None:
        return 0
    entry, line = placement.way.entry, placement.way.anchor.line
    return sum(
        ram.blocks.bytes_of(block)
        for block in entry.blocks_below(line)
        if block.handle is None and placement.slot.index not in block.places
    )


def is_same_session(request: GenerationRequest, slot: Slot) -> bool:
    """Whether a request says that it goes on with a slot's conversation.

    A hint is its user's own: another user's same one gives nothing up.
    """
    return (
        request.session is not None
        and request.session == slot.session
        and request.namespace == slot.resident.namespace
    )
