"""Loops over tokens on a CPU: many small kernels, none worth a second thread."""

from collections.abc import Generator
from contextlib import contextmanager

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
