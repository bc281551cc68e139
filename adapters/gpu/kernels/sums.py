"""Both 64-bit sums of `domain.sums`, computed where the bytes stand.

Three ways to the same numbers: numpy for memory of the CPU, Triton for CUDA, and torch for CUDA
without Triton. Signed and unsigned words wrap to the same bits, and torch has only signed ones.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ....domain.sums import NO_SUMS, Sums
from .triton_module import triton_kernels

TABLE_WORDS: Final = 1 << 20
"""Weights that are kept on the CPU, 8 MiB: those of the first words of every part."""

HOST_BLOCK_WORDS: Final = 1 << 17
"""Words that numpy works on at once: few enough that the second sum finds them in the processor's
cache, and many beside what it takes to get the interpreter lock back after each."""

TORCH_BLOCK_WORDS: Final = 1 << 22
"""Words that torch works on at once: it holds some six times as much beside them."""

# splitmix64, as in domain/sums.py, whose weights always start at word 0.
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB
_WORD: Final = 1 << 64


def device_sums(parts: Sequence[Tensor]) -> list[Sums]:
    """The sums of each part; they come back from a device in one copy, for which it waits.

    Args:
        parts: flat bytes, each contiguous, all on one device; not modified.
    """
    if not parts:
        return []
    device = parts[0].device
    for part in parts:
        assert part.dtype == torch.uint8, f"a part of {part.dtype}, not of bytes"
        assert part.ndim == 1, f"a part of shape {tuple(part.shape)} is not flat"
        assert part.device == device, f"parts on {part.device} and {device}"
    if device.type == "cpu":
        return parts_sums([part.numpy() for part in parts])
    kernels = triton_kernels(device)
    words = [words_of(part) for part in parts]
    if kernels is None:
        totals = torch.stack([torch_sums(part) for part in words])
        return [_sums(pair) for pair in totals.cpu().numpy()]
    with torch.cuda.device(device):
        partials, starts = kernels.partial_sums(words)
    return reduced(partials, starts)


def words_of(part: Tensor) -> Tensor:
    """The part's 64-bit words; a copy where it is not aligned or its last word is short."""
    aligned = part.data_ptr() % 8 == 0 and part.storage_offset() % 8 == 0
    if aligned and len(part) % 8 == 0 and len(part) > 0:
        return part.view(torch.int64)
    padded = torch.zeros((len(part) + 7) // 8 * 8, dtype=torch.uint8, device=part.device)
    padded[: len(part)].copy_(part)
    return padded.view(torch.int64)


def reduced(partials: Tensor, starts: Sequence[int]) -> list[Sums]:
    """The sums of parts from their partial sums, of `triton_kernels.partial_sums`."""
    pairs = partials.cpu().numpy().view(np.uint64)
    totals = np.add.reduceat(pairs, np.asarray(starts), axis=0, dtype=np.uint64)
    return [_sums(pair) for pair in totals]


def host_sums(data: npt.NDArray[np.uint8], first_word: int = 0) -> Sums:
    """What `domain.sums.sums_of` gives, some twenty times as fast: the weights are kept.

    Args:
        first_word: the index of the first word in its part, where `data` is a piece of it.
    """
    whole = len(data) // 8 * 8
    words = data[:whole].view("<u8")
    if whole < len(data):
        tail = np.zeros(8, dtype=np.uint8)
        tail[: len(data) - whole] = data[whole:]
        words = np.concatenate([words, tail.view("<u8")])
    plain = weighted = 0
    for start in range(0, len(words), HOST_BLOCK_WORDS):
        # Both sums of a block before the next one: the second finds it in the core's cache. The
        # plain one first, since it fetches from memory more than twice as fast.
        block = words[start : start + HOST_BLOCK_WORDS]
        first = first_word + start
        plain += int(np.add.reduce(block))
        weighted += int(np.dot(block, _weights(first, first + len(block))))
    return Sums(plain % _WORD, weighted % _WORD)


def parts_sums(parts: Sequence[npt.NDArray[np.uint8]]) -> list[Sums]:
    """`host_sums` of each part, all parts' first pieces first.

    Parts of a block are of the same length, as a rule, and then each weight is fetched, or made,
    once for all of them.
    """
    found = [NO_SUMS] * len(parts)
    longest = max(map(len, parts), default=0)
    for start in range(0, longest, 8 * HOST_BLOCK_WORDS):
        for index, part in enumerate(parts):
            piece = part[start : start + 8 * HOST_BLOCK_WORDS]
            if len(piece):
                found[index] += host_sums(piece, start // 8)
    return found


def _weights(start: int, end: int) -> npt.NDArray[np.uint64]:
    """The weights of words [start, end)."""
    if end <= TABLE_WORDS:
        return _first_weights()[start:end]
    return _made_weights(start, end)


@lru_cache(maxsize=4)
def _made_weights(start: int, end: int) -> npt.NDArray[np.uint64]:
    """Those of a piece behind the table; kept for the next parts."""
    return _make_weights(start, end)


def _make_weights(start: int, end: int) -> npt.NDArray[np.uint64]:
    """As of `domain.sums.weights`, without an array for every step."""
    z = np.arange(start + 1, end + 1, dtype=np.uint64)
    shifted = np.empty_like(z)
    with np.errstate(over="ignore"):
        z *= np.uint64(_GOLDEN)
        for bits, mix in ((30, _MIX_1), (27, _MIX_2)):
            np.right_shift(z, np.uint64(bits), out=shifted)
            z ^= shifted
            z *= np.uint64(mix)
    np.right_shift(z, np.uint64(31), out=shifted)
    z ^= shifted
    z |= np.uint64(1)
    return z


@lru_cache(maxsize=1)
def _first_weights() -> npt.NDArray[np.uint64]:
    return _make_weights(0, TABLE_WORDS)


def torch_sums(words: Tensor) -> Tensor:
    """Both sums of int64 words, on their device: shape (2,), int64."""
    total = torch.zeros(2, dtype=torch.int64, device=words.device)
    for start in range(0, len(words), TORCH_BLOCK_WORDS):
        block = words[start : start + TORCH_BLOCK_WORDS]
        weighted = block * _torch_weights(start, len(block), words.device)
        total += torch.stack([block.sum(), weighted.sum()])
    return total


def _torch_weights(start: int, count: int, device: torch.device) -> Tensor:
    z = torch.arange(start + 1, start + count + 1, dtype=torch.int64, device=device)
    z = z * _signed(_GOLDEN)
    z = (z ^ _shifted(z, 30)) * _signed(_MIX_1)
    z = (z ^ _shifted(z, 27)) * _signed(_MIX_2)
    return (z ^ _shifted(z, 31)) | 1


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Shifted right as unsigned words are: torch would fill in the sign."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    return word - _WORD if word >= _WORD // 2 else word


def _sums(pair: npt.NDArray[np.integer]) -> Sums:
    return Sums(int(pair[0]) % _WORD, int(pair[1]) % _WORD)
