"""The near-tie rule: how far a greedy run may stand from another one of the same prompt.

A preserved state holds rows that decode wrote, and a cold re-read writes other bits there. Between
the two, a token may differ only where both candidates are as good as tied, see docs/exactness.md.

Clients see log probabilities: logits minus one number per run, so within a run their differences
are those of the logits. They see the likeliest tokens alone, whose spread is less than that of all
logits. Both make the rule stricter here than it is written, never laxer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SHARE_MAX: Final = 1e-4
"""The largest difference of two runs' logits at one place, as a share of their spread, in fp32."""


@dataclass(frozen=True, slots=True)
class Step:
    """One token of a greedy run.

    Attributes:
        token: its bytes.
        top: log probabilities of the likeliest tokens at its place.
    """

    token: bytes
    top: Mapping[bytes, float]


@dataclass(frozen=True, slots=True)
class Kinship:
    """How two runs of one prompt relate.

    Attributes:
        parts_at: the first place where their tokens differ; None where none does.
        share: the largest difference at any place up to there, as a share of the spread.
    """

    parts_at: int | None
    share: float


def kinship(ours: Sequence[Step], reference: Sequence[Step]) -> Kinship:
    """Compare two greedy runs of one prompt under the near-tie rule.

    The difference is held to its bound at every place up to the first token that differs, not at
    that place alone: a wrong state shows there long before it changes a token.

    Raises:
        AssertionError: the rule does not hold; the message has the figures.
    """
    share = 0.0
    for place, (our, other) in enumerate(zip(ours, reference, strict=False)):
        difference, spread = _difference(our, other), _spread(other)
        assert difference <= SHARE_MAX * spread, (
            f"token {place}: logits differ by {difference:.3g}, more than {SHARE_MAX:g} of their "
            f"spread of {spread:.3g}"
        )
        share = max(share, difference / spread)
        if our.token != other.token:
            _check_gap(place, our, other, difference)
            return Kinship(place, share)
    assert len(ours) == len(reference), (
        f"one run ends after {len(ours)} tokens and the other after {len(reference)}, and no token "
        "before differs"
    )
    return Kinship(None, share)


def _check_gap(place: int, our: Step, other: Step, difference: float) -> None:
    for run in (our, other):
        for candidate in (our.token, other.token):
            assert candidate in run.top, (
                f"token {place}: {our.token!r} and {other.token!r} are no near tie: {candidate!r} "
                "is not even among the likeliest of both runs"
            )
        gap = abs(run.top[our.token] - run.top[other.token])
        assert gap <= 2 * difference, (
            f"token {place}: {our.token!r} and {other.token!r} are {gap:.3g} apart, more than "
            f"twice the runs' difference of {difference:.3g}"
        )


def _difference(our: Step, other: Step) -> float:
    """The largest difference at one place, over the tokens that both runs list."""
    listed = our.top.keys() & other.top.keys()
    assert listed, "the runs share none of their likeliest tokens"
    return max(abs(our.top[token] - other.top[token]) for token in listed)


def _spread(step: Step) -> float:
    return max(step.top.values()) - min(step.top.values())
