"""Memory for the rows of a slot."""

import math
import mmap
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from .alignment import PAGE_BYTES
from .libraries import tensor_over

LARGE_PAGE_BYTES: Final = 2 << 20
LARGE_PAGES_MIN: Final = 2
"""Views of so many large pages are made of them. A short conversation touches one page of each view
at the least: of smaller views that would be all they can ever take."""


@torch.inference_mode(False)  # rows are imported outside inference mode as well
def zeroed_rows(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that the system hands out when they are first touched.

    On the host they are whole pages, so that a medium reads straight into them; and large ones,
    where there are many: a drive is told of each page by itself.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or not nbytes:
        return torch.zeros(tuple(shape), dtype=dtype, device=device)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    pages = mmap.mmap(-1, -(-nbytes // PAGE_BYTES) * PAGE_BYTES, flags=flags)
    if _page_bytes(nbytes) > PAGE_BYTES:
        pages.madvise(mmap.MADV_HUGEPAGE)
    return tensor_over(np.frombuffer(pages, np.uint8, nbytes)).view(dtype).view(tuple(shape))


def untouched_bytes(nbytes: int, touched: int) -> int:
    """What the system has still to hand out of `nbytes` of rows, the first of which were written.

    As if it always had large pages where they were asked for.
    """
    page = _page_bytes(nbytes)
    return max(nbytes - -(-touched // page) * page, 0)


def _page_bytes(nbytes: int) -> int:
    """The pages that so many bytes of rows are made of."""
    return LARGE_PAGE_BYTES if nbytes >= LARGE_PAGES_MIN * LARGE_PAGE_BYTES else PAGE_BYTES
