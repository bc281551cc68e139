"""Which entry leaves memory first."""

import pytest

from anchorline.domain.entry_value import DAY_S
from anchorline.domain.ram_retention import (
    RamHolding,
    Retention,
    greedy_dual_credit,
    leaves_first,
)

NOW_S = 10 * DAY_S


def a_holding(
    *,
    tokens: int = 100,
    alone_bytes: int = 1000,
    hits: int = 0,
    unused_s: float = 0.0,
    credit: float = 0.0,
    safe: bool = True,
    given_up: bool = False,
    in_session: bool = False,
) -> RamHolding:
    used_s = NOW_S - unused_s
    return RamHolding(tokens, alone_bytes, hits, used_s, credit, safe, given_up, in_session)


def leaves(one: RamHolding, other: RamHolding, policy: Retention) -> bool:
    """Whether `one` leaves before `other`."""
    return leaves_first(one, policy, NOW_S) < leaves_first(other, policy, NOW_S)


@pytest.mark.parametrize("policy", list(Retention))
def test_what_would_be_lost_leaves_last_whatever_it_is_worth(policy: Retention) -> None:
    safe = a_holding(tokens=100_000, hits=100, credit=100.0)
    lost = a_holding(tokens=1, unused_s=9 * DAY_S, safe=False)

    assert leaves(safe, lost, policy)


@pytest.mark.parametrize("policy", list(Retention))
def test_what_the_medium_gave_up_leaves_after_what_it_has_and_before_what_it_never_judged(
    policy: Retention,
) -> None:
    stored = a_holding(tokens=100_000, hits=100, credit=100.0)
    given_up = a_holding(tokens=100, safe=False, given_up=True)
    lost = a_holding(tokens=1, unused_s=9 * DAY_S, safe=False)

    assert leaves(stored, given_up, policy)
    assert leaves(given_up, lost, policy)


@pytest.mark.parametrize("policy", list(Retention))
def test_what_an_open_session_names_leaves_after_what_nobody_does(policy: Retention) -> None:
    nobodys = a_holding(tokens=100_000, hits=100, credit=100.0)
    somebodys = a_holding(tokens=1, unused_s=9 * DAY_S, in_session=True)

    assert leaves(nobodys, somebodys, policy)
    assert leaves(somebodys, a_holding(safe=False), policy)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (a_holding(tokens=100), a_holding(tokens=101)),
        (a_holding(alone_bytes=1001), a_holding(alone_bytes=1000)),
        (a_holding(hits=0), a_holding(hits=1)),
        (a_holding(unused_s=1.0), a_holding(unused_s=0.0)),
        (a_holding(hits=1, unused_s=1.1 * DAY_S), a_holding()),  # twice, halved and a little
    ],
    ids=["tokens", "bytes", "hits", "unused", "a day halves it"],
)
def test_value_is_tokens_saved_per_byte_by_hits_halved_each_day(
    less: RamHolding, more: RamHolding
) -> None:
    assert leaves(less, more, Retention.VALUE)


def test_of_equal_value_the_one_that_was_used_longer_ago_leaves() -> None:
    older = a_holding(alone_bytes=0, tokens=0, unused_s=5.0)

    assert leaves(older, a_holding(alone_bytes=0, tokens=0), Retention.VALUE)


def test_an_entry_that_holds_nothing_alone_is_worth_the_most() -> None:
    assert leaves(a_holding(), a_holding(alone_bytes=0), Retention.VALUE)


def test_a_last_use_in_the_future_makes_no_value_larger() -> None:
    now = leaves_first(a_holding(), Retention.VALUE, NOW_S)
    ahead = leaves_first(a_holding(unused_s=-5 * DAY_S), Retention.VALUE, NOW_S)

    assert ahead[2] == now[2]


def test_least_recently_used_looks_at_nothing_else() -> None:
    older = a_holding(tokens=100_000, hits=100, credit=100.0, unused_s=1.0)

    assert leaves(older, a_holding(tokens=1), Retention.LRU)


def test_greedy_dual_counts_from_what_the_last_one_that_went_was_worth() -> None:
    once_dear = a_holding(credit=greedy_dual_credit(0.0, tokens=500, nbytes=100))
    cheap_now = a_holding(credit=greedy_dual_credit(5.0, tokens=100, nbytes=100))

    assert leaves(once_dear, cheap_now, Retention.COST_SIZE)
    assert greedy_dual_credit(0.0, tokens=7, nbytes=0) == 7
