"""How much memory a value takes, for caches that keep values and count them before they do."""

import enum
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Final, cast

import numpy as np
import numpy.typing as npt

ALLOCATION_STEP: Final = 16
"""CPython gives memory in steps of so many bytes."""


def held_bytes(value: object) -> int:
    """Bytes of a value and of all that only hangs on it.

    Of numbers, texts, arrays, tuples, mappings and data classes of these. What is part of it twice
    is counted once; what all values share (None, truth values, members of enums) not at all.
    """
    return _held(value, set())


def _held(value: object, seen: set[int]) -> int:
    if value is None or isinstance(value, bool | enum.Enum) or id(value) in seen:
        return 0
    seen.add(id(value))
    own = sys.getsizeof(value) + _borrowed_bytes(value)
    steps = -(-own // ALLOCATION_STEP)
    return steps * ALLOCATION_STEP + sum(_held(part, seen) for part in _parts(value))


def _borrowed_bytes(value: object) -> int:
    """Of elements of an array that are another one's: Python counts only what it has itself."""
    if not isinstance(value, np.ndarray):
        return 0
    array = cast("npt.NDArray[np.generic]", value)
    return 0 if array.base is None else array.nbytes


def _parts(value: object) -> tuple[object, ...]:
    """What hangs on a value."""
    if isinstance(value, tuple):
        return cast("tuple[object, ...]", value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return (*pairs.keys(), *pairs.values())
    if is_dataclass(value):
        return tuple(getattr(value, one.name) for one in fields(value))
    return ()
