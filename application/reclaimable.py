"""What can give memory back, and the parts of it that every engine has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from ..domain.entry import Role
from ..domain.memory_plan import GIVE_BACK_ORDER
from ..ports.gpu_state import GpuState, StateCopies
from ..ports.memory import Memory
from .disk_service import DiskService
from .ram_tier import RamTier
from .slots import Slot

RAM_ROLES: Final[Mapping[str, Role]] = MappingProxyType(
    {
        "snapshots": Role.SNAPSHOT,
        "stash": Role.STASH,
        "parked": Role.PARK,
        "pinned": Role.PIN,
    }
)
"""Why entries are kept in memory, by the names that give memory back."""


class Reclaimable(Protocol):
    """A cache that can give memory back. On the engine thread."""

    @property
    def name(self) -> str:
        """One of `domain.memory_plan.GIVE_BACK_ORDER`."""
        ...

    def held(self) -> int:
        """Bytes that it holds alone, what is in use included."""
        ...

    def give_back(self, wanted: int) -> int:
        """Give up what is worth least until so many bytes came free; how many did.

        What is worthless or durable goes first. What a request uses now, or something copies from,
        stays.
        """
        ...


@dataclass(frozen=True, slots=True)
class CopyBytes:
    """Bytes of an engine's copies in one pool.

    Attributes:
        live: of copies that somebody holds.
        free: of buffers that nobody holds and that are kept for the next copy.
    """

    live: int
    free: int


class CopyAccount:
    """The copies of an engine's state that stand in one pool."""

    def __init__(self, copies: StateCopies, *, rows: bool = True, sections: bool = True) -> None:
        """Takes which kinds of them stand there."""
        self._copies = copies
        self._rows = rows
        self._sections = sections

    def count(self) -> CopyBytes:
        """What there is now; takes microseconds."""
        counts = self._copies.counts()
        live = counts.row_bytes * self._rows + counts.section_bytes * self._sections
        # Buffers of rows are larger by far: free ones are counted where those stand.
        return CopyBytes(live, counts.free_bytes * self._rows)

    def give_back(self) -> None:
        """Free the buffers that nobody holds."""
        self._copies.give_back()


class AllocatorReserve:
    """Free blocks: those that the engine's copies keep, and those that the allocator does."""

    def __init__(self, memory: Memory, copies: CopyAccount | None) -> None:
        self._memory = memory
        self._copies = copies

    def count(self) -> CopyBytes:
        """Of the engine's copies."""
        return CopyBytes(0, 0) if self._copies is None else self._copies.count()

    def give_back(self) -> None:
        """Return all of it to the system."""
        if self._copies is not None:
            self._copies.give_back()
        self._memory.give_back()


class UnwrittenRows:
    """Rows of slots that were never touched: the system hands their memory out when they are.

    A slot is looked at whenever this is asked for, so what a request wrote and was cut again in
    between may be missed; then it counts as unwritten, which only keeps room for it.
    """

    def __init__(self, slots: Sequence[GpuState]) -> None:
        """Takes slots none of whose rows were written yet."""
        self._slots = slots
        self._highest = [0] * len(slots)

    def __call__(self) -> int:
        """Bytes."""
        lengths = (slot.length for slot in self._slots)
        self._highest = [max(pair) for pair in zip(self._highest, lengths, strict=True)]
        pairs = zip(self._slots, self._highest, strict=True)
        return sum(slot.unwritten_bytes(highest) for slot, highest in pairs)


class BodyAnchors:
    """Grid anchors of the conversations in slots, but for the newest of each."""

    name = "body_anchors"

    def __init__(
        self, slots: Sequence[Slot], section_bytes: int, takes: Callable[[Slot], bool]
    ) -> None:
        """Takes the slots.

        Args:
            takes: whether a slot's anchors may be given up now.
        """
        self._slots = slots
        self._section_bytes = section_bytes
        self._takes = takes

    def held(self) -> int:
        return sum(slot.resident.kept for slot in self._slots) * self._section_bytes

    def give_back(self, wanted: int) -> int:
        if not self._section_bytes:
            return 0
        dropped = 0
        for slot in least_recently_used(self._slots, self._takes):
            missing = -(-wanted // self._section_bytes) - dropped
            dropped += slot.resident.thin(missing)
        return dropped * self._section_bytes


class EndAnchors:
    """Where the generations of the conversations in slots stopped."""

    name = "end_anchors"

    def __init__(
        self, slots: Sequence[Slot], section_bytes: int, takes: Callable[[Slot], bool]
    ) -> None:
        """As of `BodyAnchors`."""
        self._slots = slots
        self._section_bytes = section_bytes
        self._takes = takes

    def held(self) -> int:
        ends = sum(slot.resident.end_anchor is not None for slot in self._slots)
        return ends * self._section_bytes

    def give_back(self, wanted: int) -> int:
        freed = 0
        for slot in least_recently_used(self._slots, self._takes):
            if freed >= wanted or not self._section_bytes:
                break
            freed += slot.resident.drop_end() * self._section_bytes
        return freed


def least_recently_used(slots: Sequence[Slot], takes: Callable[[Slot], bool]) -> list[Slot]:
    """The slots that nothing runs in and that `takes` allows, the least recently used first."""
    idle = [slot for slot in slots if slot.idle and takes(slot)]
    return sorted(idle, key=lambda slot: (slot.used, slot.index))


def in_order(caches: Sequence[Reclaimable]) -> list[Reclaimable]:
    """As they give back, the cheapest first."""
    return sorted(caches, key=lambda cache: GIVE_BACK_ORDER.index(cache.name))


def copied_from(disk: DiskService | None) -> Callable[[Slot], bool]:
    """Whether a slot's anchors may go as far as the disk is concerned.

    What is being written is copied from its anchors piece by piece.
    """

    def is_copied(slot: Slot) -> bool:
        return disk is None or all(write.work.copied for write in disk.writes.of_slot(slot.index))

    return is_copied


class RamEntries:
    """The entries of the tier in memory that are kept for one reason."""

    def __init__(self, tier: RamTier, name: str, role: Role) -> None:
        self.name = name
        self._tier = tier
        self._roles = (role,)

    def held(self) -> int:
        return self._tier.held(self._roles)

    def give_back(self, wanted: int) -> int:
        return self._tier.give_back(wanted, self._roles)
