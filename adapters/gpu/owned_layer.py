"""What one layer of a model keeps between forwards, in tensors that the engine owns.

The engine knows layers only by this class: transformers' layer types are built on it in
`cache_layers`, and a model that is none of transformers' brings layers of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class RowBuffer:
    """The rows of one view of one layer.

    Attributes:
        name: unique in its layer.
        tensor: shape (window, *row_shape), contiguous, so that a span of rows is one block.
        signature: what the bytes mean, one of `domain.layout.SIGNATURES`.
    """

    name: str
    tensor: Tensor
    signature: str


@dataclass(frozen=True, slots=True)
class SectionTensor:
    """One fixed-size state of one layer, as it stands after some forward.

    Attributes:
        name: unique in its layer.
        tensor: any shape; the model writes it in place.
        signature: what the bytes mean, one of `domain.layout.SIGNATURES`.
    """

    name: str
    tensor: Tensor
    signature: str


class OwnedLayer:
    """One layer's share of a slot's state.

    Its parts may come into being with the first forward (the engine runs one before it asks), and
    keep their number, names, shapes and dtypes from then on.
    """

    def row_buffers(self) -> Sequence[RowBuffer]:
        """The views, in a stable order."""
        return ()

    def section_tensors(self) -> Sequence[SectionTensor]:
        """The sections, in a stable order."""
        return ()

    def rehouse(self, name: str, home: Tensor) -> None:
        """Keep the section `name` in `home` from now on: same shape and dtype, other memory."""
        raise AssertionError(f"{type(self).__name__} has no section {name!r}")

    def start_at(self, line: int) -> None:
        """The next forward writes row `line`; the caller vouches for the state below it."""
