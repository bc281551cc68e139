"""Tiny random models of many architectures: some ten thousand parameters each, the same every time.

Every kind of state that the engine may meet stands here at least once: plain attention, sliding
windows shorter than the tests' prompts, Gated DeltaNet, KDA, Mamba-2, short convolutions, latent
attention, mixtures of experts, and layers that hold rows and states.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedConfig

from anchorline.adapters.gpu.libraries import model_from_config, seeded

VOCABULARY: Final = 96

_ATTENTION: Final[Mapping[str, Any]] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_DELTA_NET: Final[Mapping[str, Any]] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_hidden_layers": 3,
}
_EXPERTS: Final[Mapping[str, Any]] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
_LATENT: Final[Mapping[str, Any]] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "num_local_experts": 4,
    "moe_intermediate_size": 16,
}
_MAMBA2: Final[Mapping[str, Any]] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_expand": 2,
    "mamba_chunk_size": 8,
    "num_hidden_layers": 3,
}
_SHORT_CONVOLUTION: Final[Mapping[str, Any]] = {
    "num_hidden_layers": 4,
    "layer_types": ["conv", "full_attention", "conv", "conv"],
}
_SWA: Final[Mapping[str, Any]] = {
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 8,
    "sliding_window_size": 11,
    "d_rel": 4,
    "rel_extent": 64,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
}

ARCHITECTURES: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": {**_ATTENTION, "num_hidden_layers": 2},
    "qwen3": {**_ATTENTION, "num_hidden_layers": 2},
    "gemma3_text": {
        **_ATTENTION,
        "num_hidden_layers": 3,
        "sliding_window": 11,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "qwen3_next": {**_ATTENTION, **_DELTA_NET, **_EXPERTS},
    "qwen3_5_text": {**_ATTENTION, **_DELTA_NET},
    "qwen3_5_moe_text": {**_ATTENTION, **_DELTA_NET, **_EXPERTS},
    "olmo_hybrid": {**_ATTENTION, **_DELTA_NET, "linear_num_key_heads": 4},
    "lara_mini": {
        **_ATTENTION,
        **_DELTA_NET,
        **_EXPERTS,
        "sliding_window": 11,
        "layer_types": ["linear_attention", "full_attention", "sliding_attention"],
    },
    "kimi_linear": {
        **_ATTENTION,
        **_LATENT,
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "linear_head_dim": 8,
        "linear_num_heads": 4,
    },
    "bailing_hybrid": {
        **_ATTENTION,
        **_LATENT,
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "first_k_dense_replace": 1,
    },
    "granitemoehybrid": {
        **_ATTENTION,
        **_MAMBA2,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 16,
    },
    "bamba": {**_ATTENTION, **_MAMBA2, "attn_layer_indices": [1]},
    "nemotron_h": {
        **_ATTENTION,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "ssm_state_size": 8,
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "n_groups": 2,
        "chunk_size": 8,
        "n_routed_experts": 4,
        "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 16,
    },
    "mamba2": {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_heads": 8,
        "head_dim": 8,
        "state_size": 8,
        "n_groups": 2,
        "chunk_size": 8,
    },
    "falcon_h1": {**_ATTENTION, **_MAMBA2, "mamba_d_ssm": 64, "num_hidden_layers": 2},
    "zamba2": {
        **_ATTENTION,
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "mamba_d_state": 8,
        "mamba_ngroups": 2,
        "n_mamba_heads": 8,
        "chunk_size": 8,
        "num_mem_blocks": 1,
        "adapter_rank": 4,
    },
    "lfm2": {**_ATTENTION, **_SHORT_CONVOLUTION, "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {**_ATTENTION, **_SHORT_CONVOLUTION, **_EXPERTS, "num_dense_layers": 1},
    "lfm3": {
        **_ATTENTION,
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "sliding_attention"],
        "sliding_window": 11,
    },
    "inkling_text": {
        **_ATTENTION,
        **_SWA,
        "num_hidden_layers": 2,
        "layer_types": ["hybrid_sliding", "hybrid"],
        "logits_mup_width_multiplier": 1.0,
    },
    "inkling2_text": {
        **_ATTENTION,
        **_SWA,
        "num_hidden_layers": 2,
        "layer_types": ["hybrid_sliding", "hybrid"],
        "unpadded_vocab_size": VOCABULARY,
        "n_layers_per_attn_res_block": 1,
    },
}
"""Arguments of each type's config; the keys are what `config.json` calls `model_type`."""

REFUSED_TYPES: Final = (
    "mamba",
    "falcon_mamba",
    "jamba",
    "zamba",
    "recurrent_gemma",
    "rwkv",
    "minimax",
    "xlstm",
    "zaya",
)


def tiny_config(model_type: str, **more: object) -> PreTrainedConfig:
    """The config of a tiny model, with some arguments replaced."""
    make = cast("Callable[..., PreTrainedConfig]", cast("Any", AutoConfig).for_model)
    return make(model_type, **{**ARCHITECTURES[model_type], **more})


def tiny_model(
    model_type: str, dtype: torch.dtype = torch.float32, *, seed: int = 0, **more: object
) -> nn.Module:
    """A tiny model with random weights; equal arguments give equal weights."""
    with seeded(seed):
        model = model_from_config(tiny_config(model_type, **more), dtype)
        # Weights as small as transformers draws them leave logits nearly flat: a wrong state
        # should be seen in every number.
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim >= 2:
                    parameter.normal_(std=0.2)
    return model.eval().requires_grad_(requires_grad=False)
