"""The fingerprint: which arithmetic made a state."""

import hashlib
import json
from collections.abc import Mapping
from typing import NewType

Fingerprint = NewType("Fingerprint", str)
"""64 hexadecimal digits. State is usable only under the fingerprint that it was made under."""


def fingerprint_of(facts: Mapping[str, str]) -> Fingerprint:
    """The digest of everything that decides a row's bits.

    Args:
        facts: weights' content, config, tokenizer, template, dtype, KV scheme, layout, grid, the
            sources that compute rows, library versions, device architecture, threads. Never names,
            paths or times: a store that moves keeps its state.
    """
    canonical = json.dumps(dict(facts), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return Fingerprint(hashlib.sha256(b"anchorline fingerprint 1" + canonical.encode()).hexdigest())
