"""Models from directories, GGUF files and ids, and what is said where there is none."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForImageTextToText

from anchorline.adapters.gpu.libraries import seeded
from anchorline.adapters.gpu.loading import (
    GRID_CPU,
    GRID_TINY,
    default_grid,
    find_model,
    load_engine,
    window_of,
)
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.domain.errors import ModelNotFound, ModelRefused, SettingsError
from anchorline.domain.fingerprint import fingerprint_of
from contract.readings import prefill_to, some_ids
from support.tiny_models import VOCABULARY, tiny_config, tiny_model

IDS = some_ids(20, seed=1, vocabulary=VOCABULARY)


def saved(model: nn.Module, directory: Path) -> Path:
    cast("Any", model).save_pretrained(directory)
    return directory


def first_logits(engine: TorchEngine) -> bytes:
    return prefill_to(engine, 0, IDS).tobytes()


@pytest.mark.parametrize("model_type", ["qwen3_5_text", "llama", "inkling2_text"])
def test_a_directory_of_safetensors_is_loaded(model_type: str, tmp_path: Path) -> None:
    model = tiny_model(model_type)
    directory = saved(model, tmp_path / "some-model")

    engine = load_engine(str(directory), grid=16, window=64)

    assert engine.profile.model == "some-model"
    assert first_logits(engine) == first_logits(TorchEngine(model, grid=16, window=64))


@pytest.mark.parametrize(
    ("model_type", "text_type", "vision"),
    [
        ("qwen3_5", "qwen3_5_text", {"depth": 1, "num_heads": 2, "out_hidden_size": 32}),
        (
            "gemma3",
            "gemma3_text",
            {"num_attention_heads": 2, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14},
        ),
    ],
)
def test_a_composed_model_is_served_by_its_text_part(
    model_type: str, text_type: str, vision: Mapping[str, int], tmp_path: Path
) -> None:
    config = cast("Any", AutoConfig).for_model(
        model_type,
        text_config=tiny_config(text_type).to_dict(),
        vision_config={"hidden_size": 16, "intermediate_size": 16, **vision},
    )
    with seeded(0):
        saved(cast("Any", AutoModelForImageTextToText).from_config(config), tmp_path)

    engine = load_engine(str(tmp_path), grid=16, window=64)

    alone = TorchEngine(tiny_model(text_type), grid=16, window=64)
    assert engine.profile.layout == alone.profile.layout
    assert prefill_to(engine, 0, IDS).shape == (VOCABULARY,)


def test_weights_at_odd_addresses_give_the_bits_of_aligned_ones(tmp_path: Path) -> None:
    """Seen on 2026-11-29: weights mapped from a file moved logits by 5e-7, by their address."""
    model = tiny_model("llama")
    expected = first_logits(TorchEngine(model, grid=16, window=64))
    for parameter in model.parameters():
        room = torch.empty(parameter.numel() + 2)
        room[2:].copy_(parameter.flatten())
        parameter.data = room[2:].view(parameter.shape)
    assert any(parameter.data_ptr() % 64 for parameter in model.parameters())

    assert first_logits(TorchEngine(model, grid=16, window=64)) == expected


def test_auto_dtype_is_the_checkpoints_own(tmp_path: Path) -> None:
    directory = saved(tiny_model("llama", torch.bfloat16), tmp_path)

    own, wide = load_engine(str(directory)), load_engine(str(directory), dtype="float32")

    assert {view.dtype for view in own.profile.layout.views} == {"bfloat16"}
    assert {view.dtype for view in wide.profile.layout.views} == {"float32"}


def test_float16_checkpoints_run_in_float32_which_holds_all_their_numbers(tmp_path: Path) -> None:
    directory = saved(tiny_model("llama").half(), tmp_path)

    engine = load_engine(str(directory))

    assert {view.dtype for view in engine.profile.layout.views} == {"float32"}


def test_the_window_is_the_models_maximum_where_that_is_less_than_the_default(
    tmp_path: Path,
) -> None:
    engine = load_engine(str(saved(tiny_model("llama"), tmp_path)), slots=2)

    assert engine.profile.window == 512
    assert len(engine.slots) == 2
    assert engine.profile.grid.step == GRID_TINY


def test_a_window_beyond_the_models_maximum_is_an_error() -> None:
    with pytest.raises(SettingsError, match="513 tokens is not between 1 and 512"):
        window_of(tiny_config("llama"), 513, torch.device("cpu"))


def test_a_model_without_a_maximum_has_the_default_window() -> None:
    assert window_of(tiny_config("mamba2"), None, torch.device("cpu")) == 8192
    assert window_of(tiny_config("mamba2"), 100_000, torch.device("cpu")) == 100_000


def test_the_grid_grows_with_the_model() -> None:
    small = nn.Linear(1, 1)
    with torch.device("meta"):
        large = nn.Linear(5_000, 5_000)

    assert default_grid(small, torch.device("cpu")) == GRID_TINY
    assert default_grid(large, torch.device("cpu")) == GRID_CPU
    assert default_grid(large, torch.device("cuda")) == 1_024


def test_a_moved_and_renamed_directory_has_the_same_fingerprint(tmp_path: Path) -> None:
    directory = saved(tiny_model("qwen3_5_text"), tmp_path / "before")
    before = fingerprint_of(load_engine(str(directory), window=64).profile.facts)

    moved = directory.rename(tmp_path / "after")

    assert fingerprint_of(load_engine(str(moved), window=64).profile.facts) == before


@pytest.mark.parametrize("model", ["/nowhere/at/all", "no-such-model", "./x", "a/b/c"])
def test_what_is_no_model_is_not_found_and_the_message_says_what_would_be_one(model: str) -> None:
    with pytest.raises(ModelNotFound, match=r"give a directory with config\.json"):
        load_engine(model)


def test_a_hub_id_that_is_not_here_while_offline_says_how_to_get_it() -> None:
    with pytest.raises(ModelNotFound, match="hf download anchorline-tests/absent"):
        load_engine("anchorline-tests/absent")


def test_a_directory_without_a_config_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"holds no config\.json"):
        load_engine(str(tmp_path))


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    cast("Any", tiny_config("llama")).save_pretrained(tmp_path)
    torch.save({}, tmp_path / "pytorch_model.bin")

    with pytest.raises(ModelNotFound, match=r"holds no \*\.safetensors"):
        load_engine(str(tmp_path))


def test_a_config_of_a_type_that_transformers_does_not_know_is_refused(tmp_path: Path) -> None:
    saved(tiny_model("llama"), tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "no_such_type"}')

    with pytest.raises(ModelRefused, match="no_such_type"):
        load_engine(str(tmp_path))


def test_a_refused_type_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "rwkv"}')
    (tmp_path / "model.safetensors").write_bytes(b"not read")

    with pytest.raises(ModelRefused, match="keeps recurrent state inside its modules"):
        load_engine(str(tmp_path))


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    saved(tiny_model("llama"), tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])

    with pytest.raises(ModelRefused, match="the weights cannot be read"):
        load_engine(str(tmp_path))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"")

    with pytest.raises(ModelRefused, match="neither a directory nor a GGUF file"):
        load_engine(str(path))


def test_what_transformers_logs_goes_through_the_processs_own_log_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load_engine(str(saved(tiny_model("llama"), tmp_path / "some-model")))
    with caplog.at_level(logging.WARNING, logger="transformers"):
        logging.getLogger("transformers.modeling_utils").warning("heard")
        logging.getLogger("transformers.integrations.hub_kernels").warning("a GPU's kernel")

    library = logging.getLogger("transformers")
    assert library.propagate
    assert logging.StreamHandler not in {type(handler) for handler in library.handlers}
    assert [record.getMessage() for record in caplog.records] == ["heard"]


@pytest.mark.parametrize(("device", "said"), [("tpu", "no device"), ("meta", "not supported")])
def test_an_unknown_device_is_an_error(device: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load_engine("whatever", device=device)


def test_a_cuda_device_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SettingsError, match=r"sees [0-9]+ CUDA devices"):
        load_engine("whatever", device="cuda:99")


def test_no_threads_are_too_few() -> None:
    with pytest.raises(SettingsError, match="at least 1"):
        load_engine("whatever", threads=0)


def write_gguf(model: nn.Module, path: Path) -> None:
    """A llama as llama.cpp's converter writes it: other names, query and key rows interleaved."""
    config = cast("Any", model).config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    writer = cast("Any", gguf).GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config.vocab_size)
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "model.layers": "blk",
    }
    for name, tensor in model.state_dict().items():
        weights = tensor.numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            count = heads if "q_proj" in name else kv_heads
            rows = weights.reshape(count, 2, weights.shape[0] // count // 2, -1)
            weights = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(weights.shape)
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)  # noqa: PLW2901 # translated piece by piece
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_is_loaded(tmp_path: Path) -> None:
    # head_dim 8 is hidden_size / heads: a GGUF of a llama does not say it otherwise.
    model = tiny_model("llama")
    path = tmp_path / "tiny.gguf"
    write_gguf(model, path)

    engine = load_engine(str(path), window=64, grid=16)

    assert engine.profile.model == "tiny"
    assert find_model(str(path)).weights() == [path]
    assert first_logits(engine) == first_logits(TorchEngine(model, window=64, grid=16))
