"""Passes over memory that one core alone is slow at, shared out among a few threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Final, TypeVar

import torch

THREADS_MAX: Final = 4
"""For passes over rows in memory: a few of them keep it as busy as many would."""

SHARED_BYTES_MIN: Final = 4 << 20
"""Bytes that one thread is done with before another has begun."""

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

    @classmethod
    def of_device(cls, device: torch.device) -> "HostThreads":
        """As many as torch computes with, but few; for state on a device, one issues it all."""
        return cls(min(torch.get_num_threads(), THREADS_MAX) if device.type == "cpu" else 1)

    def share_bytes(
        self,
        nbytes: int,
        act: Callable[[Sequence[Part]], Sequence[Result]],
        parts: Sequence[Part],
    ) -> list[Result]:
        """`share`, where the parts are many bytes together; else all on the caller's thread."""
        return list(act(parts)) if nbytes < SHARED_BYTES_MIN else self.share(act, parts)

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
