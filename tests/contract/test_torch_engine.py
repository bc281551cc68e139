"""The torch engine held to its port, on a tiny Gated DeltaNet hybrid and on plain attention."""

from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from anchorline.adapters.gpu.cache_layers import layers_of
from anchorline.adapters.gpu.exact.arithmetic import READING
from anchorline.adapters.gpu.exact.binding import Binding
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.ports.engine import Engine
from contract.engine_contract import GRID, WINDOW, EngineContract
from support.tiny_models import VOCABULARY, tiny_model


class _FailsHalfway:
    """Runs one module of a model as it is, and raises after it, once."""

    def __init__(self, module: nn.Module):
        self._hook = module.register_forward_hook(self)

    def __call__(self, _module: nn.Module, _inputs: tuple[Tensor, ...], _output: Tensor) -> None:
        self._hook.remove()
        raise RuntimeError("the middle layer was told to fail")


class _OnATinyModel(EngineContract):
    vocabulary = VOCABULARY
    model_type: str
    dtype = torch.float32

    def make_engine(self, *, slots: int = 1, window: int = WINDOW, grid: int = GRID) -> Engine:
        torch.set_num_threads(1)
        self._model = tiny_model(self.model_type, self.dtype)
        return TorchEngine(self._model, slots=slots, window=window, grid=grid)

    def fail_next_forward(self, engine: Engine) -> None:
        layers = cast("nn.ModuleList", self._model.get_submodule("model.layers"))
        _FailsHalfway(layers[1])


class TestTorchEngineInExactArithmetic(EngineContract):
    vocabulary = VOCABULARY

    def make_engine(self, *, slots: int = 1, window: int = WINDOW, grid: int = GRID) -> Engine:
        torch.set_num_threads(1)
        self._model = tiny_model("qwen3_5_text")
        Binding(self._model)
        layers = layers_of(cast("PreTrainedConfig", self._model.config), READING)
        return TorchEngine(
            self._model, slots=slots, window=window, grid=grid, layers=layers, row_invariant=True
        )

    def fail_next_forward(self, engine: Engine) -> None:
        layers = cast("nn.ModuleList", self._model.get_submodule("model.layers"))
        _FailsHalfway(layers[1])


class TestTorchEngineOnAHybrid(_OnATinyModel):
    model_type = "qwen3_5_text"


class TestTorchEngineOnAHybridInBfloat16(_OnATinyModel):
    model_type = "qwen3_5_text"
    dtype = torch.bfloat16


class TestTorchEngineOnPlainAttention(_OnATinyModel):
    model_type = "llama"
