"""A box whose slots are busy, and requests that wait for what is on its medium."""

from collections.abc import Callable, Sequence

from anchorline.adapters.memory.checkable_copies import CheckableCopies
from anchorline.application.prefetch import Prefetch, PrefetchCounts
from anchorline.application.ram_tier import RamTier
from anchorline.application.request import Decision
from anchorline.domain.anchor import RowsHandle
from anchorline.simulation.box import Box

RUNS = 60
"""Tokens of the request that keeps the slot busy."""

PLENTY = 1 << 20


def ids(start: int, count: int) -> list[int]:
    return [(start + 7 * at + at * at) % 97 for at in range(count)]


def prefetch_of(box: Box) -> Prefetch:
    prefetch = box.server.scheduler.prefetch
    assert prefetch is not None
    return prefetch


def counts_of(box: Box) -> PrefetchCounts:
    return prefetch_of(box).counts


def ram_of(box: Box) -> RamTier:
    ram = box.server.scheduler.ram
    assert ram is not None
    return ram


def stored(box: Box, *prompts: Sequence[int]) -> list[list[int]]:
    """Conversations that are on the medium only: their tokens, up to their ends."""
    ends: list[list[int]] = []
    for number, prompt in enumerate(prompts):
        request = box.server.submit(prompt, session=f"s{number}")
        box.server.run()
        ends.append(box.server.sequences[request].tolist())
        assert box.flush().durable
    box.kill()
    return ends


def busy(box: Box, tokens: int = RUNS) -> str:
    """A request that runs for a while in each slot; the last one's id."""
    requests: list[str] = []
    for slot in box.server.scheduler.slots:
        requests.append(box.server.submit(ids(31 + slot.index, 20), max_tokens=tokens))
        while slot.running is None:
            box.server.step()
    return requests[-1]


def pump(box: Box, until: Callable[[], bool], steps: int = RUNS - 10) -> None:
    """Let the server and its lanes run."""
    for _ in range(steps):
        if until():
            return
        box.jobs.step()
        box.server.step()
    raise AssertionError("it does not come to that")


def decision_of(box: Box, request: str) -> Decision:
    box.server.run()
    finished = box.server.finished(request)
    assert finished is not None
    return finished.decision


def assert_nothing_is_held(box: Box) -> None:
    """No read is under way, nothing is lent, and every copy is an entry's or a slot's."""
    assert prefetch_of(box).fetch is None
    assert ram_of(box).reserved() == 0
    box.settle()  # counts the copies at each step
    assert (box.disk.pool.lent, box.disk.tier.lent) == (0, 0)
    assert not any(entry.lent for entry in ram_of(box).entries)


def no_place(copies: CheckableCopies, handle: RowsHandle) -> None:
    """Of an engine whose copies lanes cannot reach."""
