"""A pool of memory with caches in it, all of whose bytes a test sees."""

from collections.abc import Mapping

from anchorline.adapters.memory.fixed_memory import FixedMemory
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.application.memory_budget import MemoryBudget
from anchorline.domain.memory_plan import LimitsWanted, MemoryFound, memory_plan
from anchorline.domain.workspace_model import WorkspaceModel


class FakeCache:
    """A cache in a pool: what it gives back is freed there."""

    def __init__(self, memory: FixedMemory, name: str, nbytes: int = 0, *, kept: int = 0) -> None:
        """Takes its bytes out of the pool.

        Args:
            kept: bytes that something is using, and that are not given back.
        """
        self.name = name
        self._memory = memory
        self._bytes = 0
        self.kept = kept
        self.asked: list[int] = []
        self.grow(nbytes)

    def grow(self, nbytes: int) -> None:
        self._bytes += nbytes
        self._memory.allocated += nbytes

    def held(self) -> int:
        return self._bytes

    def give_back(self, wanted: int) -> int:
        self.asked.append(wanted)
        freed = max(min(wanted, self._bytes - self.kept), 0)
        self.grow(-freed)
        return freed


class Pool:
    """A pool of 1,000 bytes: 100 are the model's, 100 the system's, a row has 1 byte.

    Attributes:
        unwritten: bytes of rows that no slot has touched.
    """

    def __init__(
        self,
        caches: Mapping[str, int] | None = None,
        *,
        taken: int = 0,
        unwritten: int = 0,
        beside: int = 0,
        workspace: WorkspaceModel | None = None,
        **wanted: int | None,
    ) -> None:
        """Takes the bytes of caches by name; limits that are not `wanted` are round ones."""
        self.memory = FixedMemory(total=1000, allocated=100, taken=taken)
        self.telemetry = RecordingTelemetry()
        self.unwritten = unwritten
        found = MemoryFound(
            total=1000,
            available=900 - taken,
            held=100,
            unwritten=unwritten,
            window=1000,
            row_bytes=1,
            workspace=0,
            anchors=50,
            floor=100,
            beside=beside,
        )
        limits = {"ceiling": 600, "peak": 700, "slack": 50, "ram_bytes_max": 220, **wanted}
        self.budget = MemoryBudget(
            "host",
            self.memory,
            memory_plan(found, LimitsWanted().changed(limits)),
            workspace or WorkspaceModel(floor_bytes=10, row_bytes=1, bytes_max=500),
            self.telemetry,
            unwritten=lambda: self.unwritten,
        )
        self.caches = {
            name: FakeCache(self.memory, name, nbytes) for name, nbytes in (caches or {}).items()
        }
        self.budget.manage(list(self.caches.values()))

    def held(self) -> dict[str, int]:
        return {name: cache.held() for name, cache in self.caches.items()}
