"""The memory budget: caches ask before they grow, and give back before a prefill would not fit.

Every limit only decides where a prefill starts: what was given back is read again. None of them
changes an answer.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..domain.byte_size import size
from ..domain.errors import MemoryShort
from ..domain.memory_plan import (
    GIVE_BACK_ORDER,
    RAM_SHARES,
    MemoryPlan,
    memory_plan,
    spare,
)
from ..domain.workspace_model import WorkspaceModel
from ..ports import telemetry as names
from ..ports.memory import Memory
from ..ports.telemetry import Telemetry
from .memory_stats import GivenBack, MemoryStats, Refused, WorkspaceStats
from .reclaimable import AllocatorReserve, CopyAccount, Reclaimable

RETRY_AFTER_S: Final = 10
"""What a client is told whose prefill does not fit: others end, and give their memory back."""

SAMPLES: Final = 4
"""Prefills that are watched per power of two of their context; after those it is known."""

RESERVE: Final = "reserve"
"""Free blocks, as figures name them beside the caches."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """The pool at one moment, in bytes.

    Attributes:
        held: by the process, free blocks included.
        highest: the most that this was.
        free: of those, blocks that nothing uses.
        live: copies of state that somebody holds.
        unwritten: rows that slots will take without asking.
    """

    held: int
    highest: int
    free: int
    live: int
    unwritten: int
    available: int


class MemoryBudget:
    """One pool's limits, and the caches that live under them. On the engine thread.

    Attributes:
        is_disturbed: whether something beside a prefill takes memory now, so that what rises is
            not to be taken for its workspace.
    """

    def __init__(
        self,
        pool: str,
        memory: Memory,
        plan: MemoryPlan,
        workspace: WorkspaceModel,
        telemetry: Telemetry,
        copies: CopyAccount | None = None,
        unwritten: Callable[[], int] = lambda: 0,
    ) -> None:
        """Takes a pool with no caches in it; `manage` adds them.

        Args:
            pool: its name: host, or the device's.
            copies: the engine's copies that stand in it, of which most caches are made.
            unwritten: bytes that slots have not touched of their rows yet.
        """
        self.pool = pool
        self._memory = memory
        self._plan = plan
        self._workspace = workspace
        self._telemetry = telemetry
        self._reserve = AllocatorReserve(memory, copies)
        self._unwritten = unwritten
        self._caches: Sequence[Reclaimable] = ()
        self._running: tuple[int, ...] = ()
        self._samples: Counter[int] = Counter()
        self._watched: int | None = None
        self._lasting = 0
        self._given_back: dict[tuple[str, str], GivenBack] = {}
        self._refused: Counter[tuple[str, str]] = Counter()
        self._short = 0
        self.is_disturbed: Callable[[], bool] = lambda: False
        self._now = self._measure()
        self._tell_limits()

    def manage(self, caches: Sequence[Reclaimable]) -> None:
        """Take the caches that can give memory back, the cheapest first."""
        order = [GIVE_BACK_ORDER.index(cache.name) for cache in caches]
        assert order == sorted(set(order)), f"out of order: {[cache.name for cache in caches]}"
        self._caches = tuple(caches)

    @property
    def plan(self) -> MemoryPlan:
        """The limits in force."""
        return self._plan

    @property
    def slack(self) -> int:
        """Bytes that may stand free between requests, for whatever is kept next."""
        return self._plan.slack.bytes

    # --- growing ----------------------------------------------------------------------------------

    def free(self) -> int:
        """Bytes that caches may take now without anything given back; may be below 0.

        The pool was measured when a request last began or ended; copies of state that were made
        or released since are counted on top. Takes microseconds.
        """
        return self._tightest()[0]

    def tier_bytes_max(self, held: int) -> int:
        """What the tier in memory may hold now, if it holds so many bytes; may be fewer."""
        return min(self._plan.ram_bytes_max.bytes, held + self.free())

    def may_grow(self, name: str, nbytes: int) -> bool:
        """Whether a cache may take so many bytes more; asked before they are allocated.

        It has its own share, and what the cheaper caches leave unused of theirs.
        """
        common, reason = self._tightest()
        own, own_reason = self._own_room(name)
        if own < common:
            common, reason = own, own_reason
        if nbytes <= common:
            return True
        self._refused[name, reason] += 1
        self._telemetry.count(names.MEMORY_REFUSED, labels=self._labels(cache=name, reason=reason))
        return False

    def _tightest(self) -> tuple[int, str]:
        """The least room that a limit leaves, and which limit that is."""
        plan, now = self._plan, self._now
        grown = self._reserve.count().live - now.live
        used = now.held - now.free + now.unwritten + grown
        workspace = self._workspace.nbytes(max(self._running)) if self._running else 0
        beside = plan.found.beside
        return min(
            (plan.ceiling.bytes - max(plan.slack.bytes, beside) - used, "ceiling"),
            (plan.peak.bytes - used - workspace - beside, "peak"),
            (now.available + now.free - now.unwritten - grown - plan.floor.bytes, "machine"),
        )

    def _own_room(self, name: str) -> tuple[int, str]:
        shares = self._plan.shares()
        held = {cache.name: cache.held() for cache in self._caches}
        cheaper = [other for other in held if _value(other) < _value(name)]
        unused = sum(max(shares[other] - held[other], 0) for other in cheaper)
        own = shares[name] + unused - held.get(name, 0)
        if name not in RAM_SHARES:
            return own, "share"
        tier = sum(held[other] for other in held if other in RAM_SHARES)
        return min((own, "share"), (self._plan.ram_bytes_max.bytes - tier, "ram"))

    # --- requests ---------------------------------------------------------------------------------

    def before_response(self, context_tokens: int, running: Sequence[int] = ()) -> None:
        """Refuse a prompt that would not fit with everything given back; gives nothing back.

        Args:
            context_tokens: of the prompt.
            running: of the prompts that are being served.

        Raises:
            MemoryShort: it would not.
        """
        self._now = self._measure()
        if self._is_hopeless(context_tokens, running):
            # How much the allocator has free it may not say: only its release tells.
            self._release_reserve("prefill")
            if self._is_hopeless(context_tokens, running):
                raise self._told_short(context_tokens, running)

    def before_prefill(self, context_tokens: int, running: Sequence[int] = ()) -> None:
        """Give back, the cheapest first, until a prefill's workspace fits under the peak.

        Asked before the request is placed: what it would resume from may be given back.

        Args:
            context_tokens: of the prompt.
            running: of the prompts that are being served.

        Raises:
            MemoryShort: it does not fit.
        """
        self._now = self._measure()
        short = self._give_back("prefill", lambda: self._missing(context_tokens, running))
        if short > 0:
            raise self._told_short(context_tokens, running)
        self._running = (*running, context_tokens)

    def after_request(self, running: Sequence[int] = ()) -> None:
        """A request has ended: release what is over the slack, and stay under the ceiling.

        Args:
            running: of the prompts that are still being served.
        """
        self._running = tuple(running)
        self._settle("ceiling")
        for cache in () if running else self._caches:
            labels = self._labels(cache=cache.name)
            self._telemetry.gauge(names.MEMORY_CACHE_BYTES, cache.held(), labels)

    def forwarding(self, context_tokens: int) -> None:
        """A chunk that ends at this line is about to be forwarded; follow with `forwarded`."""
        self._watched = None
        if self.is_disturbed():
            return
        if self._samples[context_tokens.bit_length()] < SAMPLES:
            self._watched = context_tokens
            self._lasting = self._lasting_bytes()
            self._memory.rose()

    def forwarded(self) -> None:
        """It has been: what it took raises the model of the workspace."""
        if self._watched is not None:
            self._samples[self._watched.bit_length()] += 1
            # Of what stays the rows and copies are counted elsewhere; not what the allocator keeps
            # of blocks that are free again: for the next chunk they may be of no use.
            stayed = self._lasting_bytes() - self._lasting
            self.observe(self._watched, self._memory.rose() - stayed)

    def observe(self, context_tokens: int, bytes_used: int) -> None:
        """A chunk that ended at this line has taken so many bytes while it ran."""
        self._workspace = self._workspace.observed(context_tokens, bytes_used)

    # --- limits -----------------------------------------------------------------------------------

    def set_limits(self, changes: Mapping[str, int | None]) -> MemoryPlan:
        """Change some of `domain.memory_plan.LIMITS`, at once; None leaves one to the plan.

        Raises:
            RequestError: they make no sense; nothing has changed.
        """
        self._plan = memory_plan(self._plan.found, self._plan.wanted.changed(changes))
        self._tell_limits()
        self._shrink_ram()
        self._settle("limits")
        return self._plan

    def stats(self) -> MemoryStats:
        """Every figure of this moment."""
        self._now = now = self._measure()
        model, window = self._workspace, self._plan.found.window
        base = WorkspaceModel(model.floor_bytes, model.row_bytes, model.bytes_max)
        return MemoryStats(
            pool=self.pool,
            total=self._plan.found.total,
            available=now.available,
            held=now.held,
            highest=now.highest,
            free=now.free,
            unwritten=now.unwritten,
            limits=self._plan.figures(),
            workspace=WorkspaceStats(
                floor_bytes=model.floor_bytes,
                row_bytes=model.row_bytes,
                bytes_max=model.bytes_max,
                window_bytes=model.nbytes(window),
                raised_bytes=model.nbytes(window) - base.nbytes(window),
                beside_bytes=self._plan.found.beside,
            ),
            caches={cache.name: cache.held() for cache in self._caches},
            running=max(self._running, default=0),
            given_back=tuple(self._given_back[key] for key in sorted(self._given_back)),
            refused=tuple(
                Refused(cache, reason, times)
                for (cache, reason), times in sorted(self._refused.items())
            ),
            short=self._short,
        )

    # --- private ----------------------------------------------------------------------------------

    def _measure(self) -> _Measured:
        use, copies = self._memory.use(), self._reserve.count()
        return _Measured(
            held=use.reserved,
            highest=use.highest,
            free=use.reserved - use.allocated + copies.free,
            live=copies.live,
            unwritten=self._unwritten(),
            available=use.available,
        )

    def _lasting_bytes(self) -> int:
        """Of what a chunk leaves: copies of state, and rows that it was the first to write."""
        return self._reserve.count().live - self._unwritten()

    def _needed(self, context_tokens: int, running: Sequence[int]) -> int:
        """What a prefill takes beside what is held: workspace, and rows nobody has touched yet."""
        contexts = (*running, context_tokens)
        rows = min(self._now.unwritten, sum(contexts) * self._plan.found.row_bytes)
        # Chunks run one after the other, so there is one workspace: the largest.
        return self._workspace.nbytes(max(contexts)) + rows + self._plan.found.beside

    def _missing(self, context_tokens: int, running: Sequence[int]) -> int:
        """Bytes to be given back before a prefill fits; 0 or less where it does."""
        needed, now = self._needed(context_tokens, running), self._now
        over_peak = now.held + needed - self._plan.peak.bytes
        return max(over_peak, needed - spare(now.available, self._plan.floor.bytes))

    def _is_hopeless(self, context_tokens: int, running: Sequence[int]) -> bool:
        """Whether a prefill would not fit with everything given back."""
        missing = self._missing(context_tokens, running)
        if missing <= self._now.free:
            return False
        return missing > self._now.free + sum(cache.held() for cache in self._caches)

    def _settle(self, reason: str) -> None:
        """Between two requests: no more than the slack is free, no more than the ceiling held."""
        self._now = self._measure()
        if self._now.free > self._plan.slack.bytes:
            self._release_reserve("slack")
        self._give_back(reason, lambda: self._now.held - self._plan.ceiling.bytes)

    def _shrink_ram(self) -> None:
        """Bring the tier in memory down to its budget, which may have become a smaller one."""
        tier = [cache for cache in self._caches if cache.name in RAM_SHARES]
        over = sum(cache.held() for cache in tier) - self._plan.ram_bytes_max.bytes
        for cache in tier:
            if over > 0:
                over -= self._take(cache, over, "limits")

    def _give_back(self, reason: str, missing: Callable[[], int]) -> int:
        """Give back in order until nothing is missing; what still is.

        What caches report is not believed: the pool is measured again after each.
        """
        if missing() > 0:
            self._release_reserve(reason)
        for cache in self._caches:
            # Less may have come free than it counts, where somebody else holds the same copies; and
            # it may hold no less, where what was shared is what remains.
            before = (missing() + 1, cache.held())
            while missing() > 0 and (missing() < before[0] or cache.held() < before[1]):
                before = (missing(), cache.held())
                if not self._take(cache, missing(), reason):
                    break
                # Its blocks are free now; the system is to have them.
                self._reserve.give_back()
                self._now = self._measure()
        return missing()

    def _take(self, cache: Reclaimable, wanted: int, reason: str) -> int:
        freed = cache.give_back(wanted)
        if freed > 0:
            self._count_back(cache.name, reason, freed)
        return freed

    def _release_reserve(self, reason: str) -> None:
        before = self._now
        self._reserve.give_back()
        self._now = self._measure()
        if before.held > self._now.held:
            self._count_back(RESERVE, reason, before.held - self._now.held)

    def _count_back(self, cache: str, reason: str, nbytes: int) -> None:
        before = self._given_back.get((cache, reason), GivenBack(cache, reason, 0, 0))
        self._given_back[cache, reason] = GivenBack(
            cache, reason, before.times + 1, before.bytes + nbytes
        )
        labels = self._labels(cache=cache, reason=reason)
        self._telemetry.count(names.MEMORY_GIVEN_BACK, nbytes, labels)

    def _told_short(self, context_tokens: int, running: Sequence[int]) -> MemoryShort:
        self._short += 1
        self._telemetry.count(names.MEMORY_SHORT, labels=self._labels())
        needed, now = self._needed(context_tokens, running), self._now
        return MemoryShort(
            f"a prompt of {context_tokens} tokens takes {size(needed)} of the {self.pool}'s memory "
            f"while it is read; {size(now.held)} of {size(self._plan.peak.bytes)} are held, and "
            f"{size(now.available)} are available",
            retry_after_s=RETRY_AFTER_S,
        )

    def _tell_limits(self) -> None:
        for name, figure in self._plan.figures().items():
            labels = self._labels(limit=name)
            self._telemetry.gauge(names.MEMORY_LIMIT_BYTES, figure.bytes, labels)

    def _labels(self, **labels: str) -> dict[str, str]:
        return {"pool": self.pool, **labels}


def _value(name: str) -> int:
    """Where a cache stands among the others; the most valuable last."""
    return GIVE_BACK_ORDER.index(name)
