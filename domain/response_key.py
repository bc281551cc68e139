"""What decides an answer: requests of equal keys are answered with the same events.

True of greedy requests only. The others draw, and two draws of one request may differ: a seed that
the caller did not give is a new one each time.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from .namespace import Namespace
from .sampling import GREEDY_BELOW, SamplingParams
from .tokens import TokenIds


@dataclass(frozen=True, slots=True, eq=False)
class ResponseKey:
    """Everything an answer depends on.

    Its hash is a hint: keys are equal only if all of this is, compared element by element.

    Attributes:
        ids: what the model reads; shape (tokens,).
        key_ids: what caches compare; same shape. They tell media apart, which `ids` cannot.
        sampling: in the form of `greedy_form`.
        others: whatever else decides the answer, always in the same order.
    """

    ids: TokenIds
    key_ids: TokenIds
    namespace: Namespace
    sampling: SamplingParams
    others: tuple[object, ...]
    hint: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Hash the longest part once: the key is looked up more than once."""
        object.__setattr__(self, "hint", hash(self.key_ids.tobytes()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResponseKey):
            return NotImplemented
        return (
            self.namespace == other.namespace
            and self.sampling == other.sampling
            and self.others == other.others
            and np.array_equal(self.ids, other.ids)
            and np.array_equal(self.key_ids, other.key_ids)
        )

    def __hash__(self) -> int:
        return self.hint


def greedy_form(params: SamplingParams) -> SamplingParams | None:
    """The parameters without those that a greedy choice does not look at; None if it is drawn.

    The likeliest token is the likeliest at any temperature, and is never cut off by `top_k`,
    `top_p` or `min_p`. Any other parameter is kept, whatever is added one day.
    """
    # Written so that a temperature that is not a number is drawn.
    if not params.temperature < GREEDY_BELOW:
        return None
    return replace(params, temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, seed=0)
