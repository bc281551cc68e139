"""A model that is none of transformers': what the engine must not assume.

Its layers hold one, two, four and five states of mixed dtypes and odd shapes, and rows of shapes
that no attention has, one of them a plain number. It computes token by token. Some variants are
broken in the ways in which real models were found to be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

import torch
from torch import Tensor, nn

from anchorline.adapters.gpu.libraries import seeded
from anchorline.adapters.gpu.owned_layer import OwnedLayer, RowBuffer, SectionTensor

Fault = Literal["none", "keeps state elsewhere", "ignores state", "replaces a state", "fails"]

VOCABULARY: Final = 61
WIDTH: Final = 12
STATES: Final[Sequence[tuple[torch.dtype, tuple[int, ...]]]] = (
    (torch.float32, (3, 5)),
    (torch.bfloat16, (7,)),
    (torch.int64, ()),
    (torch.float64, (2, 1, 3)),
    (torch.uint8, (13,)),
)
STATES_OF_LAYERS: Final = (1, 2, 4, 5)
ROWS: Final[Sequence[tuple[torch.dtype, tuple[int, ...]]]] = (
    (torch.float32, (3, 5)),
    (torch.bfloat16, (7,)),
    (torch.int64, ()),
)


@dataclass(frozen=True)
class Output:
    logits: Tensor


class MadeUpLayer(OwnedLayer):
    """The first `states` of STATES, and one view of ROWS."""

    def __init__(self, window: int, states: int, rows: int):
        self.states = {
            f"state{index}": torch.zeros(shape, dtype=dtype)
            for index, (dtype, shape) in enumerate(STATES[:states])
        }
        dtype, shape = ROWS[rows % len(ROWS)]
        self.rows = torch.zeros((window, *shape), dtype=dtype)
        self.line = 0

    def row_buffers(self) -> Sequence[RowBuffer]:
        return [RowBuffer("odd", self.rows, "kv:plain")]

    def section_tensors(self) -> Sequence[SectionTensor]:
        return [
            SectionTensor(name, tensor, "recurrent:state") for name, tensor in self.states.items()
        ]

    def rehouse(self, name: str, home: Tensor) -> None:
        self.states[name] = home

    def start_at(self, line: int) -> None:
        self.line = line


def made_up_layers(window: int) -> Sequence[OwnedLayer]:
    """The layers of one slot, as a `LayerFactory`."""
    return [MadeUpLayer(window, states, index) for index, states in enumerate(STATES_OF_LAYERS)]


class _Cache:
    layers: Sequence[MadeUpLayer]


class MadeUpModel(nn.Module):
    """Sums of tanh of what it has seen; every state and every row has a part in every logit."""

    def __init__(self, fault: Fault = "none", *, seed: int = 0):
        super().__init__()
        self._fault: Fault = fault
        self._is_stateful = True
        self.elsewhere = torch.zeros(WIDTH)
        with seeded(seed):
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            self.inner = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in STATES_OF_LAYERS)
            self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cache: _Cache,
        use_cache: bool,
        logits_to_keep: int = 0,
    ) -> Output:
        assert use_cache
        assert int(position_ids[0, 0]) == cache.layers[0].line
        if self._fault == "fails":
            raise RuntimeError("told to fail")
        if self._fault == "ignores state" and input_ids.shape[1] > 1:
            for tensor in cache.layers[1].states.values():
                tensor.zero_()
        if self._fault == "replaces a state":
            states = cache.layers[0].states
            states["state0"] = states["state0"].clone()
        hidden = cast("Tensor", self.embedding(input_ids))[0]
        outputs = [self._token(token, cache.layers) for token in hidden]
        logits = cast("Tensor", self.head(torch.stack(outputs)))
        return Output(logits[None, -logits_to_keep:])

    def _token(self, token: Tensor, layers: Sequence[MadeUpLayer]) -> Tensor:
        if self._fault == "keeps state elsewhere":
            token = token + self.elsewhere
            self.elsewhere = (self.elsewhere + token).tanh()
        for linear, layer in zip(self.inner, layers, strict=True):
            value = cast("Tensor", linear(token)).tanh()
            for state in layer.states.values():
                token = token + _absorb(state, value)
            layer.rows[layer.line] = _filled(value, layer.rows[0])
            # As attention would: every row so far is read, whatever forward wrote it.
            token = token + layer.rows[: layer.line + 1].double().mean().float()
            layer.line += 1
        return token


def _absorb(state: Tensor, value: Tensor) -> Tensor:
    """Write the value into the state in place; what a token reads from it."""
    state.copy_(state * 3 // 4 if not state.is_floating_point() else state * 0.75)
    state.add_(_filled(value, state))
    return state.double().sum().sin().float()


def _filled(value: Tensor, like: Tensor) -> Tensor:
    """The value's numbers, repeated and cut to the shape of `like`, as its dtype."""
    numbers = value if like.is_floating_point() else (value * 50 + 60)
    count = like.numel()
    return numbers.repeat(-(-count // WIDTH))[:count].reshape(like.shape).to(like.dtype)
