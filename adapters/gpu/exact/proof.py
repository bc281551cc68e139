"""The proof, at load, that a model's arithmetic is row-invariant: measured, never believed.

With the real model, dtype and threads, the same tokens are forwarded in one piece, in random
pieces and one by one, on both sides of the line at which attention reads a further block of keys.
Rows, sections and all logits have to be equal, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from torch import nn

from ....domain.grid import Span
from ....domain.tokens import TokenIds, token_ids
from ..cache_layers import LayerFactory
from ..torch_engine import TorchEngine
from ..torch_state import TorchSlotState
from .attention import KEY_BLOCK
from .departure import first_departure

ACROSS: Final = 16
"""Tokens on each side of a block's end that are also forwarded one by one."""

EARLY: Final = 64
"""Tokens at the beginning that are forwarded in random pieces."""

PIECES: Final = (37, 64, 1, 16, 256)
"""Sizes of the pieces between."""

PIECE_MAX: Final = 9

STOCK_DIFFERS_MAX: Final = 2e-3
"""Of the logits' spread, in float32. The sums are ordered otherwise and are the same sums."""

Bytes = npt.NDArray[np.uint8]
Scores = npt.NDArray[np.float32]


def prove(
    model: nn.Module, layers: LayerFactory, *, window: int, stock: Scores | None = None
) -> str | None:
    """Prove a bound model's row invariance.

    Args:
        model: bound; its state is the caller's to make again.
        layers: as it is going to be served with.
        window: no more tokens than this are forwarded.
        stock: the logits that the unbound model gave for the first of `proof_ids`, in one piece.

    Returns:
        What departs, in words; None if the proof passed.
    """
    length = min(KEY_BLOCK + ACROSS, window)
    engine = TorchEngine(model, window=length, grid=length, layers=layers, weights="")
    ids = proof_ids(engine.profile.vocabulary, length)
    whole, logits = _outcome(engine, ids, [length])
    line = max(length - 2 * ACROSS, 1)
    ways = {
        "one by one": [line, *[1] * (length - line)],
        "in random pieces": _random_pieces(length),
    }
    departed = _unlike_stock(logits, stock)
    for name, pieces in ways.items():
        if departed is None and _outcome(engine, ids, pieces)[0] != whole:
            departed = _where(model, engine, ids, name)
    return departed


def proof_ids(vocabulary: int, length: int) -> TokenIds:
    """The tokens that are forwarded; the same for the same arguments, and a prefix for fewer."""
    return token_ids(np.random.default_rng(1).integers(0, vocabulary, length))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """All that some forwards left; equal if every bit is."""

    logits: bytes
    parts: Sequence[bytes]


def _outcome(engine: TorchEngine, ids: TokenIds, pieces: Sequence[int]) -> tuple[_Outcome, Scores]:
    """All that forwarding the tokens in these pieces leaves, and the logits as such."""
    state = engine.slots[0]
    state.resume_at(0)
    logits: list[Scores] = []
    for piece in pieces:
        line = state.length
        logits.append(engine.score(0, ids[line : line + piece]))
    joined = np.concatenate(logits)
    return _Outcome(joined.tobytes(), _parts(state)), joined


def _parts(state: TorchSlotState) -> Sequence[bytes]:
    span = Span(0, state.length)
    rows = {
        view.name: np.empty(len(span) * view.row_bytes, dtype=np.uint8)
        for view in state.layout.views
    }
    sections = {
        section.name: np.empty(section.nbytes, dtype=np.uint8) for section in state.layout.sections
    }
    state.settle()
    state.export_rows(span, rows)
    state.export_sections(sections)
    return [part.tobytes() for part in (*rows.values(), *sections.values())]


def _random_pieces(length: int) -> Sequence[int]:
    random = np.random.default_rng(2)
    pieces: list[int] = []
    while sum(pieces) < length:
        done = sum(pieces)
        if done < EARLY:
            piece = int(random.integers(1, PIECE_MAX + 1))
        else:
            piece = PIECES[len(pieces) % len(PIECES)]
        pieces.append(min(piece, length - done))
    return pieces


def _unlike_stock(logits: Scores, stock: Scores | None) -> str | None:
    """Whether it is another function that is computed row-invariantly."""
    if stock is None:
        return None
    difference = float(np.abs(logits[: len(stock)] - stock).max() / stock.std())
    if difference <= STOCK_DIFFERS_MAX:
        return None
    return f"the logits differ from the model's own by {difference:.1e} of their spread"


def _where(model: nn.Module, engine: TorchEngine, ids: TokenIds, way: str) -> str:
    """The departure in words, with the first module that departs."""
    state, length = engine.slots[0], len(ids)
    for line in (EARLY, length - 2 * ACROSS):
        if not 0 < line < length:
            continue
        name = first_departure(
            model,
            rewind=lambda: state.resume_at(0),
            forward=lambda start, end: engine.score(0, ids[start:end]),
            line=line,
            end=min(line + 2 * ACROSS, length),
        )
        if name is not None:
            return f"forwarded {way}, the first module that departs is {name}"
    return f"forwarded {way}, the state departs and no module alone shows it"
