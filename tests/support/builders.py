"""Domain values with everything defaulted that a test does not speak about."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from anchorline.application.request import GenerationRequest
from anchorline.domain.anchor import Anchor, AnchorKind, SectionsHandle
from anchorline.domain.entry import Source, Tier
from anchorline.domain.namespace import Namespace
from anchorline.domain.offers import Offer
from anchorline.domain.prompt import Prompt
from anchorline.domain.sampling import Logits, SamplingParams
from anchorline.domain.taint_line import Gate
from anchorline.domain.tokens import TokenIds, token_ids


def ids(*values: int) -> TokenIds:
    """Exactly these ids."""
    return token_ids(values)


def random_ids(count: int, *, seed: int = 0, below: int = 97) -> TokenIds:
    """Ids that look random and are the same for the same arguments."""
    return token_ids(np.random.default_rng(seed).integers(0, below, count))


def a_prompt(values: Sequence[int] | TokenIds, *, last_user: int = 0) -> Prompt:
    """A prompt of text: its key ids are its ids."""
    prompt_ids = token_ids(values)
    return Prompt(prompt_ids, prompt_ids, last_user=last_user)


def a_request(prompt: Prompt, **said: Any) -> GenerationRequest:  # noqa: ANN401, fields differ
    """A completion of which only what is `said` is special.

    Args:
        said: fields of `GenerationRequest`.
    """
    plain: dict[str, Any] = {
        "id": "r",
        "namespace": Namespace(),
        "sampling": SamplingParams(),
        "max_tokens": 4,
        "stop": (),
        "chat": False,
        "opens_reasoning": False,
        "tools": False,
        "ignore_end": True,
        "session": None,
        "arrived_s": 0.0,
    }
    return GenerationRequest(prompt=prompt, **{**plain, **said})


def an_anchor(line: int, kind: AnchorKind = AnchorKind.GRID, *, handle: int = 0) -> Anchor:
    return Anchor(line, kind, SectionsHandle(handle))


def an_offer(
    line: int,
    *,
    gate: Gate = Gate.BITWISE,
    tier: Tier = Tier.SLOT,
    source: Source = Source.RESIDENT,
    move_seconds: float = 0.0,
) -> Offer:
    return Offer(line, gate, tier, source, an_anchor(line), move_seconds=move_seconds)


def logits_of(*values: float) -> Logits:
    return np.array(values, dtype=np.float32)
