"""Chained keys of prefixes: a name for everything that stands before a line.

The key at line b is a hash of the key one grid step below and the key ids between the two, so all
lines of a prompt cost one pass over it. A key is a hint: whoever finds something by it compares
the ids themselves before using it.
"""

import hashlib
from typing import NewType

from .grid import Grid
from .namespace import Namespace
from .tokens import TokenIds

PrefixKey = NewType("PrefixKey", bytes)
"""16 bytes: sha256 cut to 128 bits."""

KEY_BYTES = 16


def root_key(namespace: Namespace) -> PrefixKey:
    """The key at line 0."""
    digest = hashlib.sha256(b"anchorline prefix 1" + namespace.canonical()).digest()
    return PrefixKey(digest[:KEY_BYTES])


def extend(key: PrefixKey, key_ids: TokenIds) -> PrefixKey:
    """The key after `key_ids` have followed the prefix named by `key`."""
    return PrefixKey(hashlib.sha256(key + key_ids.astype("<u4").tobytes()).digest()[:KEY_BYTES])


def chain(namespace: Namespace, key_ids: TokenIds, grid: Grid) -> list[PrefixKey]:
    """The keys at grid lines 0, step, 2 step, ... up to the last one inside `key_ids`."""
    keys = [root_key(namespace)]
    for line in grid.lines(0, len(key_ids)):
        keys.append(extend(keys[-1], key_ids[line - grid.step : line]))
    return keys
