"""The Triton kernels and their launches. Imported only where Triton is; see `triton_module`.

The interpreter runs them on a CPU where TRITON_INTERPRET=1 was set before Triton was imported; the
tests do, with few large blocks, since a program costs milliseconds there.
"""

# Triton's language has no types: what a kernel computes with is unknown to a type checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownLambdaType=false
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false
# pyright: reportUnnecessaryIsInstance=false

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

ITEMS_A_PROGRAM: Final = 2_048
WORDS_A_PROGRAM: Final = 4_096
"""Powers of two, as `tl.arange` asks."""

# Nothing here computes with floats; Triton 3.9 warns where this is left open.
_OPTIONS: Final = {"enable_fp_fusion": False}

_ITEM_TYPES: Final = {2: torch.int16, 4: torch.int32, 8: torch.int64}

# splitmix64, as in domain/sums.py. Kernels see globals only as constexpr.
_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def _split_kernel(items, planes, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Program i cuts items [i BLOCK, (i + 1) BLOCK): planes is (WIDTH, count) bytes."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    length = tl.cast(count, tl.int64)  # else the product wraps at 2 GiB
    item = tl.load(items + index, mask=inside, other=0)
    for plane in tl.static_range(WIDTH):
        byte = (item >> (8 * plane)).to(tl.uint8)
        tl.store(planes + plane * length + index, byte, mask=inside)


@triton.jit
def _join_kernel(planes, items, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The reverse of `_split_kernel`."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    length = tl.cast(count, tl.int64)
    item = tl.zeros((BLOCK,), dtype=items.dtype.element_ty)
    for plane in tl.static_range(WIDTH):
        byte = tl.load(planes + plane * length + index, mask=inside, other=0)
        item = item | (byte.to(items.dtype.element_ty) << (8 * plane))
    tl.store(items + index, item, mask=inside)


@triton.jit
def _sums_kernel(runs, partials, BLOCK: tl.constexpr):
    """Program i sums run i: words at an address, counted from an index in their part.

    Partial sums and no atomics: one store a program, and nothing to be zeroed first.
    """
    program = tl.program_id(0)
    address = tl.load(runs + 3 * program)
    first = tl.load(runs + 3 * program + 1)
    count = tl.load(runs + 3 * program + 2)
    offset = tl.arange(0, BLOCK)
    words = address.to(tl.pointer_type(tl.int64))
    word = tl.load(words + offset, mask=offset < count, other=0).to(tl.uint64)
    z = (first + offset + 1).to(tl.uint64) * _GOLDEN
    z = (z ^ (z >> 30)) * _MIX_1
    z = (z ^ (z >> 27)) * _MIX_2
    weight = (z ^ (z >> 31)) | 1
    tl.store(partials + 2 * program, tl.sum(word, axis=0).to(tl.int64))
    tl.store(partials + 2 * program + 1, tl.sum(word * weight, axis=0).to(tl.int64))


INTERPRETED: Final = not isinstance(_sums_kernel, triton.runtime.JITFunction)
"""Whether Triton's interpreter runs them. It reads addresses itself, so only those of the CPU."""


def split(part: Tensor, width: int, planes: Tensor, *, block: int = ITEMS_A_PROGRAM) -> None:
    """Cut `part`, flat bytes of aligned items, into `planes`, (width, items) bytes."""
    items = part.view(_ITEM_TYPES[width])
    grid = (triton.cdiv(len(items), block),)
    _split_kernel[grid](items, planes, len(items), WIDTH=width, BLOCK=block, **_OPTIONS)


def join(planes: Tensor, part: Tensor, *, block: int = ITEMS_A_PROGRAM) -> None:
    """Put `part`, flat bytes of aligned items, together from `planes`, (width, items) bytes."""
    width = planes.shape[0]
    items = part.view(_ITEM_TYPES[width])
    grid = (triton.cdiv(len(items), block),)
    _join_kernel[grid](planes, items, len(items), WIDTH=width, BLOCK=block, **_OPTIONS)


def partial_sums(
    parts: Sequence[Tensor], *, block: int = WORDS_A_PROGRAM
) -> tuple[Tensor, list[int]]:
    """Both sums of runs of up to `block` words, over all parts, in one launch.

    Args:
        parts: int64 words, each contiguous, all on one device.
        block: words a program.

    Returns:
        Partial sums, shape (programs, 2), on the device; and the first program of each part.
    """
    tables: list[np.ndarray] = []
    starts: list[int] = []
    programs = 0
    for words in parts:
        # At least one run, so that an empty part has sums, too.
        first = np.arange(0, max(len(words), 1), block, dtype=np.int64)
        count = np.minimum(len(words) - first, block)
        tables.append(np.stack([words.data_ptr() + 8 * first, first, count], axis=1))
        starts.append(programs)
        programs += len(first)
    device = parts[0].device
    runs = torch.from_numpy(np.concatenate(tables)).to(device)
    partials = torch.empty((programs, 2), dtype=torch.int64, device=device)
    _sums_kernel[programs,](runs, partials, BLOCK=block, **_OPTIONS)
    return partials, starts
