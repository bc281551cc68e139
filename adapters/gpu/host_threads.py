"""Passes over memory that one core alone is slow at, shared out among a few threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


class HostThreads:
    """The caller's thread and some more; to be used by one caller at a time."""

    def __init__(self, count: int):
        """Starts nothing yet.

        Args:
            count: threads that work at once, the caller's included.
        """
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    def share(
        self, act: Callable[[Sequence[Part]], Sequence[Result]], parts: Sequence[Part]
    ) -> list[Result]:
        """What `act` gives for all parts, in their order, though each thread does some of them.

        Returns when all threads are done, also where one of them has raised.
        """
        count = min(self._count, len(parts))
        if count < 2:
            return list(act(parts))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count - 1, thread_name_prefix="state")
        bounds = [len(parts) * number // count for number in range(count + 1)]
        shares = [parts[start:end] for start, end in pairwise(bounds)]
        others: list[Future[Sequence[Result]]] = [
            self._pool.submit(act, share) for share in shares[1:]
        ]
        try:
            found = list(act(shares[0]))
        finally:
            wait(others)
        for other in others:
            found.extend(other.result())
        return found
