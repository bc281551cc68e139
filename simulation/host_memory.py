"""The memory of a made-up host: what the engine's copies take of it, and what others do."""

from ..application.memory_pools import MemoryPools
from ..application.memory_setup import memory_pools
from ..domain.anchor_budget import AnchorBudget
from ..domain.memory_plan import LimitsWanted
from ..ports.engine import Engine
from ..ports.gpu_state import StateCopies
from ..ports.memory import MemoryUse
from ..ports.telemetry import Telemetry


class HostMemory:
    """Implements `ports.memory.Memory` for one process whose copies of state are all that it holds.

    Attributes:
        total: bytes there are.
        others: bytes that others hold; set it as time goes.
    """

    def __init__(self, copies: StateCopies, total: int) -> None:
        """Nobody holds anything."""
        self._copies = copies
        self.total = total
        self._reserved = 0
        self._highest = 0
        self.others = 0

    def leave(self, nbytes: int) -> None:
        """Let others take all but so many bytes, as far as there are so many."""
        self.others = max(self.total - self.use().reserved - nbytes, 0)

    def use(self) -> MemoryUse:
        counts = self._copies.counts()
        allocated = counts.row_bytes + counts.section_bytes + counts.free_bytes
        self._reserved = max(self._reserved, allocated)
        available = max(self.total - self._reserved - self.others, 0)
        self._highest = max(self._highest, self._reserved)
        return MemoryUse(allocated, self._reserved, available, self.total, self._highest)

    def give_back(self) -> int:
        before, self._reserved = self.use().reserved, 0
        return before - self.use().reserved

    def rose(self) -> int:
        return 0


def pools_of(
    host: HostMemory,
    engine: Engine,
    telemetry: Telemetry,
    anchors: AnchorBudget,
    ram_bytes_max: int,
) -> MemoryPools:
    """The limits of a server on that host, whose tier in memory may have so much of it."""
    wanted = LimitsWanted(ram_bytes_max=ram_bytes_max)
    return memory_pools(engine, telemetry, host, None, wanted, anchors)
