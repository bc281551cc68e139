"""Tiny models are slower with two threads than with one, and busy machines make it worse.

Triton's kernels run in its interpreter: set before anything imports Triton. On a CUDA device they
are held by scripts/gpu-check.
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

from collections.abc import Iterator

import pytest
import torch
from transformers.utils import logging


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] # pytest finds it
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    # That it falls back to reference kernels is what these tests want.
    logging.set_verbosity_error()
    yield
    torch.set_num_threads(before)
