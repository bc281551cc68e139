"""Which models are admitted, and that broken ones are found."""

from collections.abc import Callable
from typing import Any, Final, cast

import pytest
import torch
from torch import nn
from transformers import AutoConfig, PreTrainedConfig

from anchorline.adapters.gpu.cache_layers import layers_of
from anchorline.adapters.gpu.self_check import faults_of, self_check
from anchorline.adapters.gpu.support_matrix import PROVEN, REFUSED, admit
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.domain.errors import EngineError, ModelRefused
from support.made_up_model import Fault, MadeUpModel, made_up_layers
from support.tiny_models import ARCHITECTURES, REFUSED_TYPES, tiny_config, tiny_model

VERSION: Final = "anchorline.adapters.gpu.libraries.transformers.__version__"
"""By its reader: the package puts another module in its own place while it is imported."""


def default_config(model_type: str) -> PreTrainedConfig:
    """The config of a type as its first published model has it, large."""
    make = cast("Callable[..., PreTrainedConfig]", cast("Any", AutoConfig).for_model)
    return make(model_type)


@pytest.mark.parametrize("model_type", REFUSED_TYPES)
def test_a_type_whose_state_cannot_be_kept_is_refused_with_the_reason(model_type: str) -> None:
    with pytest.raises(ModelRefused) as caught:
        admit(default_config(model_type))

    assert repr(model_type) in str(caught.value)
    assert REFUSED[model_type] in str(caught.value)


def test_every_refusal_is_tested() -> None:
    assert set(REFUSED_TYPES) == set(REFUSED)


def test_a_type_counts_as_proven_exactly_if_the_gates_run_on_it() -> None:
    assert set(ARCHITECTURES) == PROVEN


@pytest.mark.parametrize("model_type", ["llama4_text", "deepseek_v32", "deepseek_v4"])
def test_an_unknown_layer_type_is_refused_by_its_name(model_type: str) -> None:
    with pytest.raises(ModelRefused, match=r"layers of the types (chunked|indexed|compressed)"):
        admit(default_config(model_type))


@pytest.mark.parametrize("model_type", ["mistral", "gpt2", "gpt_oss", "deepseek_v3", "glm4_moe"])
def test_an_unlisted_type_is_admitted_after_the_self_check(model_type: str) -> None:
    assert model_type not in PROVEN

    admit(default_config(model_type))


@pytest.mark.parametrize("model_type", ["qwen3_5_text", "qwen3_next", "mamba2", "gemma3_text"])
def test_the_self_check_shrinks_a_large_config_and_finds_nothing_in_a_proven_type(
    model_type: str,
) -> None:
    assert self_check(default_config(model_type)) == []


@pytest.mark.parametrize("model_type", ["mamba", "jamba", "rwkv", "recurrent_gemma", "minimax"])
def test_the_self_check_finds_what_the_refused_types_were_refused_for(model_type: str) -> None:
    assert self_check(default_config(model_type)) != []


def test_a_transformers_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VERSION, "5.16.3")

    with pytest.raises(ModelRefused, match=r"transformers 5\.16 .* known from 5\.17 on"):
        admit(tiny_config("llama"))


def test_under_a_newer_transformers_every_type_has_to_prove_itself_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VERSION, "6.0.0.dev0")
    broken = tiny_config("llama", hidden_act="no such function")

    with pytest.raises(ModelRefused, match="no tiny one could be made"):
        admit(broken)
    admit(tiny_config("llama"))


def test_a_type_of_which_no_tiny_model_can_be_made_is_refused_with_the_reason() -> None:
    config = default_config("mistral")
    config.hidden_act = "no such function"

    with pytest.raises(ModelRefused, match=r"no tiny one could be made .*no such function"):
        admit(config)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_self_check_finds_nothing_in_the_tiny_models(architecture: str) -> None:
    assert faults_of(tiny_model(architecture)) == []


def test_the_self_check_finds_nothing_in_an_honest_made_up_model() -> None:
    assert faults_of(MadeUpModel(), made_up_layers) == []


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("keeps state elsewhere", "a repeated resume differs from the first"),
        ("ignores state", "forwards of several tokens ignore the state in layer1.state0"),
        ("replaces a state", "replaces tensors of its state"),
        ("fails", "the first forward failed"),
    ],
)
def test_the_self_check_finds_a_planted_fault(fault: Fault, found: str) -> None:
    faults = faults_of(MadeUpModel(fault), made_up_layers)

    assert any(found in text for text in faults), faults


def test_the_self_check_finds_a_stateful_model_without_sections() -> None:
    model = tiny_model("llama")
    cast("Any", model)._is_stateful = True

    assert faults_of(model) == ["it says that it is stateful and no layer of it has a section"]


def test_a_model_without_config_and_layers_is_refused() -> None:
    with pytest.raises(ModelRefused, match="came without layers"):
        TorchEngine(MadeUpModel(), window=64, grid=16)


def test_a_model_that_cannot_run_at_all_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match="the first forward failed"):
        TorchEngine(MadeUpModel("fails"), window=64, grid=16, layers=made_up_layers)


def test_a_cache_argument_of_older_transformers_is_found() -> None:
    class Older(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = tiny_model("llama")
            self.config = cast("PreTrainedConfig", self.inner.config)

        def forward(
            self,
            input_ids: torch.Tensor,
            position_ids: torch.Tensor,
            past_key_values: object = None,
            use_cache: bool = False,
        ) -> object:
            return self.inner(
                input_ids=input_ids,
                position_ids=position_ids,
                cache=past_key_values,
                use_cache=use_cache,
            )

    engine = TorchEngine(Older(), window=64, grid=16)

    assert [view.name for view in engine.profile.layout.views][:2] == [
        "layer0.keys",
        "layer0.values",
    ]


def test_layers_are_made_for_each_slot_anew() -> None:
    make = layers_of(tiny_config("qwen3_5_text"))

    one, other = make(64), make(64)

    assert not {id(layer) for layer in one} & {id(layer) for layer in other}
