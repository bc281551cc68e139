"""Traces of agents: what their tokens are made of, and what each request must read."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from anchorline.domain.tokens import common_prefix, starts_with
from anchorline.simulation.agent_trace import Turn, interleaved, trace_of, turns_of, unavoidable
from support.traces import BLOCK, a_session, a_trace, asked

PLENTY = 1 << 20


def turns(
    *requests: dict[str, Any], name: str = "one", window: int = PLENTY, below: int = 256
) -> list[Turn]:
    return turns_of(trace_of(name, a_trace(*requests)), window=window, below=below)


def test_equal_ids_are_equal_tokens_and_other_ids_others_from_their_block_on() -> None:
    first, second = turns(asked(0, 24, 1, 7, 8, 9), asked(1, 24, 1, 7, 8, 5))

    assert common_prefix(first.prompt, second.prompt) == 2 * BLOCK


def test_a_block_in_the_middle_is_not_the_same_block_elsewhere() -> None:
    first, second = turns(asked(0, 16, 1, 7, 8), asked(1, 16, 1, 8, 7))

    assert common_prefix(first.prompt, second.prompt) == 0


def test_the_same_ids_in_another_trace_are_other_tokens() -> None:
    one = turns(asked(0, 64, 1, *range(8)), name="one")[0]
    other = turns(asked(0, 64, 1, *range(8)), name="other")[0]

    assert common_prefix(one.prompt, other.prompt) < 4


def test_an_answer_is_what_the_next_prompt_goes_on_with() -> None:
    """The first prompt has three tokens of a block that only the second one names."""
    first, second = turns(asked(0, 19, 6, 1, 2), asked(1, 43, 2, 1, 2, 3, 4, 5))

    assert (len(first.prompt), len(first.answer)) == (19, 6)
    assert starts_with(second.prompt, np.concatenate((first.prompt, first.answer)))


def test_so_it_is_where_requests_between_them_do_not_go_on_from_it() -> None:
    first, aside, second = turns(
        asked(0, 19, 6, 1, 2), asked(1, 30, 6, 1, 9, 8), asked(2, 43, 2, 1, 2, 3, 4, 5)
    )

    assert starts_with(second.prompt, np.concatenate((first.prompt, first.answer)))
    assert common_prefix(aside.prompt, first.prompt) == BLOCK


def test_reasoning_that_the_client_dropped_is_not_written() -> None:
    first, second = turns(asked(0, 19, 100, 1, 2), asked(1, 30, 2, 1, 2, 3))

    assert len(first.answer) == 11
    assert starts_with(second.prompt, first.forwarded)


def test_who_repeats_a_prompt_repeats_all_of_it() -> None:
    first, again, second = turns(
        asked(0, 19, 6, 1, 2), asked(1, 19, 3, 1, 2), asked(2, 43, 2, 1, 2, 3, 4, 5)
    )

    assert np.array_equal(first.prompt, again.prompt)
    assert starts_with(first.answer, again.answer)
    assert starts_with(second.prompt, first.forwarded)


def test_an_answer_that_nobody_goes_on_from_is_nobody_elses() -> None:
    first, second = turns(asked(0, 19, 16, 1, 2), asked(1, 40, 2, 1, 9, 3, 4, 5))
    alone = turns(asked(0, 19, 16, 1, 2))[0]

    assert len(first.answer) == 16
    assert common_prefix(first.prompt, second.prompt) == BLOCK
    assert len(set(alone.answer.tolist())) > 8  # made up, and not all the same


def test_what_no_block_names_of_two_prompts_is_not_the_same() -> None:
    longer, shorter = turns(asked(0, 19, 16, 1, 2), asked(1, 18, 16, 1, 2))

    assert common_prefix(longer.prompt, shorter.prompt) == 2 * BLOCK


def test_an_answer_has_a_token_however_short_it_is_told_to_be() -> None:
    (turn,) = turns(asked(0, 16, 0, 1, 2))

    assert len(turn.answer) == 1


@pytest.mark.parametrize("window", [2, 7, 50, 64, 101])
def test_a_session_that_is_too_long_is_shortened_alike(window: int) -> None:
    session = turns_of(trace_of("one", a_session(8)), window=window, below=256)

    ends = [len(turn.prompt) + len(turn.answer) for turn in session]
    assert max(ends) <= window
    assert all(len(turn.prompt) and len(turn.answer) for turn in session)
    for earlier, later in pairwise(session):
        assert len(earlier.prompt) <= len(later.prompt)
        assert starts_with(later.prompt, earlier.prompt)


def test_what_is_shortened_goes_on_from_answers_as_before() -> None:
    session = turns_of(trace_of("one", a_session(8)), window=101, below=256)

    for earlier, later in pairwise(session):
        assert starts_with(later.prompt, earlier.forwarded)


def test_a_session_that_fits_is_not_stretched() -> None:
    (turn,) = turns(asked(0, 19, 6, 1, 2), window=10_000)

    assert (len(turn.prompt), len(turn.answer)) == (19, 6)


def test_tokens_lie_below_what_was_said() -> None:
    (turn,) = turns(asked(0, 800, 6, *range(100)), below=5)

    assert set(turn.prompt.tolist()) == {0, 1, 2, 3, 4}


def test_only_what_no_turn_has_read_is_unavoidable() -> None:
    session = turns(
        asked(0, 19, 6, 1, 2),
        asked(1, 43, 2, 1, 2, 3, 4, 5),
        asked(2, 43, 2, 1, 2, 3, 4, 5),
        asked(3, 24, 2, 1, 2, 9),
    )

    # The answer's last token was drawn and never read. A repeated prompt reads one for its logits.
    assert unavoidable(session) == [19, 43 - 19 - 5, 1, BLOCK]


def test_what_another_session_has_read_is_avoidable() -> None:
    session = turns(asked(0, 32, 1, 1, 2, 3, 4))

    assert unavoidable([*session, *session]) == [32, 1]


def test_sessions_are_interleaved_by_their_times() -> None:
    one = turns(asked(0, 8, 1, 1), asked(20, 9, 1, 1), name="one")
    other = turns(asked(5, 8, 1, 1), asked(21, 9, 1, 1), name="other")

    found = [(turn.session, turn.number) for turn in interleaved([one, other])]

    assert found == [("one", 0), ("other", 0), ("one", 1), ("other", 1)]


def test_requests_stand_in_the_order_of_their_times() -> None:
    late, early = asked(9, 8, 1, 1), asked(2, 16, 1, 1, 2)

    trace = trace_of("one", a_trace(late, early))

    assert [request.at_s for request in trace.requests] == [2, 9]


def test_a_beginning_of_a_trace_is_its_first_requests() -> None:
    trace = trace_of("one", a_session(5)).first(2)

    assert [request.prompt for request in trace.requests] == [83, 107]


def test_an_id_of_the_block_that_is_not_whole_is_not_needed() -> None:
    with_it, without = turns(asked(0, 19, 1, 1, 2, 3)), turns(asked(0, 19, 1, 1, 2))

    assert np.array_equal(with_it[0].prompt, without[0].prompt)


WHOLE = asked(1.0, 19, 6, 1, 2)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([], "the trace is no JSON object"),
        ({}, "the trace has no number of tokens `block_size`"),
        ({"block_size": 0}, "the trace has no number of tokens `block_size`"),
        ({"block_size": True}, "the trace has no number of tokens `block_size`"),
        ({"block_size": 8}, "the trace has no list of requests"),
        (a_trace(), "the trace has no list of requests"),
        (a_trace(WHOLE, 3), "request 1 is no JSON object"),  # type: ignore[arg-type]
        (a_trace({**WHOLE, "t": None}), "request 0 has no time `t`"),
        (a_trace({**WHOLE, "t": -1}), "request 0 has no time `t`"),
        (a_trace({**WHOLE, "t": float("nan")}), "request 0 has no time `t`"),
        (a_trace({**WHOLE, "in": "19"}), "request 0 has no number of tokens `in`"),
        (a_trace({**WHOLE, "in": 0}), "request 0 has no number of tokens `in`"),
        (a_trace({**WHOLE, "out": -1}), "request 0 has no number of tokens `out`"),
        (a_trace({**WHOLE, "hash_ids": None}), "request 0 has no list of ids `hash_ids`"),
        (a_trace({**WHOLE, "hash_ids": [1, "2"]}), "request 0 has no list of ids `hash_ids`"),
        (a_trace({**WHOLE, "hash_ids": [1, -2]}), "request 0 has no list of ids `hash_ids`"),
        (
            a_trace(WHOLE, {**WHOLE, "hash_ids": [1]}),
            "request 1 names 1 blocks, and 19 tokens have 2 whole ones",
        ),
    ],
)
def test_what_is_no_trace_is_refused_with_the_place(values: object, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{told}$"):
        trace_of("one", values)
