"""Work that is shared out among a few threads."""

import threading
from collections.abc import Sequence

import pytest

from anchorline.adapters.gpu.host_threads import SHARED_BYTES_MIN, HostThreads


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("parts", [0, 1, 2, 7])
def test_results_come_in_the_order_of_the_parts(count: int, parts: int) -> None:
    def squared(some: Sequence[int]) -> list[int]:
        return [number * number for number in some]

    found = HostThreads(count).share(squared, range(parts))

    assert found == [number * number for number in range(parts)]


def test_two_threads_work_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=30)

    def meet(some: Sequence[int]) -> list[int]:
        both.wait()
        return [*some]

    assert HostThreads(2).share(meet, [1, 2]) == [1, 2]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_comes_out_once_nobody_works_any_more(failing: int) -> None:
    ended: list[int] = []

    def act(some: Sequence[int]) -> list[int]:
        if some[0] == failing:
            raise ValueError("no")
        ended.extend(some)
        return []

    with pytest.raises(ValueError, match="no"):
        HostThreads(2).share(act, [0, 1])

    assert ended == [1 - failing]


@pytest.mark.parametrize(("nbytes", "threads"), [(SHARED_BYTES_MIN - 1, 1), (SHARED_BYTES_MIN, 2)])
def test_few_bytes_are_left_to_the_callers_thread(nbytes: int, threads: int) -> None:
    both = threading.Barrier(threads, timeout=30)
    seen: set[int] = set()

    def act(some: Sequence[int]) -> list[int]:
        both.wait()
        seen.add(threading.get_ident())
        return [*some]

    assert HostThreads(2).share_bytes(nbytes, act, [1, 2]) == [1, 2]
    assert len(seen) == threads
    assert threading.get_ident() in seen
