"""Triton's row-invariant kernels in its interpreter: right, and the same in any pieces."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("TRITON_INTERPRET was not 1 when Triton was imported", allow_module_level=True)

from anchorline.adapters.gpu.kernels import exact_kernels  # noqa: E402 # needs what stands above

PIECES = (1, 3, 17)
COUNT = sum(PIECES)
DIM = 16

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def numbers(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def in_pieces(run: Callable[[int, int], Tensor]) -> Tensor:
    """What the pieces of a call give, joined."""
    ends = [sum(PIECES[: index + 1]) for index in range(len(PIECES))]
    return torch.cat([run(end - size, end) for end, size in zip(ends, PIECES, strict=True)])


@dtypes
def test_a_product_is_right_and_its_rows_are_their_own(dtype: torch.dtype) -> None:
    rows, weight = numbers(COUNT, 100, seed=1, dtype=dtype), numbers(70, 100, seed=2, dtype=dtype)

    whole = exact_kernels.product(rows, weight)

    assert torch.equal(in_pieces(lambda a, b: exact_kernels.product(rows[a:b], weight)), whole)
    wanted = rows.double() @ weight.double().T
    assert torch.allclose(
        whole.double(), wanted, rtol=1e-2, atol=1e-4 if dtype.itemsize == 4 else 0.1
    )


@dtypes
@pytest.mark.parametrize("first", [0, 500])
def test_attention_is_right_and_its_queries_are_their_own(first: int, dtype: torch.dtype) -> None:
    query = numbers(COUNT, 4, DIM, seed=1, dtype=dtype)
    key, value = (numbers(first + COUNT, 2, DIM, seed=seed, dtype=dtype) for seed in (2, 3))

    def run(start: int, end: int) -> Tensor:
        rows = first + end
        return exact_kernels.attention(
            query[start:end], key[:rows], value[:rows], first + start, DIM**-0.5
        )

    whole = run(0, COUNT)

    assert torch.equal(in_pieces(run), whole)
    seen = torch.arange(first + COUNT) <= first + torch.arange(COUNT)[:, None]
    heads = [each.float().transpose(0, 1).repeat_interleave(2, 0) for each in (key, value)]
    wanted = functional.scaled_dot_product_attention(
        query.float().transpose(0, 1), *heads, attn_mask=seen
    )
    assert torch.allclose(whole.float(), wanted.transpose(0, 1), rtol=2e-2, atol=2e-2)
