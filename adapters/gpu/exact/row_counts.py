"""Which numbers of rows a kernel computes alike, found by measuring it.

A matrix product may give row i other bits in a call of 4 rows than in one of 256: libraries choose
tiles, and with them the order of sums, by the number of rows. Which numbers agree depends on the
library, the processor, the shape and the threads, so it is not written down here but measured with
the kernel itself. A kernel that is only ever called with numbers of rows of one such class gives
a row the same bits whatever else stands in the call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of rows that are tried; calls are cut into and padded to some of these.

Nothing is concluded for numbers between: a kernel that takes 32 rows at a time does 31 of 63 in
ways of its own.
"""

LARGE: Final = 64
"""A class without a size of at least this would make prefills slow."""

SHIFTS: Final = (0, 1, 3)
"""Rows at which a smaller call starts inside a larger one, beside the last that fits."""

Kernel: TypeAlias = Callable[[Tensor], Tensor]
"""Maps rows (rows, width) to rows (rows, width'), each from its own row alone."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows [start, end) of a call, to be run as a call of `size` rows: the rest is padding."""

    start: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Numbers of rows that a kernel computes alike.

    Attributes:
        sizes: ascending; empty if the kernel does not repeat itself.
    """

    sizes: Sequence[int]

    def blocks(self, count: int) -> Sequence[Block]:
        """How to run `count` rows: as many of the largest size as fit, the rest padded."""
        if not self.sizes:
            return (Block(0, count, count),)
        largest = self.sizes[-1]
        whole = count // largest * largest
        blocks = [Block(start, start + largest, largest) for start in range(0, whole, largest)]
        if count > whole:
            size = next(size for size in self.sizes if size >= count - whole)
            blocks.append(Block(whole, count, size))
        return blocks


def cancelling(rows: int, columns: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Two matrices, (rows, width) and (columns, width), whose products over the width are all 0.

    What a kernel makes of them is nothing but its roundings, so another order of the same sum is
    seen even where the result is rounded to bfloat16. The numbers look random, are the same in
    every process, and span some powers of two.
    """
    generator = torch.Generator().manual_seed(width)
    half = width // 2
    order = torch.randperm(width, generator=generator)

    def halves(count: int) -> Tensor:
        spread = torch.randint(-3, 4, (count, half), generator=generator).float().exp2()
        return (torch.randn((count, half), generator=generator) * spread).to(dtype)

    def joined(first: Tensor, second: Tensor) -> Tensor:
        odd = first.new_zeros((len(first), width - 2 * half))
        return torch.cat([first, second, odd], 1)[:, order].contiguous()

    left, right = halves(rows), halves(columns)
    return joined(left, left), joined(right, -right)


def measured(kernel: Kernel, rows: Tensor) -> RowCounts:
    """Find a class of numbers of rows that the kernel computes alike.

    Args:
        kernel: is run some sixty times.
        rows: shape (rows, width), as of `cancelling`. No size beyond their number is tried.
    """
    sizes = [size for size in SIZES if size <= len(rows)]
    results = {size: kernel(rows[:size]) for size in sizes}
    steady = [size for size in sizes if _places_agree(kernel, rows[:size], results[size])]
    classes: list[list[int]] = []
    for size in reversed(steady):
        home = next(
            (
                members
                for members in classes
                if _agree(kernel, rows, size, results[members[0]])
                and torch.equal(results[members[-1]][:size], results[size])
            ),
            None,
        )
        if home is None:
            classes.append([size])
        else:
            home.append(size)
    if not classes:
        return RowCounts(())
    # A prefill wants one large size, and then a decode step as small a one as there is.
    best = min(classes, key=lambda members: (members[0] < min(LARGE, sizes[-1]), members[-1]))
    return RowCounts(tuple(reversed(best)))


def _places_agree(kernel: Kernel, rows: Tensor, result: Tensor) -> bool:
    """Whether a row's bits are the same at other places of an equally large call."""
    return all(
        torch.equal(kernel(rows.roll(shift, 0).contiguous()), result.roll(shift, 0))
        for shift in (1, len(rows) // 2 + 1)
    )


def _agree(kernel: Kernel, rows: Tensor, size: int, larger: Tensor) -> bool:
    """Whether calls of `size` rows give what a larger call gave for the same rows."""
    starts = {start for start in (*SHIFTS, len(larger) - size) if 0 <= start <= len(larger) - size}
    return all(
        torch.equal(kernel(rows[start : start + size].clone()), larger[start : start + size])
        for start in sorted(starts)
    )
