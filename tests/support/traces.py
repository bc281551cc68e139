"""Made-up sessions in the form of the traces that `anchorline replay` reads."""

from typing import Any

BLOCK = 8


def asked(at_s: float, prompt: int, answer: int, *blocks: int) -> dict[str, Any]:
    """A request with other fields beside those that are read, as files have them."""
    return {"t": at_s, "type": "n", "in": prompt, "out": answer, "hash_ids": list(blocks)}


def a_trace(*requests: dict[str, Any], block: int = BLOCK) -> dict[str, Any]:
    return {"id": "made up", "block_size": block, "requests": list(requests)}


def a_session(
    turns: int,
    *,
    first: int = 10,
    per_turn: int = 3,
    start_s: float = 0.0,
    every_s: float = 10.0,
) -> dict[str, Any]:
    """A session that only grows: each prompt goes on from the whole one before and its answer.

    Args:
        first: blocks of the first prompt.
        per_turn: blocks that each later one has more.
    """
    return a_trace(
        *(
            asked(
                start_s + every_s * number,
                BLOCK * (first + number * per_turn) + 3,
                BLOCK + 1,
                *range(1, first + number * per_turn + 1),
            )
            for number in range(turns)
        )
    )
