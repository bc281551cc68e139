"""Token ids as arrays, and the longest prefix two of them share."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

TokenIds: TypeAlias = npt.NDArray[np.uint32]
"""Shape (tokens,). Key ids have the same type: the ids a cache compares, which differ from the
ids a model reads where media stands (its placeholder ids say nothing about what it shows)."""


def token_ids(values: Sequence[int] | npt.NDArray[np.integer]) -> TokenIds:
    """A read-only array of the caller's ids, copied.

    Raises:
        ValueError: an id is negative or does not fit 32 bits, or the values are not flat.
    """
    wide = np.array(values) if len(values) else np.empty(0, dtype=np.int64)
    if wide.ndim != 1 or not np.issubdtype(wide.dtype, np.integer):
        raise ValueError("token ids are a flat sequence of integers")
    if wide.size and (int(wide.min()) < 0 or int(wide.max()) > 0xFFFF_FFFF):
        raise ValueError("token ids lie between 0 and 2**32 - 1")
    ids = wide.astype(np.uint32)
    ids.flags.writeable = False
    return ids


def common_prefix(a: TokenIds, b: TokenIds) -> int:
    """How many leading ids are equal, in `[0, min(len(a), len(b))]`.

    Compared element by element, never by hash. Blocks first, so that the usual case (two prompts
    that part early or not at all) costs one pass at memory speed and no temporary of full length.
    """
    shortest = min(len(a), len(b))
    block = 4096
    for start in range(0, shortest, block):
        end = min(start + block, shortest)
        differ = a[start:end] != b[start:end]
        if differ.any():
            return start + int(differ.argmax())
    return shortest


def starts_with(ids: TokenIds, prefix: TokenIds) -> bool:
    """Whether every id of `prefix` stands at its own place in `ids`."""
    return len(prefix) <= len(ids) and bool(np.array_equal(ids[: len(prefix)], prefix))
