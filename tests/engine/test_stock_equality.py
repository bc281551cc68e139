"""The engine computes what transformers does, with its own buffers in place of transformers'."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
import transformers
from torch import nn

from anchorline.adapters.gpu.cache_layers import cache_argument
from anchorline.adapters.gpu.libraries import ModelOutput, tensor_over
from anchorline.adapters.gpu.torch_engine import TorchEngine
from anchorline.domain.tokens import TokenIds
from anchorline.ports.engine import DecodeInput
from contract.readings import some_ids
from support.tiny_models import ARCHITECTURES, VOCABULARY, tiny_model

GRID = 16
PROMPT = 2 * GRID + 5
PIECES = [(0, GRID), (GRID, 2 * GRID), (2 * GRID, PROMPT), (PROMPT, PROMPT + 1)]


def stock_logits(
    model: nn.Module, ids: TokenIds, pieces: Sequence[tuple[int, int]]
) -> list[npt.NDArray[np.float32]]:
    """The logits after each of the pieces, forwarded into transformers' own cache."""
    cache: object = cast("Any", transformers).DynamicCache(config=model.config)
    call = cast("Callable[..., ModelOutput]", model)
    found: list[npt.NDArray[np.float32]] = []
    for start, end in pieces:
        with torch.inference_mode():
            output = call(
                input_ids=tensor_over(ids[start:end].astype(np.int64))[None],
                position_ids=torch.arange(start, end)[None],
                use_cache=True,
                logits_to_keep=1,
                **{cache_argument(model.forward): cache},
            )
        found.append(output.logits[0, -1].numpy())
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_chunks_and_decode_give_the_logits_that_transformers_gives(architecture: str) -> None:
    model = tiny_model(architecture)
    ids = some_ids(PROMPT + 1, seed=1, vocabulary=VOCABULARY)
    engine = TorchEngine(model, window=4 * GRID, grid=GRID)

    ours = [engine.prefill(0, ids[start:end]) for start, end in PIECES[:-1]]
    ours.append(engine.decode([DecodeInput(0, int(ids[-1]))])[0])

    # Not promised to the bit: a token-major buffer's strides can choose another kernel. In nearly
    # all of these models the bits are the same, too.
    stock = stock_logits(model, ids, PIECES)
    differences = [float(np.abs(a - b).max() / b.std()) for a, b in zip(ours, stock, strict=True)]
    assert max(differences) < 1e-5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_prompt_of_one_token_in_a_used_slot_takes_the_path_that_transformers_takes(
    architecture: str,
) -> None:
    model = tiny_model(architecture)
    ids = some_ids(PROMPT, seed=1, vocabulary=VOCABULARY)
    engine = TorchEngine(model, window=4 * GRID, grid=GRID)
    engine.prefill(0, ids[:GRID])
    engine.slots[0].resume_at(0)

    logits = engine.prefill(0, ids[-1:])

    # To the bit: many models forward one token on another path once they have a previous state.
    (stock,) = stock_logits(model, ids[-1:], [(0, 1)])
    assert logits.tobytes() == stock.tobytes()
