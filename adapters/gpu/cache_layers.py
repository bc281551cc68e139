"""Transformers' cache layers, over tensors that we own.

A transformers cache is a list of one object per layer, chosen by the layer's type. Attention
layers here keep every row, at its own position, in a buffer of the whole window; stateful layers
keep states that are allocated once and that the models write in place. Nothing here is particular
to one model.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import torch
from torch import Tensor
from transformers import PreTrainedConfig, cache_utils
from transformers.cache_utils import CacheLayerMixin, LinearAttentionLayer

from ...domain.errors import ModelRefused, StateError
from .libraries import LayerArguments, layer_types_and_arguments, text_config
from .owned_layer import OwnedLayer, RowBuffer, SectionTensor
from .rows_memory import zeroed_rows

LayerFactory: TypeAlias = Callable[[int], Sequence[OwnedLayer]]
"""Makes the layers of one slot, given the window in tokens."""


class RowsLayer(CacheLayerMixin, OwnedLayer):
    """Keys and values of one attention layer: every row kept, a sliding window only read.

    Buffers are token-major, (1, window, heads, dim), and models get the transposed view: the bits
    are the same as with head-major buffers, and a span of rows is one contiguous block.
    """

    is_sliding = False

    def __init__(self, window: int, sliding_window: int | None = None, *, block: int = 1):
        """Make a layer without rows.

        Args:
            window: rows that can be kept.
            sliding_window: rows that a query may see, its own included.
            block: rows are read in whole blocks of this many, counted from row 0. Beyond the
                newest row stand older rows or zeros, which queries must not see.
        """
        cast("Any", CacheLayerMixin).__init__(self)
        self.window = window
        self.block = block
        self.length = 0
        self.is_sliding = sliding_window is not None
        # The first row that the next block of queries may see lies this far below its first token.
        self.reach = window if sliding_window is None else sliding_window - 1
        self._buffers: tuple[Tensor, Tensor] | None = None

    # Outside inference mode, so that rows can be imported there too.
    @torch.inference_mode(False)
    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate both buffers, zero-filled, as the first forward's shapes ask."""

        def rows_like(states: Tensor) -> Tensor:
            batch, heads, _, dim = states.shape
            if batch != 1:
                raise StateError(f"a slot holds one sequence and the model wrote {batch}")
            shape = (1, self._block_end(self.window), heads, dim)
            return zeroed_rows(shape, states.dtype, states.device)

        self._buffers = rows_like(key_states), rows_like(value_states)
        self.keys, self.values = (buffer.transpose(1, 2) for buffer in self._buffers)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write the rows of one block; return all rows that its queries may see."""
        if self.keys is None or self.values is None:
            self.lazy_initialization(key_states, value_states)
        keys, values = cast("Tensor", self.keys), cast("Tensor", self.values)
        start, count = self.length, key_states.shape[-2]
        end = start + count
        if end > self.window:
            raise StateError(f"rows [{start}, {end}) do not fit a window of {self.window}")
        keys.narrow(2, start, count).copy_(key_states)
        values.narrow(2, start, count).copy_(value_states)
        self.length = end
        first = self._first_read(start)
        read = self._block_end(end) - first
        return keys.narrow(2, first, read), values.narrow(2, first, read)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """How many rows `update` will return for such a block, and the first one's position."""
        first = self._first_read(self.length)
        return self._block_end(self.length + query_length) - first, first

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.window

    def row_buffers(self) -> Sequence[RowBuffer]:
        if self._buffers is None:  # no forward ever writes it
            return ()
        signature = "kv:sliding" if self.is_sliding else "kv:plain"
        keys, values = self._buffers
        return (
            RowBuffer("keys", keys[0, : self.window], signature),
            RowBuffer("values", values[0, : self.window], signature),
        )

    def start_at(self, line: int) -> None:
        self.length = line

    def _first_read(self, start: int) -> int:
        """The first row that is read for queries from `start` on."""
        return max(start - self.reach, 0) // self.block * self.block

    def _block_end(self, row: int) -> int:
        return -(-row // self.block) * self.block


class StateLayer(LinearAttentionLayer, OwnedLayer):
    """Recurrent states and convolution tails of one layer: Gated DeltaNet, Mamba-2, ..."""

    def __init__(self, number_of_states: int = 1, *, always_begun: bool = False):
        """Make a layer without states.

        Args:
            number_of_states: of each kind.
            always_begun: models are to read the zeroed states at line 0, too, and so take the
                same path there as everywhere else.
        """
        cast("Any", LinearAttentionLayer).__init__(self, number_of_states=number_of_states)
        self.always_begun = always_begun

    # Outside inference mode: a restore writes these in place there too.
    @torch.inference_mode(False)
    def lazy_initialization(
        self,
        conv_states: Tensor | None = None,
        recurrent_states: Tensor | None = None,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
    ) -> None:
        """Allocate a state, zero-filled and contiguous, as the first forward's shapes ask."""

        def zeros(shape: Sequence[int], like: Tensor) -> Tensor:
            if shape[0] != 1:
                raise StateError(f"a slot holds one sequence and the model wrote {shape[0]}")
            return torch.zeros(tuple(shape), dtype=like.dtype, device=like.device)

        if conv_states is not None:
            kernel = conv_states.shape[-1] if conv_kernel_size is None else conv_kernel_size
            self.conv_kernel_size[state_idx] = kernel
            self.dtype, self.device = conv_states.dtype, conv_states.device
            self.conv_states[state_idx] = zeros((*conv_states.shape[:-1], kernel), conv_states)
            self.is_conv_states_initialized[state_idx] = True
        if recurrent_states is not None:
            self.recurrent_states[state_idx] = zeros(recurrent_states.shape, recurrent_states)
            self.is_recurrent_states_initialized[state_idx] = True

    def _states(self) -> Iterator[tuple[str, str, dict[int, Tensor | None], int]]:
        for index in range(self.number_of_states):
            yield f"conv{index}", "recurrent:conv", self.conv_states, index
            yield f"recurrent{index}", "recurrent:state", self.recurrent_states, index

    def section_tensors(self) -> Sequence[SectionTensor]:
        return [
            SectionTensor(name, tensor[0], signature)
            for name, signature, states, index in self._states()
            if (tensor := states[index]) is not None
        ]

    def rehouse(self, name: str, home: Tensor) -> None:
        for own_name, _, states, index in self._states():
            if own_name == name:
                states[index] = home[None]

    def start_at(self, line: int) -> None:
        # Selects the code path: at line 0 models do not read the states at all, and above it they
        # must. A state that the model never fills has no previous one at any line.
        for index in range(self.number_of_states):
            filled = self.conv_states[index] is not None or self.recurrent_states[index] is not None
            self.has_previous_state[index] = (line > 0 or self.always_begun) and filled


class StateAndRowsLayer(StateLayer, RowsLayer):
    """States and rows in one layer (Falcon-H1, Zamba2)."""

    def __init__(
        self,
        window: int,
        number_of_states: int = 1,
        sliding_window: int | None = None,
        *,
        block: int = 1,
        always_begun: bool = False,
    ):
        """Both kinds' arguments."""
        RowsLayer.__init__(self, window, sliding_window, block=block)
        StateLayer.__init__(self, number_of_states, always_begun=always_begun)

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Both parents have one; rows come as two positional tensors, states by name."""
        if args:
            RowsLayer.lazy_initialization(self, *args)
        else:
            StateLayer.lazy_initialization(self, **kwargs)

    def start_at(self, line: int) -> None:
        RowsLayer.start_at(self, line)
        StateLayer.start_at(self, line)


# transformers up to 5.17 or so has no class for these, and wants none of its own either.
_Idle: Any = getattr(cache_utils, "DummyLayer", LinearAttentionLayer)


class IdleLayer(_Idle, OwnedLayer):
    """A layer that keeps nothing: mixture of experts, or one that reads another layer's rows."""


@dataclass(frozen=True, slots=True)
class LayerReading:
    """How layers hand their state to models.

    Attributes:
        block: see `RowsLayer`.
        always_begun: see `StateLayer`.
    """

    block: int = 1
    always_begun: bool = False


def _full(window: int, _: LayerArguments, reading: LayerReading) -> OwnedLayer:
    return RowsLayer(window, block=reading.block)


def _sliding(window: int, more: LayerArguments, reading: LayerReading) -> OwnedLayer:
    return RowsLayer(window, more["sliding_window"], block=reading.block)


def _state(_: int, more: LayerArguments, reading: LayerReading) -> OwnedLayer:
    return StateLayer(more.get("number_of_states", 1), always_begun=reading.always_begun)


def _hybrid(window: int, more: LayerArguments, reading: LayerReading) -> OwnedLayer:
    return StateAndRowsLayer(
        window,
        more.get("number_of_states", 1),
        block=reading.block,
        always_begun=reading.always_begun,
    )


def _sliding_hybrid(window: int, more: LayerArguments, reading: LayerReading) -> OwnedLayer:
    return StateAndRowsLayer(
        window,
        more.get("number_of_states", 1),
        more["sliding_window"],
        block=reading.block,
        always_begun=reading.always_begun,
    )


def _idle(_window: int, _more: LayerArguments, _reading: LayerReading) -> OwnedLayer:
    return IdleLayer()


_LAYERS: Final[Mapping[str, Callable[[int, LayerArguments, LayerReading], OwnedLayer]]] = {
    "full_attention": _full,
    "sliding_attention": _sliding,
    "conv": _state,
    "linear_attention": _state,
    "hybrid": _hybrid,
    "hybrid_sliding": _sliding_hybrid,
    "dummy": _idle,
    "moe": _idle,
    "mlp": _idle,
}


def layers_of(config: PreTrainedConfig, reading: LayerReading | None = None) -> LayerFactory:
    """The layers that a model of this config keeps its state in.

    Args:
        reading: by default as the models' own caches do it.

    Raises:
        ModelRefused: a layer type is unknown here, so its state could not be kept.
    """
    how = reading or LayerReading()
    text = text_config(config)
    types, arguments = layer_types_and_arguments(text)
    unknown = sorted(set(types) - set(_LAYERS))
    if unknown:
        raise ModelRefused(
            f"models of type {text.model_type!r} have layers of the types {', '.join(unknown)}, "
            f"whose state cannot be kept exactly yet; known are {', '.join(sorted(_LAYERS))}"
        )

    def make(window: int) -> Sequence[OwnedLayer]:
        return [
            _LAYERS[type_](window, more, how) for type_, more in zip(types, arguments, strict=True)
        ]

    return make


def cache_argument(forward: Callable[..., object]) -> str:
    """The name under which a model's forward takes its cache.

    transformers renamed `past_key_values` (and `cache_params`) to `cache` between 5.17 and 5.24.
    """
    names = inspect.signature(forward).parameters
    return next((n for n in ("cache", "past_key_values", "cache_params") if n in names), "cache")
