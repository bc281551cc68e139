"""Offers, and the choice between them."""

import pytest

from anchorline.domain.entry import Tier
from anchorline.domain.offers import COLD, choose, rank, usable_line
from anchorline.domain.taint_line import Gate
from support.builders import an_offer


def at_100_per_s(start: int, end: int) -> float:
    return (end - start) / 100


def at_1_per_s(start: int, end: int) -> float:
    return float(end - start)  # whole seconds: sums of them tie exactly


def at_no_cost(_start: int, _end: int) -> float:
    return 0.0


def test_one_token_is_always_forwarded() -> None:
    assert usable_line(16) == 15


def test_without_offers_there_is_the_cold_start() -> None:
    assert rank([], 100, at_100_per_s) == [COLD]
    assert choose([], 100, at_100_per_s) == COLD


def test_the_highest_line_wins_where_moving_costs_nothing() -> None:
    offers = [an_offer(16), an_offer(64), an_offer(32)]

    assert [offer.line for offer in rank(offers, 100, at_100_per_s)] == [64, 32, 16, 0]


@pytest.mark.parametrize("line", [0, 100, 101])
def test_a_line_that_leaves_no_token_to_forward_is_not_usable(line: int) -> None:
    assert rank([an_offer(line)], 100, at_100_per_s) == [COLD]


def test_the_highest_usable_line_is_one_below_the_prompts_length() -> None:
    assert choose([an_offer(99)], 100, at_100_per_s).line == 99


def test_a_prompt_of_one_token_starts_cold() -> None:
    assert choose([an_offer(1)], 1, at_100_per_s) == COLD


def test_an_offer_must_save_more_prefill_than_its_move_costs() -> None:
    near = an_offer(32)
    slow = an_offer(64, tier=Tier.DISK, move_seconds=0.33)
    quick = an_offer(64, tier=Tier.DISK, move_seconds=0.31)

    assert choose([near, slow], 100, at_100_per_s) == near
    assert choose([near, quick], 100, at_100_per_s) == quick


def test_an_offer_that_costs_more_than_a_cold_start_is_not_tried_at_all() -> None:
    useless = an_offer(64, tier=Tier.DISK, move_seconds=0.65)

    assert rank([useless, an_offer(8)], 100, at_100_per_s) == [an_offer(8), COLD]


def test_ties_go_to_the_stricter_gate() -> None:
    preserved = an_offer(64, gate=Gate.PRESERVED, tier=Tier.SLOT)
    bitwise = an_offer(64, gate=Gate.BITWISE, tier=Tier.RAM)

    assert choose([preserved, bitwise], 100, at_100_per_s) == bitwise


def test_ties_of_one_gate_go_to_the_nearer_tier() -> None:
    tiers = [Tier.REMOTE, Tier.DISK, Tier.RAM, Tier.SLOT]
    offers = [an_offer(64, tier=tier) for tier in tiers]

    ranked = rank(offers, 100, at_100_per_s)

    assert [offer.tier for offer in ranked[:-1]] == tiers[::-1]


def test_ties_of_one_tier_go_to_the_higher_line() -> None:
    low, high = an_offer(16), an_offer(32, move_seconds=16.0)

    assert choose([low, high], 100, at_1_per_s) == high


def test_where_prefilling_costs_nothing_there_is_nothing_to_resume_for() -> None:
    assert choose([an_offer(64)], 100, at_no_cost) == COLD


def test_the_order_of_the_offers_does_not_matter() -> None:
    offers = [an_offer(16), an_offer(64, move_seconds=1.0), an_offer(48, gate=Gate.PRESERVED)]

    assert rank(offers, 100, at_100_per_s) == rank(offers[::-1], 100, at_100_per_s)
