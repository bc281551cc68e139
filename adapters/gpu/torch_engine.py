"""A model on torch as an `Engine`: one adapter for every architecture.

Nothing here knows a model. What a model keeps between forwards is in its layers (`OwnedLayer`);
the engine gives each slot its own, runs forwards into them, and counts tokens.
"""

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from ...domain.errors import EngineError, ModelRefused
from ...domain.grid import Grid
from ...domain.sampling import Logits
from ...domain.tokens import TokenIds
from ...ports.engine import DecodeInput, Engine, EngineProfile
from .alignment import ALIGNMENT_BYTES
from .cache_layers import LayerFactory, cache_argument, layers_of
from .facts import engine_facts
from .libraries import ModelCall, ModelOutput, cache_of, tensor_over
from .owned_layer import OwnedLayer
from .state_copies import TorchCopies
from .torch_state import TorchSlotState
from .workspace import workspace_of

PRIMING_TOKENS: Final = 2
"""The shapes of all parts are known only after a forward, and of some only after two tokens."""


@dataclass(frozen=True, slots=True)
class _Slot:
    state: TorchSlotState
    arguments: Mapping[str, object]
    """What every forward of the slot is called with."""


class TorchEngine(Engine):
    """Runs one model, one slot after the other; the slots' states are of equal layout."""

    def __init__(
        self,
        model: nn.Module,
        *,
        window: int,
        grid: int,
        name: str = "model",
        slots: int = 1,
        layers: LayerFactory | None = None,
        weights: str | None = None,
        row_invariant: bool = False,
        arithmetic: str = "",
    ):
        """Allocate the slots and measure a first chunk; afterwards every slot is at line 0.

        Args:
            model: on its device and in its dtype; the engine's from now on. Called with
                `input_ids` and `position_ids` of shape (1, tokens), `use_cache`, and where it has
                such parameters the cache and `logits_to_keep`; it returns an object with `logits`.
            window: tokens a slot can hold.
            grid: the step of the grid, in tokens.
            name: what the model is served as.
            slots: how many sequences can be held.
            layers: makes the layers of one slot; by default those of the model's config.
            weights: a digest of the weights' content; by default they are read for it.
            row_invariant: the caller has proved it of this model with these layers.
            arithmetic: for the profile.

        Raises:
            ModelRefused: the model keeps state that could not be kept exactly.
        """
        align_weights(model)
        self._model = model.eval()
        self._device = next(model.parameters()).device
        self._ids = torch.zeros((1, 1), dtype=torch.int64, device=self._device)
        self._positions = torch.arange(window, device=self._device)[None]
        config = cast("PreTrainedConfig | None", getattr(model, "config", None))
        if layers is None:
            if config is None:
                raise ModelRefused(f"{type(model).__name__} has no config and came without layers")
            layers = layers_of(config)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._slots: list[_Slot] = []
        for _ in range(slots):
            self._slots.append(self._prime(layers(window), window, grid))
        self._states = tuple(slot.state for slot in self._slots)
        layout = self._states[0].layout
        vocabulary, rate = self._measured_rate(grid, window)
        workspace = workspace_of(model, grid=grid, window=window, vocabulary=vocabulary)
        self._profile = EngineProfile(
            model=name,
            grid=Grid(grid),
            window=window,
            vocabulary=vocabulary,
            layout=layout,
            row_invariant=row_invariant,
            prefill_tokens_per_s=rate,
            workspace_floor_bytes=workspace.floor_bytes,
            workspace_row_bytes=workspace.row_bytes,
            workspace_bytes_max=workspace.bytes_max,
            facts=engine_facts(
                model, config, layout, grid=None if row_invariant else grid, weights=weights
            ),
            arithmetic=arithmetic,
        )

    @property
    def profile(self) -> EngineProfile:
        return self._profile

    @property
    def slots(self) -> Sequence[TorchSlotState]:
        return self._states

    @property
    def copies(self) -> TorchCopies:
        return self._states[0].copies

    def prefill(self, slot: int, chunk: TokenIds) -> Logits:
        return self._forward_chunk(slot, chunk, keep=1)[-1]

    def score(self, slot: int, chunk: TokenIds) -> npt.NDArray[np.float32]:
        """Like `prefill`, with the logits after every token: shape (tokens, vocabulary)."""
        return self._forward_chunk(slot, chunk, keep=len(chunk))

    def decode(self, inputs: Sequence[DecodeInput]) -> Sequence[Logits]:
        if len({input_.slot for input_ in inputs}) != len(inputs):
            raise ValueError(f"a slot stands twice in one step: {[i.slot for i in inputs]}")
        for input_ in inputs:
            self._require_token(input_.token)
            self._slots[input_.slot].state.require_room(1)
        try:
            return [self._decode_one(input_) for input_ in inputs]
        except EngineError:
            # Which of the slots the step had reached is of no use to a caller.
            for input_ in inputs:
                self._slots[input_.slot].state.forwarding()
            raise

    # --- private --------------------------------------------------------------------------------

    def _forward_chunk(self, slot: int, chunk: TokenIds, keep: int) -> npt.NDArray[np.float32]:
        state = self._slots[slot].state
        if len(chunk) == 0:
            raise ValueError("an empty chunk has no logits")
        self._require_token(int(chunk.max()))
        line, end = state.length, state.length + len(chunk)
        if end > self._profile.grid.floor(line) + self._profile.grid.step:
            raise ValueError(f"the chunk [{line}, {end}) crosses a grid line")
        state.require_room(len(chunk))
        ids = tensor_over(chunk.astype(np.int64))[None].to(self._device)
        return self._run(self._slots[slot], ids, keep)

    def _decode_one(self, input_: DecodeInput) -> Logits:
        return self._run(self._slots[input_.slot], self._ids.fill_(input_.token), 1)[0]

    def _require_token(self, token: int) -> None:
        # On a GPU an id beyond the embedding ends the process's context, not just this forward.
        if not 0 <= token < self._profile.vocabulary:
            raise ValueError(f"there is no token {token} in {self._profile.vocabulary}")

    def _run(self, slot: _Slot, ids: Tensor, keep: int) -> npt.NDArray[np.float32]:
        """Forward `ids` at the slot's length; the last `keep` tokens' logits, the caller's own."""
        count = ids.shape[1]
        start = slot.state.length
        slot.state.forwarding()
        try:
            output = self._call(slot.arguments, ids, start, keep)
            # Off the device inside the `try`: that is where a GPU reports what went wrong.
            logits = output.logits[0, -keep:].to("cpu", torch.float32, copy=True)
        except Exception as error:
            raise EngineError(f"a forward of {count} tokens at line {start}: {error}") from error
        slot.state.forwarded(count)
        return logits.numpy()

    @torch.inference_mode()
    def _call(
        self, arguments: Mapping[str, object], ids: Tensor, start: int, keep: int
    ) -> ModelOutput:
        call = cast("ModelCall", self._model)
        optional: dict[str, object] = {"logits_to_keep": keep} if self._keeps_logits else {}
        positions = self._positions.narrow(1, start, ids.shape[1])
        return call(input_ids=ids, position_ids=positions, **optional, **arguments)

    def _prime(self, layers: Sequence[OwnedLayer], window: int, grid: int) -> _Slot:
        """Run the first forwards of a slot, so that all its parts exist and stay where they are."""
        arguments = {"use_cache": True, cache_argument(self._model.forward): cache_of(layers)}
        ids = torch.ones((1, PRIMING_TOKENS), dtype=torch.int64, device=self._device)
        try:
            self._call(arguments, ids, 0, 1)
        except Exception as error:
            raise EngineError(f"the first forward failed: {error}") from error
        copies = self._slots[0].state.copies if self._slots else None
        state = TorchSlotState(layers, window, self._device, grid=grid, copies=copies)
        slot = _Slot(state, arguments)
        before = _places(layers)
        for pieces in (ids, ids[:, :1], ids):
            self._run(slot, pieces, 1)
        if _places(layers) != before:
            raise ModelRefused(
                f"{type(self._model).__name__} replaces tensors of its state or adds some in later "
                "forwards; only state that is written in place can be kept"
            )
        state.wipe(state.length)
        return slot

    def _measured_rate(self, grid: int, window: int) -> tuple[int, float]:
        """The vocabulary, and tokens per second of the first chunk, which is then forgotten."""
        slot, count = self._slots[0], min(grid, window)
        ids = torch.ones((1, count), dtype=torch.int64, device=self._device)
        slot.state.settle()
        start = time.perf_counter()
        logits = self._run(slot, ids, 1)
        seconds = time.perf_counter() - start
        slot.state.wipe(count)
        return logits.shape[-1], count / seconds


def align_weights(model: nn.Module) -> None:
    """Move weights that stand at odd addresses, as those mapped from safetensors files do.

    Matrix products on a CPU have other bits there: the same weights have to give the same bits
    however they came into memory.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.data_ptr() % ALIGNMENT_BYTES:
            tensor.data = tensor.data.clone()


def _places(layers: Sequence[OwnedLayer]) -> list[tuple[int, str, int]]:
    """Where in memory every part stands."""
    return [
        (index, part.name, part.tensor.data_ptr())
        for index, layer in enumerate(layers)
        for part in (*layer.row_buffers(), *layer.section_tensors())
    ]
