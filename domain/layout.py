"""The shape of a model's state: views of rows, and sections.

Caches know no model. They know that a state consists of *views* (one row per token and view) and
*sections* (fixed-size tensors that have absorbed every token), and what a byte of each costs.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from .errors import StateError

ITEM_BYTES: Final = {
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}

SIGNATURES: Final = frozenset(
    {
        "kv:plain",  # keys or values of one attention layer, in the model's own dtype
        "kv:sliding",  # the same of a layer that attends to a window; every row is kept
        "recurrent:state",  # a recurrent state (Gated DeltaNet, Mamba-2, ...)
        "recurrent:conv",  # the tail of a short convolution
        "check:hash",  # running hashes of the in-memory engine
    }
)
"""What the bytes of a part mean. A part of unknown meaning is an error, never a guess."""


@dataclass(frozen=True)
class View:
    """A per-token tensor: its row of token t has shape `row_shape`.

    A row depends only on tokens 0 .. t, so rows can be cut anywhere.
    """

    name: str
    dtype: str
    row_shape: tuple[int, ...]
    signature: str

    @cached_property
    def row_bytes(self) -> int:
        return ITEM_BYTES[self.dtype] * math.prod(self.row_shape)


@dataclass(frozen=True)
class Section:
    """A fixed-size tensor that has absorbed every token and cannot be rewound."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    signature: str

    @cached_property
    def nbytes(self) -> int:
        return ITEM_BYTES[self.dtype] * math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """Every view and section of one model, in the engine's order.

    Raises:
        StateError: a name stands twice, or a dtype or signature is unknown.
    """

    views: tuple[View, ...]
    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        parts = (*self.views, *self.sections)
        names = [part.name for part in parts]
        if len(set(names)) != len(names):
            raise StateError(f"two parts of one layout share a name: {sorted(names)}")
        for part in parts:
            if part.dtype not in ITEM_BYTES:
                raise StateError(f"{part.name} has the unknown dtype {part.dtype!r}")
            if part.signature not in SIGNATURES:
                raise StateError(f"{part.name} has the unknown signature {part.signature!r}")

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one token over all views."""
        return sum(view.row_bytes for view in self.views)

    @cached_property
    def section_bytes(self) -> int:
        """Bytes of one anchor."""
        return sum(section.nbytes for section in self.sections)

    def digest(self) -> str:
        """Equal for equal layouts, part order included."""
        return hashlib.sha256(repr((self.views, self.sections)).encode()).hexdigest()
