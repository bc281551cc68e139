"""Triton's kernels in its interpreter, and their stand-ins, against numpy."""

import sys

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from anchorline.adapters.gpu.kernels import planes, sums, triton_module
from anchorline.adapters.gpu.libraries import tensor_over
from anchorline.domain.sums import Sums, sums_of

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("TRITON_INTERPRET was not 1 when Triton was imported", allow_module_level=True)

from anchorline.adapters.gpu.kernels import triton_kernels  # noqa: E402 # needs what stands above

BLOCK = 1 << 14
"""Large blocks: a program costs the interpreter milliseconds."""

WORDS = [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7]
ITEMS = [1, 2, 1000, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5]


def some_bytes(count: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def some_parts(lengths: list[int]) -> list[Tensor]:
    return [tensor_over(some_bytes(length, seed)) for seed, length in enumerate(lengths)]


def expected(parts: list[Tensor]) -> list[Sums]:
    return [sums_of(part.numpy()) for part in parts]


class TestSums:
    def test_the_kernel_gives_the_sums_of_every_part_in_one_launch(self) -> None:
        parts = some_parts([8 * words for words in WORDS])

        partials, starts = triton_kernels.partial_sums(
            [sums.words_of(part) for part in parts], block=BLOCK
        )

        assert sums.reduced(partials, starts) == expected(parts)

    @pytest.mark.parametrize("block", [256, 1024])
    def test_the_block_of_a_program_changes_nothing(self, block: int) -> None:
        parts = some_parts([8 * 3000])

        partials, starts = triton_kernels.partial_sums([sums.words_of(parts[0])], block=block)

        assert len(partials) == -(-3000 // block)
        assert sums.reduced(partials, starts) == expected(parts)

    def test_sums_wrap_as_unsigned_words_do(self) -> None:
        ones = torch.full((8 * BLOCK,), 0xFF, dtype=torch.uint8)
        top = torch.zeros(8 * BLOCK, dtype=torch.uint8)
        top[7::8] = 0x80

        partials, starts = triton_kernels.partial_sums(
            [sums.words_of(ones), sums.words_of(top)], block=BLOCK
        )

        assert sums.reduced(partials, starts) == expected([ones, top])
        assert expected([ones])[0].plain == 2**64 - BLOCK

    @pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 4095, 8 * 5000, 8 * 5000 + 3])
    def test_numpy_and_torch_give_the_same(self, length: int) -> None:
        (part,) = some_parts([length])

        assert sums.device_sums([part]) == expected([part])
        assert as_sums(sums.torch_sums(sums.words_of(part))) == expected([part])[0]

    def test_numpy_and_torch_give_the_same_beyond_their_blocks(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sums, "TABLE_WORDS", 2000)
        monkeypatch.setattr(sums, "HOST_BLOCK_WORDS", 700)
        monkeypatch.setattr(sums, "TORCH_BLOCK_WORDS", 900)
        (part,) = some_parts([8 * 7001 + 5])

        assert sums.host_sums(part.numpy()) == expected([part])[0]
        assert as_sums(sums.torch_sums(sums.words_of(part))) == expected([part])[0]

    def test_parts_at_odd_addresses_have_the_same_sums(self) -> None:
        whole = tensor_over(some_bytes(8 * 1000 + 16))

        for start in (1, 2, 4, 7, 8):
            part = whole[start : start + 8 * 1000]
            assert sums.device_sums([part]) == expected([part])
            assert as_sums(sums.torch_sums(sums.words_of(part))) == expected([part])[0]

    def test_no_parts_have_no_sums(self) -> None:
        assert sums.device_sums([]) == []


class TestPlanes:
    @pytest.mark.parametrize("width", [2, 4, 8])
    @pytest.mark.parametrize("items", ITEMS)
    def test_the_kernels_cut_planes_and_join_them(self, items: int, width: int) -> None:
        part = tensor_over(some_bytes(items * width))
        cut = torch.empty((width, items), dtype=torch.uint8)
        back = torch.empty_like(part)

        triton_kernels.split(part, width, cut, block=BLOCK)
        triton_kernels.join(cut, back, block=BLOCK)

        assert np.array_equal(cut.numpy(), part.numpy().reshape(items, width).T)
        assert torch.equal(back, part)

    @pytest.mark.parametrize("width", [1, 2, 3, 4, 8])
    @pytest.mark.parametrize("items", [0, 1, 1001])
    def test_torch_cuts_and_joins_items_of_any_width(self, items: int, width: int) -> None:
        part = tensor_over(some_bytes(items * width))
        cut = torch.empty((width, items), dtype=torch.uint8)
        back = torch.empty_like(part)

        planes.split_planes(part, width, cut)
        planes.join_planes(cut, back)

        assert np.array_equal(cut.numpy(), part.numpy().reshape(items, width).T)
        assert torch.equal(back, part)

    def test_planes_of_another_size_are_refused(self) -> None:
        part = torch.zeros(64, dtype=torch.uint8)

        with pytest.raises(AssertionError):
            planes.split_planes(part, 2, torch.zeros((2, 31), dtype=torch.uint8))
        with pytest.raises(AssertionError):
            planes.join_planes(torch.zeros((4, 15), dtype=torch.uint8), part)


class TestWithoutDevice:
    def test_a_cpu_uses_no_kernel(self) -> None:
        assert triton_module.triton_kernels(torch.device("cpu")) is None

    def test_cuda_never_uses_the_interpreter(self) -> None:
        assert triton_kernels.INTERPRETED
        assert triton_module.triton_kernels(torch.device("cuda")) is None

    def test_cuda_uses_the_kernels_where_triton_is_installed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(triton_kernels, "INTERPRETED", False)

        assert triton_module.triton_kernels(torch.device("cuda")) is triton_kernels

    def test_cuda_without_triton_uses_torch(self, without_triton: None) -> None:
        assert triton_module.triton_kernels(torch.device("cuda")) is None


@pytest.fixture
def without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, triton_kernels.__name__)
    monkeypatch.setitem(sys.modules, "triton", None)  # its import raises ImportError


def as_sums(pair: Tensor) -> Sums:
    plain, weighted = (int(total) % 2**64 for total in pair)
    return Sums(plain, weighted)
