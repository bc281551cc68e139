"""How much scratch memory forwards need besides weights and state."""

from dataclasses import dataclass
from typing import Final

from torch import nn

ACTIVATIONS_ALIVE: Final = 6
"""Tensors of a layer's width alive at once: inputs, two projections, their product, a residual."""


ALLOCATOR_BYTES: Final = 4 << 20
"""What is taken beside that: by an allocator, for blocks that fit none of its free ones (0.8 to
1.8 MiB for toy's chunks on a CPU), and by whatever else goes on while a request runs."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes of scratch memory.

    Attributes:
        floor_bytes: of a chunk with nothing before it.
        row_bytes: on top, per token of context.
        bytes_max: of the last chunk of a full window.
    """

    floor_bytes: int
    row_bytes: int
    bytes_max: int


def workspace_of(model: nn.Module, *, grid: int, window: int, vocabulary: int) -> Workspace:
    """An estimate from the model's widths; a memory budget wants no less than is really used.

    A chunk holds some activations per token at the width of the widest projection. A row of
    context costs its entries of the attention mask (one byte and one number per query), and its
    key and value repeated to as many heads as the queries have.
    """
    widths = [max(parameter.shape) for parameter in model.parameters() if parameter.ndim == 2] or [
        1
    ]
    # The embedding and the head are as long as the vocabulary, and no activation is that wide.
    inner = [width for width in widths if width < vocabulary] or widths
    item = max(parameter.element_size() for parameter in model.parameters())
    hidden = min(max(inner), vocabulary)
    floor = grid * hidden * item * ACTIVATIONS_ALIVE + 2 * 4 * vocabulary + ALLOCATOR_BYTES
    row = grid * (1 + item) + 2 * hidden * item
    return Workspace(floor, row, floor + row * window)
