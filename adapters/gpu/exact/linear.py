"""Matrix products of weights whose rows do not depend on the number of rows.

On a CPU weights are packed once, for the libraries behind torch: MKL's packed product (float32)
gave every number of rows the same bits in all shapes that were tried, where the plain one parts at
one, two and fewer than sixteen rows; oneDNN's (bfloat16) is faster than the plain one, and parts
at some. What is true on the machine at hand is measured for each shape (`row_counts`).
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import torch
from torch import Tensor
from torch.nn import functional

from ..alignment import ALIGNMENT_BYTES
from .row_counts import Kernel, RowCounts, cancelling, measured

PACKED_FOR_ROWS: Final = 256
"""MKL packs for an expected number of rows; packed for 4 the products of 256 took twice as long."""

MEASURED_ROWS: Final = 256
MEASURED_ROWS_WIDE: Final = 64
WIDE: Final = 1 << 23
"""Elements of a weight above which fewer rows are measured, as it is the head, or takes long."""

Product: TypeAlias = Callable[[Tensor], Tensor]
"""From (..., inputs) to (..., outputs)."""

_plain: Final = functional.linear


class Linears:
    """The products of one model's weights; weights stay where they are, packed copies are added."""

    def __init__(self) -> None:
        self._counts: dict[tuple[object, ...], RowCounts] = {}
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
        kernel = _kernel(weight, bias)
        key = (weight.shape, weight.stride(), weight.dtype, bias is None)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = _measured_counts(weight, bias)
        return _product(kernel, counts, *weight.shape)


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


def _kernel(weight: Tensor, bias: Tensor | None) -> Kernel:
    """The fastest kernel for the weight: `(..., inputs)` to `(..., outputs)`."""
    packed = _packed_kernel(weight, bias) if weight.device.type == "cpu" else None
    return packed or (lambda rows: _plain(rows, weight, bias))


def _packed_kernel(weight: Tensor, bias: Tensor | None) -> Kernel | None:
    """Over a packed copy, where this build of torch has such kernels for the dtype."""
    operations = cast("Any", torch.ops)
    detached = weight.detach().contiguous()
    if weight.dtype is torch.float32 and torch.backends.mkl.is_available():
        pack = operations.mkl._mkl_reorder_linear_weight  # noqa: SLF001 # as torch.compile does
        multiply = operations.mkl._mkl_linear.default  # noqa: SLF001
        mkl: Tensor = pack(detached, PACKED_FOR_ROWS)
        inputs = weight.shape[1]
        return lambda rows: multiply(rows, mkl, detached, bias, rows.numel() // inputs)
    if weight.dtype is torch.bfloat16 and torch.backends.mkldnn.is_available():
        pack = operations.mkldnn._reorder_linear_weight  # noqa: SLF001
        multiply = operations.mkldnn._linear_pointwise.default  # noqa: SLF001
        onednn: Tensor = pack(detached, PACKED_FOR_ROWS)
        return lambda rows: multiply(rows, onednn, bias, "none", [], "")
    return None


def _measured_counts(weight: Tensor, bias: Tensor | None) -> RowCounts:
    """Asks the kernel that a weight of this shape, layout and place would get."""
    count = MEASURED_ROWS if weight.numel() <= WIDE else MEASURED_ROWS_WIDE
    outputs, inputs = weight.shape
    rows, numbers = cancelling(count, outputs, inputs, weight.dtype)
    twin = torch.empty_strided(
        weight.shape, weight.stride(), dtype=weight.dtype, device=weight.device
    ).copy_(numbers)
    return measured(_kernel(twin, bias), rows.to(weight.device))
