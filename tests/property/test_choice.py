"""Choosing among offers, against brute force."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from anchorline.domain.entry import Source, Tier
from anchorline.domain.offers import COLD, Offer, choose, rank
from anchorline.domain.taint_line import Gate

# Whole seconds and few of each kind, so that ties are exact and happen often.
OFFERS = st.builds(
    Offer,
    line=st.integers(0, 7),
    gate=st.sampled_from([Gate.BITWISE, Gate.PRESERVED]),
    tier=st.sampled_from([Tier.SLOT, Tier.RAM, Tier.DISK]),
    source=st.just(Source.RESIDENT),
    move_seconds=st.integers(0, 4).map(float),
)
LISTS = st.lists(OFFERS, max_size=8)
LENGTHS = st.integers(1, 9)


def prefill_seconds(start: int, end: int) -> float:
    return float(end - start)


def ttft(offer: Offer, prompt_length: int) -> float:
    return offer.move_seconds + prefill_seconds(offer.line, prompt_length)


def better(one: Offer, other: Offer, prompt_length: int) -> bool:
    """Whether the rules of the policy put `one` strictly before `other`, told one by one."""
    if ttft(one, prompt_length) != ttft(other, prompt_length):
        return ttft(one, prompt_length) < ttft(other, prompt_length)
    if one.gate is not other.gate:
        gates = [Gate.COLD, Gate.BITWISE, Gate.PRESERVED]
        return gates.index(one.gate) < gates.index(other.gate)
    if one.tier is not other.tier:
        tiers = [Tier.SLOT, Tier.RAM, Tier.DISK, Tier.REMOTE, Tier.NONE]
        return tiers.index(one.tier) < tiers.index(other.tier)
    return one.line > other.line


@given(LISTS, LENGTHS)
@settings(max_examples=400)
def test_no_usable_offer_is_better_than_the_chosen_one(offers: list[Offer], length: int) -> None:
    chosen = choose(offers, length, prefill_seconds)

    usable = [offer for offer in offers if 1 <= offer.line <= length - 1]
    assert chosen in [*usable, COLD]
    assert not any(better(offer, chosen, length) for offer in [*usable, COLD])


@given(LISTS, LENGTHS)
@settings(max_examples=400)
def test_a_ranking_holds_what_is_worth_trying_in_order(offers: list[Offer], length: int) -> None:
    ranked = rank(offers, length, prefill_seconds)

    usable = [offer for offer in offers if 1 <= offer.line <= length - 1]
    assert ranked[-1] == COLD
    assert ranked.count(COLD) == 1
    assert sorted(ranked[:-1], key=repr) == sorted(
        (offer for offer in usable if better(offer, COLD, length)), key=repr
    )
    for earlier, later in itertools.pairwise(ranked):
        assert not better(later, earlier, length)


@given(LISTS, LENGTHS, st.data())
def test_the_choice_does_not_depend_on_the_order_of_the_offers(
    offers: list[Offer], length: int, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(offers))

    one = choose(offers, length, prefill_seconds)
    other = choose(shuffled, length, prefill_seconds)

    assert not better(one, other, length)
    assert not better(other, one, length)
