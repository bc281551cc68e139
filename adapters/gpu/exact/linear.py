"""Matrix products of weights whose rows do not depend on the number of rows.

On a CPU weights are packed once, for the libraries behind torch. Which of them gives all numbers of
rows the same bits depends on the processor: MKL's packed product (float32) does on some and parts
at one and two rows on others, where oneDNN's does; the plain one parts everywhere. So what is true
on the machine at hand is measured for each shape (`row_counts`), and the kernel is taken that has
to pad least. Never the one that is fastest: times differ from start to start, and bits with them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import torch
from torch import Tensor
from torch.nn import functional

from ..alignment import ALIGNMENT_BYTES
from .row_counts import LARGE, Kernel, RowCounts, cancelling, measured
from .stepping import threads_for

PACKED_FOR_ROWS: Final = 256
"""MKL packs for an expected number of rows; packed for 4 the products of 256 took twice as long."""

SHARED_MIN: Final = 1 << 21
"""Multiplications that are worth a second thread: to wake one takes as long as a million."""

MEASURED_ROWS: Final = 256
MEASURED_ROWS_WIDE: Final = 64
WIDE: Final = 1 << 23
"""Elements of a weight above which fewer rows are measured, as it is the head, or takes long."""

Product: TypeAlias = Callable[[Tensor], Tensor]
"""From (..., inputs) to (..., outputs)."""

KernelMaker: TypeAlias = Callable[[Tensor, Tensor | None], Kernel]
"""Of a weight (outputs, inputs) and a bias, to `(..., inputs)` to `(..., outputs)`."""

_plain: Final = functional.linear


@dataclass(frozen=True, slots=True)
class _Choice:
    """A kernel, and what was measured of it."""

    make: KernelMaker
    counts: RowCounts

    @property
    def padding(self) -> tuple[bool, int]:
        """The less, the better: whether prefills are slow, and how many rows a token becomes."""
        sizes = self.counts.sizes
        if not sizes:  # it does not even repeat itself
            return (True, MEASURED_ROWS + 1)
        return (sizes[-1] < LARGE, sizes[0])


class Linears:
    """The products of one model's weights; weights stay where they are, packed copies are added."""

    def __init__(self) -> None:
        self._choices: dict[tuple[object, ...], _Choice] = {}
        self._products: dict[tuple[object, ...], Product] = {}

    def product(self, rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """`torch.nn.functional.linear`; `weight` is constant, a view of one of the parameters."""
        if weight.ndim != 2 or rows.dtype != weight.dtype:
            return _plain(rows, weight, bias)
        bias_place = None if bias is None else bias.data_ptr()
        place = (weight.data_ptr(), weight.shape, weight.stride(), bias_place)
        product = self._products.get(place)
        if product is None:
            product = self._products[place] = self.product_of(weight, bias)
        return product(rows)

    def product_of(self, weight: Tensor, bias: Tensor | None) -> Product:
        """The product of one weight (outputs, inputs)."""
        key = (weight.shape, weight.stride(), weight.dtype, bias is None)
        choice = self._choices.get(key)
        if choice is None:
            choice = self._choices[key] = _chosen(weight, bias)
        return _product(choice.make(weight, bias), choice.counts, *weight.shape)


def _product(kernel: Kernel, counts: RowCounts, outputs: int, inputs: int) -> Product:
    direct = frozenset(counts.sizes)

    def product(rows: Tensor) -> Tensor:
        count = rows.numel() // inputs
        if count in direct:
            return kernel(_aligned(rows))
        flat = rows.reshape(-1, inputs)
        results = [
            kernel(padded(flat[block.start : block.end], block.size))[: block.end - block.start]
            for block in counts.blocks(count)
        ]
        result = results[0] if len(results) == 1 else torch.cat(results)
        return result.view(*rows.shape[:-1], outputs)

    def padded_product(rows: Tensor) -> Tensor:
        # The way of a decoded token whose product is padded: as little as can be besides it.
        count = rows.numel() // inputs
        if count >= smallest:
            return product(rows)
        below = functional.pad(rows.reshape(count, inputs), (0, 0, 0, smallest - count))
        return kernel(below)[:count].view(*rows.shape[:-1], outputs)

    smallest = counts.sizes[0] if counts.sizes else 1
    return product if smallest == 1 else padded_product


def padded(rows: Tensor, size: int) -> Tensor:
    """The rows with zeros below them, `size` in all; contiguous and aligned."""
    missing = size - rows.shape[0]
    if missing == 0:
        return _aligned(rows)
    return functional.pad(rows, (0, 0) * (rows.ndim - 1) + (0, missing)).contiguous()


def _aligned(rows: Tensor) -> Tensor:
    """The rows at an address from which kernels compute as from any other such address."""
    if rows.is_contiguous() and rows.data_ptr() % ALIGNMENT_BYTES == 0:
        return rows
    return rows.clone(memory_format=torch.contiguous_format)


def _makers(weight: Tensor) -> Sequence[KernelMaker]:
    """Ways to multiply by the weight; of those that pad alike the first is taken."""
    if weight.device.type != "cpu":
        return (_plain_kernel,)
    makers: list[KernelMaker] = []
    if weight.dtype is torch.float32 and torch.backends.mkl.is_available():
        makers.append(_mkl_kernel)
    if weight.dtype in {torch.float32, torch.bfloat16} and torch.backends.mkldnn.is_available():
        makers.append(_onednn_kernel)
    return makers or (_plain_kernel,)


def _plain_kernel(weight: Tensor, bias: Tensor | None) -> Kernel:
    return lambda rows: _plain(rows, weight, bias)


def _mkl_kernel(weight: Tensor, bias: Tensor | None) -> Kernel:
    """Over a copy that MKL has packed; float32 alone."""
    operations = cast("Any", torch.ops).mkl
    pack = operations._mkl_reorder_linear_weight  # noqa: SLF001 # as torch.compile does
    multiply = operations._mkl_linear.default  # noqa: SLF001
    detached = weight.detach().contiguous()
    packed: Tensor = pack(detached, PACKED_FOR_ROWS)
    inputs = weight.shape[1]
    return lambda rows: multiply(rows, packed, detached, bias, rows.numel() // inputs)


def _onednn_kernel(weight: Tensor, bias: Tensor | None) -> Kernel:
    """Over a copy that oneDNN has packed."""
    operations = cast("Any", torch.ops).mkldnn
    pack = operations._reorder_linear_weight  # noqa: SLF001
    multiply = operations._linear_pointwise.default  # noqa: SLF001
    packed: Tensor = pack(weight.detach().contiguous(), PACKED_FOR_ROWS)
    outputs = weight.shape[0]

    def kernel(rows: Tensor) -> Tensor:
        with threads_for(rows.numel() * outputs, SHARED_MIN):
            return multiply(rows, packed, bias, "none", [], "")

    return kernel


def _chosen(weight: Tensor, bias: Tensor | None) -> _Choice:
    """The kernel that pads least, asked of a weight of this shape, layout and place."""
    count = MEASURED_ROWS if weight.numel() <= WIDE else MEASURED_ROWS_WIDE
    outputs, inputs = weight.shape
    rows, numbers = cancelling(count, outputs, inputs, weight.dtype)
    rows = rows.to(weight.device)
    twin = torch.empty_strided(
        weight.shape, weight.stride(), dtype=weight.dtype, device=weight.device
    ).copy_(numbers)
    best: _Choice | None = None
    for make in _makers(weight):
        choice = _Choice(make, measured(make(twin, bias), rows))
        if best is None or choice.padding < best.padding:
            best = choice
        if best.padding == (False, 1):
            break
    assert best is not None, "there is always one"
    return best
