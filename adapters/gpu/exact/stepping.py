"""Small kernels on a CPU: none is worth a second thread."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


@contextmanager
def one_thread() -> Generator[None]:
    """Run kernels that are called from this thread on it alone.

    Handing a product of one row to two threads costs more than the product, on a busy machine
    many times more. The number is MKL's for the whole process for as long as this takes; nothing
    but the engine's thread multiplies.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def threads_for(work: int, least: int) -> AbstractContextManager[None]:
    """One thread for less work than that, in whatever both are counted; else as many as there are.

    Which it is depends on sizes alone, so that measurements of a kernel hold for its calls.
    """
    return one_thread() if work < least else nullcontext()
