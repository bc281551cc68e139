"""How much memory values take."""

import sys

from anchorline.application.held_bytes import ALLOCATION_STEP, held_bytes
from anchorline.application.request import FinishReason, Usage, Written
from anchorline.domain.conversation import Piece, PieceKind, ToolCall
from anchorline.domain.prompt import Prompt
from support.builders import random_ids


def own_bytes(value: object) -> int:
    """What Python says that a value takes itself, in whole steps."""
    return -(-sys.getsizeof(value) // ALLOCATION_STEP) * ALLOCATION_STEP


def test_a_text_takes_what_python_says_in_whole_steps() -> None:
    for text in ("", "plain", "ünïcödé", "語" * 100):
        assert 0 <= held_bytes(text) - sys.getsizeof(text) < ALLOCATION_STEP
        assert held_bytes(text) % ALLOCATION_STEP == 0


def test_what_hangs_on_a_value_counts() -> None:
    call = ToolCall("call_1", "weather", '{"city": "Rome"}')
    piece = Piece(PieceKind.TOOL_CALL, call=call)
    parts = (call, call.id, call.name, call.arguments)

    assert held_bytes(call) == sum(map(own_bytes, parts))
    whole = held_bytes(Written((piece,)))
    assert whole >= held_bytes(call) + sum(map(own_bytes, (piece, (piece,), Written(()))))


def test_what_is_there_twice_counts_once() -> None:
    ids = random_ids(5000)

    alone, apart = held_bytes(Prompt(ids, ids)), held_bytes(Prompt(ids, random_ids(5000)))

    assert 20_000 <= alone < 21_000
    assert 40_000 <= apart < 42_000


def test_a_part_of_an_array_counts_with_its_elements() -> None:
    assert 4000 <= held_bytes(random_ids(5000)[:1000]) < 4500


def test_keys_and_values_of_a_mapping_count() -> None:
    bias = {number: float(number) for number in range(1000, 1100)}

    assert held_bytes(bias) == own_bytes(bias) + 100 * (own_bytes(1000) + own_bytes(1.5))


def test_what_all_share_costs_nothing() -> None:
    for shared in (None, True, FinishReason.STOP):
        assert held_bytes(shared) == 0
    assert held_bytes(Usage(1, 2, 3)) == own_bytes(Usage(1, 2, 3)) + 3 * own_bytes(1)
