"""Offers, and the choice between them.

Every entry of every tier answers the same question: how far do you continue this prompt, under
which gate, at what cost? One rule chooses: the least predicted time to the first token.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from .anchor import Anchor
from .entry import Source, Tier
from .taint_line import Gate


@dataclass(frozen=True, slots=True)
class Offer:
    """A verified way to start a prefill at `line`.

    Attributes:
        line: tokens that need no forward.
        anchor: the sections at `line`; None for line 0.
        move_bytes: what has to be moved before the prefill.
        move_seconds: how long that takes at measured rates.
    """

    line: int
    gate: Gate
    tier: Tier
    source: Source
    anchor: Anchor | None = None
    move_bytes: int = 0
    move_seconds: float = 0.0


COLD: Final = Offer(line=0, gate=Gate.COLD, tier=Tier.NONE, source=Source.NONE)
"""The last resort, always there."""


def usable_line(prompt_length: int) -> int:
    """The highest line a prompt may resume at: one token is always forwarded for its logits."""
    return prompt_length - 1


def rank(
    offers: Iterable[Offer],
    prompt_length: int,
    prefill_seconds: Callable[[int, int], float],
) -> list[Offer]:
    """The usable offers, best first; the last one is always the cold start.

    Best is the least `move_seconds + prefill_seconds(line, prompt_length)`. So an offer from far
    away must save more prefill than its own move costs. Ties go to the stricter gate, then to the
    nearer tier, then to the higher line.
    """

    def order(offer: Offer) -> tuple[float, int, int, int]:
        ttft = offer.move_seconds + prefill_seconds(offer.line, prompt_length)
        return (ttft, -offer.gate.strictness, offer.tier.distance, -offer.line)

    usable = [offer for offer in offers if 0 < offer.line <= usable_line(prompt_length)]
    ranked = sorted([*usable, COLD], key=order)
    # What ranks behind the cold start would only be tried after the cold start failed: never.
    return ranked[: ranked.index(COLD) + 1]


def choose(
    offers: Iterable[Offer],
    prompt_length: int,
    prefill_seconds: Callable[[int, int], float],
) -> Offer:
    """The first of `rank`."""
    return rank(offers, prompt_length, prefill_seconds)[0]
