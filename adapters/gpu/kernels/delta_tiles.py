"""What the aligned-tile delta rule keeps of a sequence, and where in one tensor it stands.

Tokens are cut into tiles of `TILE`, counted from the sequence's first token. The recurrent state is
kept as it was at the last tile's end, the *tile line*, and beside it what the tokens since then,
the *open tile*, brought: the state after them is a sum over both. So however many tokens a call
has, each tile is computed in one shape, from the state at its line, and a token in its own place.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

TILE: Final = 16
"""Tokens of a tile: as few as a GPU's matrix products take, since a decoded token costs a tile."""

_UNIT: Final = 16
"""Heads stand at multiples of so many numbers: 64 bytes."""


@dataclass(frozen=True, slots=True)
class TileParts:
    """Views of the parts of one packed state; what is beyond the open tile's tokens is 0.

    Attributes:
        state: at the tile line, (heads, key dim, value dim).
        corrections: what each token of the open tile writes with its key,
            (heads, TILE, value dim).
        keys: as they came, before they are brought to length 1, (heads, TILE, key dim).
        decays: their logs, (heads, TILE).
        count: tokens of the open tile, below TILE, (heads,): the same for all.
    """

    state: Tensor
    corrections: Tensor
    keys: Tensor
    decays: Tensor
    count: Tensor


@dataclass(frozen=True, slots=True)
class TileShape:
    """The dims of a head, and where its parts stand in `size` numbers of float32."""

    key_dim: int
    value_dim: int

    @property
    def corrections(self) -> int:
        """Where they begin; the state stands before them."""
        return self.key_dim * self.value_dim

    @property
    def keys(self) -> int:
        return self.corrections + TILE * self.value_dim

    @property
    def decays(self) -> int:
        return self.keys + TILE * self.key_dim

    @property
    def count(self) -> int:
        return self.decays + TILE

    @property
    def size(self) -> int:
        return (self.count // _UNIT + 1) * _UNIT

    def empty(self, heads: int, device: torch.device) -> Tensor:
        """The packed state before the first token: (heads, size), zeros."""
        return torch.zeros((heads, self.size), dtype=torch.float32, device=device)

    def parts(self, packed: Tensor) -> TileParts:
        """Views of a packed state (heads, size)."""
        size = packed.shape[1]
        assert size == self.size, f"{size} numbers a head, where {self} has {self.size}"

        def part(start: int, rows: int, width: int) -> Tensor:
            flat = packed[:, start : start + rows * width]
            return flat.view(len(packed), rows, width)

        return TileParts(
            part(0, self.key_dim, self.value_dim),
            part(self.corrections, TILE, self.value_dim),
            part(self.keys, TILE, self.key_dim),
            packed[:, self.decays : self.count],
            packed[:, self.count],
        )
