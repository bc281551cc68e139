"""Requests against the memory that is left: who is told to come back, when, and what it costs."""

from collections.abc import Sequence

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.fixed_memory import FixedMemory
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.limits import Limits
from anchorline.application.memory_pools import MemoryPools
from anchorline.application.memory_setup import manage_caches, memory_pools
from anchorline.application.memory_stats import MemoryStats
from anchorline.application.request import Event, Failed, Finished, Queued, Written
from anchorline.application.scheduler import Scheduler
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.errors import MemoryShort, RequestError
from anchorline.domain.memory_plan import LimitsWanted
from anchorline.domain.sampling import Logits
from anchorline.domain.tokens import TokenIds
from anchorline.ports.memory import MemoryUse
from support.builders import a_prompt, a_request

ANCHORS = AnchorBudget(bytes_max=1 << 20, count_min=5, newest_kept=2)
MIB = 1 << 20


class MemoryOfEngine(FixedMemory):
    """A pool that the copies of an engine's state stand in."""

    def __init__(self) -> None:
        super().__init__(total=64 * MIB, allocated=MIB)
        self.engine: CheckableEngine | None = None

    def use(self) -> MemoryUse:
        if self.engine is not None:
            counts = self.engine.copies.counts()
            self.allocated = MIB + counts.row_bytes + counts.section_bytes + counts.free_bytes
        return super().use()


class HungryEngine(CheckableEngine):
    """Each of its chunks takes memory while it runs."""

    def __init__(self, memory: FixedMemory, slots: int) -> None:
        super().__init__(slots=slots, window=256, grid=8)
        self._memory = memory
        self.chunk_bytes = 0

    def prefill(self, slot: int, chunk: TokenIds) -> Logits:
        self._memory.allocated += self.chunk_bytes
        self._memory.allocated -= self.chunk_bytes
        return super().prefill(slot, chunk)


class Served:
    """A scheduler over a pool of memory."""

    def __init__(self, *, slots: int = 1, **wanted: int | None) -> None:
        self.memory = MemoryOfEngine()
        self.written: list[list[Written]] = []
        self.engine = HungryEngine(self.memory, slots)
        self.memory.engine = self.engine
        telemetry = RecordingTelemetry()
        self.pools = memory_pools(
            self.engine, telemetry, self.memory, None, LimitsWanted().changed(wanted), ANCHORS
        )
        self.scheduler = Scheduler(
            self.engine,
            ToyTokenizer(),
            ManualClock(),
            telemetry,
            Limits(queue_max=8, anchors=ANCHORS, cache_enabled=True, ram_bytes_max=MIB),
            pools=self.pools,
        )
        manage_caches(self.pools, self.engine, self.scheduler)

    def submit(self, ids: Sequence[int], name: str = "r", max_tokens: int = 4) -> list[Event]:
        events: list[Event] = []
        request = a_request(a_prompt(ids), id=name, max_tokens=max_tokens)
        self.scheduler.submit(request, events.append)
        return events

    def run(self) -> None:
        while self.scheduler.step():
            pass

    def ask(self, ids: Sequence[int], max_tokens: int = 4) -> Finished:
        events = self.submit(ids, max_tokens=max_tokens)
        self.run()
        finished = events[-1]
        assert isinstance(finished, Finished)
        self.written.append([event for event in events if isinstance(event, Written)])
        return finished

    def stats(self) -> MemoryStats:
        (stats,) = self.pools.stats()
        return stats


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at) % 97 for at in range(count)]


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_told() -> None:
    served = Served()
    served.memory.taken = 64 * MIB - MIB - 1000

    with pytest.raises(MemoryShort):
        served.submit(ids(0, 200))

    assert served.scheduler.idle


def test_one_that_waits_and_no_longer_fits_fails_when_its_turn_comes() -> None:
    served = Served()
    served.submit(ids(0, 30), max_tokens=20)
    served.scheduler.step()
    waiting = served.submit(ids(5, 200), "w")
    served.memory.taken = 64 * MIB - MIB - 1000

    served.run()

    assert waiting[0] == Queued(ahead=0)
    assert isinstance(waiting[-1], Failed)
    assert isinstance(waiting[-1].error, MemoryShort)
    assert served.stats().short == 1


def test_one_that_waits_and_can_never_fit_is_refused_at_once() -> None:
    served = Served()
    served.submit(ids(0, 30), max_tokens=20)
    served.scheduler.step()
    served.memory.taken = 64 * MIB - MIB - 1000

    with pytest.raises(MemoryShort):
        served.submit(ids(5, 200), "w")


def test_memory_that_comes_back_is_used_again() -> None:
    served = Served()
    served.memory.taken = 64 * MIB - MIB - 1000
    with pytest.raises(MemoryShort):
        served.submit(ids(0, 200))

    served.memory.taken = 0

    assert served.ask(ids(0, 200)).decision.cached == 0


def test_a_limit_only_decides_where_a_prefill_starts() -> None:
    wide, tight = Served(), Served()
    for served in (wide, tight):
        served.ask(ids(0, 100))
    tight.pools.set_limits(None, {"ceiling": MIB, "slack": 0})

    edited = [*ids(0, 67), 1, 2, 3]
    far, near = wide.ask(edited, max_tokens=20), tight.ask(edited, max_tokens=20)

    assert (far.decision.cached, near.decision.cached) == (64, 0)
    assert wide.written == tight.written
    given = {back.cache for back in tight.stats().given_back if back.reason == "limits"}
    assert given == {"reserve", "body_anchors", "end_anchors"}


def test_what_chunks_take_is_observed() -> None:
    served = Served()
    served.engine.chunk_bytes = 5 * MIB

    served.ask(ids(0, 40))

    assert served.stats().workspace.raised_bytes > 4 * MIB


@pytest.mark.parametrize(("blocks_of_slack", "prepared"), [(100, 7), (3, 3), (0, 0)])
def test_while_a_prompt_is_read_memory_is_taken_for_the_copies_of_its_rows(
    blocks_of_slack: int, prepared: int
) -> None:
    block = 8 * HungryEngine(FixedMemory(total=MIB), 1).profile.layout.row_bytes
    served = Served(slack=blocks_of_slack * block)

    served.submit(ids(0, 64))
    for _ in range(8):  # chunks; with the last one the first token is there
        served.scheduler.step()

    assert served.engine.copies.counts().free_bytes == prepared * block


def test_requests_that_run_are_known_until_they_end() -> None:
    served = Served(slots=2)
    served.submit(ids(0, 60), "a", max_tokens=30)
    served.submit(ids(3, 20), "b", max_tokens=2)
    served.scheduler.step()
    both = served.stats().running

    served.scheduler.cancel("a")
    left = served.stats().running
    served.run()

    assert (both, left, served.stats().running) == (60, 20, 0)


def test_a_request_that_was_given_up_before_its_turn_leaves_nothing_promised() -> None:
    served = Served()
    served.submit(ids(0, 60), "a")

    served.scheduler.cancel("a")

    assert served.stats().running == 0


def test_limits_of_a_pool_that_is_not_there_are_refused() -> None:
    pools: MemoryPools = Served().pools

    with pytest.raises(RequestError, match="there is host") as refused:
        pools.set_limits("cuda:7", {"ceiling": MIB})

    assert refused.value.field == "pool"
