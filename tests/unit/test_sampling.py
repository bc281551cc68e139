"""Choosing the next token from its logits."""

import math
from collections import Counter

import numpy as np
import pytest

from anchorline.domain.sampling import (
    Logits,
    Sampled,
    Sampler,
    SamplingParams,
    invalid_ids,
    uniform,
)
from anchorline.domain.tokens import TokenIds
from support.builders import ids, logits_of

NO_PROMPT = ids()


def drawn(
    params: SamplingParams, logits: Logits, *, position: int = 0, prompt: TokenIds = NO_PROMPT
) -> int:
    return Sampler(params, prompt, len(logits)).draw(logits, position).token


def tokens_drawn(params: SamplingParams, logits: Logits, positions: int = 400) -> Counter[int]:
    """How often each token comes over many positions of one seed."""
    sampler = Sampler(params, NO_PROMPT, len(logits))
    return Counter(sampler.draw(logits, position).token for position in range(positions))


def log_of(*probabilities: float) -> Logits:
    return np.log(np.array(probabilities)).astype(np.float32)


# --- greedy -------------------------------------------------------------------------------------


def test_by_default_the_likeliest_token_is_drawn() -> None:
    assert drawn(SamplingParams(), logits_of(0.1, 3.0, 2.9)) == 1


def test_of_equal_logits_the_lowest_id_is_drawn() -> None:
    assert drawn(SamplingParams(), logits_of(1.0, 3.0, 3.0, 3.0)) == 1


def test_greedy_does_not_look_at_seed_or_position() -> None:
    logits = logits_of(0.1, 3.0, 2.9)

    assert {
        drawn(SamplingParams(seed=seed), logits, position=position)
        for seed in range(5)
        for position in range(5)
    } == {1}


def test_drawing_does_not_modify_the_logits() -> None:
    params = SamplingParams(
        temperature=0.7,
        top_p=0.9,
        min_p=0.05,
        repetition_penalty=1.3,
        presence_penalty=0.5,
        logit_bias={2: 4.0},
        top_logprobs=2,
    )
    logits = logits_of(0.1, 3.0, 2.9)
    kept = logits.copy()

    drawn(params, logits, prompt=ids(1))

    assert np.array_equal(logits, kept)


# --- seeds --------------------------------------------------------------------------------------


def test_a_draw_depends_on_nothing_but_logits_seed_and_position() -> None:
    params = SamplingParams(temperature=1.0, seed=7)
    logits = np.zeros(50, dtype=np.float32)
    whole = [drawn(params, logits, position=at) for at in range(40)]

    # As after a resume: a new sampler that begins in the middle.
    rest = Sampler(params, ids(1, 2, 3), 50)

    assert [rest.draw(logits, at).token for at in range(20, 40)] == whole[20:]


def test_seeds_and_positions_give_other_draws() -> None:
    values = {uniform(seed, position) for seed in range(30) for position in range(30)}

    assert len(values) == 900


def test_uniform_numbers_are_the_same_on_every_machine() -> None:
    # Philox4x64-10 with key (seed, position), its first word's upper 53 bits.
    assert uniform(0, 0) == 0.011546754286331562
    assert uniform(7, 1000) == 0.20525025522134233


def test_uniform_numbers_lie_in_0_to_1_and_are_spread() -> None:
    values = np.array([uniform(3, position) for position in range(4000)])

    assert 0.0 <= values.min() < 0.01
    assert 0.99 < values.max() < 1.0
    counts, _ = np.histogram(values, bins=10, range=(0.0, 1.0))
    assert counts.min() > 320  # 400 expected, deviation 19
    assert counts.max() < 480


def test_any_64_bit_seed_will_do() -> None:
    for seed in (0, 1, -1, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1):
        assert 0.0 <= uniform(seed, 0) < 1.0
    assert uniform(-1, 0) == uniform((1 << 64) - 1, 0)


# --- temperature and truncation -----------------------------------------------------------------


def test_draws_follow_the_models_distribution() -> None:
    counts = tokens_drawn(
        SamplingParams(temperature=1.0, seed=1), log_of(0.5, 0.3, 0.15, 0.05), positions=4000
    )

    for token, probability in enumerate((0.5, 0.3, 0.15, 0.05)):
        deviation = math.sqrt(4000 * probability * (1 - probability))
        assert abs(counts[token] - 4000 * probability) < 4 * deviation


def test_temperature_divides_the_logits() -> None:
    logits = log_of(0.8, 0.2)
    share = 0.8**2 / (0.8**2 + 0.2**2)  # a temperature of one half squares the odds

    counts = tokens_drawn(SamplingParams(temperature=0.5, seed=2), logits, positions=2000)

    assert counts[0] / 2000 == pytest.approx(share, abs=0.025)


def test_a_temperature_near_0_draws_the_likeliest() -> None:
    counts = tokens_drawn(SamplingParams(temperature=1e-6), logits_of(1.0, 1.001, 0.0))

    assert set(counts) == {1}


def test_top_k_keeps_the_k_likeliest() -> None:
    logits = logits_of(0.0, 0.4, 0.1, 0.3, 0.2)

    assert set(tokens_drawn(SamplingParams(temperature=5.0, top_k=2), logits)) == {1, 3}
    assert set(tokens_drawn(SamplingParams(temperature=5.0, top_k=1), logits)) == {1}


@pytest.mark.parametrize("top_k", [0, 5, 6, 1000])
def test_top_k_of_0_or_of_the_whole_vocabulary_keeps_all(top_k: int) -> None:
    logits = logits_of(0.0, 0.4, 0.1, 0.3, 0.2)

    assert set(tokens_drawn(SamplingParams(temperature=5.0, top_k=top_k), logits)) == set(range(5))


def test_where_tokens_tie_at_the_cut_top_k_keeps_the_lowest_ids() -> None:
    logits = np.ones(40, dtype=np.float32)
    logits[20] = 2.0

    counts = tokens_drawn(SamplingParams(temperature=10.0, top_k=4), logits)

    assert set(counts) == {20, 0, 1, 2}


def test_top_p_keeps_the_smallest_set_that_holds_the_mass() -> None:
    logits = log_of(0.1, 0.5, 0.1, 0.3)

    def kept(top_p: float) -> set[int]:
        return set(tokens_drawn(SamplingParams(temperature=1.0, top_p=top_p), logits))

    assert kept(0.45) == {1}
    assert kept(0.55) == {1, 3}  # the token that crosses the mass stays
    assert kept(0.79) == {1, 3}
    assert kept(0.85) == {1, 3, 0}  # of equal ones the lowest id comes first
    assert kept(1.0) == {0, 1, 2, 3}


def test_top_p_of_0_keeps_the_likeliest() -> None:
    counts = tokens_drawn(SamplingParams(temperature=1.0, top_p=0.0), log_of(0.3, 0.4, 0.3))

    assert set(counts) == {1}


def test_min_p_drops_what_is_less_likely_than_a_fraction_of_the_likeliest() -> None:
    logits = log_of(0.5, 0.26, 0.24)

    assert set(tokens_drawn(SamplingParams(temperature=1.0, min_p=0.5), logits)) == {0, 1}
    assert set(tokens_drawn(SamplingParams(temperature=1.0, min_p=1.0), logits)) == {0}
    assert set(tokens_drawn(SamplingParams(temperature=1.0, min_p=0.0), logits)) == {0, 1, 2}


def test_min_p_keeps_what_is_just_likely_enough() -> None:
    equal = log_of(0.5, 0.5)

    assert set(tokens_drawn(SamplingParams(temperature=1.0, min_p=1.0), equal)) == {0, 1}


def test_truncations_combine() -> None:
    logits = log_of(0.4, 0.3, 0.2, 0.1)
    params = SamplingParams(temperature=1.0, top_k=3, top_p=0.7)

    # Of the three that top_k leaves, 0.4 and 0.3 hold 0.78 of the mass.
    assert set(tokens_drawn(params, logits)) == {0, 1}


def test_a_token_without_any_probability_is_never_drawn() -> None:
    logits = logits_of(-math.inf, 0.0, -math.inf, 0.0)

    assert set(tokens_drawn(SamplingParams(temperature=100.0), logits)) == {1, 3}


# --- penalties and biases -----------------------------------------------------------------------


def test_a_repetition_penalty_weighs_on_tokens_of_the_prompt() -> None:
    params = SamplingParams(repetition_penalty=2.0)

    assert drawn(params, logits_of(3.0, 2.0, 0.0), prompt=ids(0)) == 1
    # Negative logits are multiplied: a penalty never makes a token likelier.
    assert drawn(params, logits_of(-1.0, -1.5, -9.0), prompt=ids(0)) == 1


def test_a_repetition_penalty_weighs_on_tokens_of_the_output() -> None:
    sampler = Sampler(SamplingParams(repetition_penalty=2.0), NO_PROMPT, 3)
    logits = logits_of(3.0, 2.0, 1.9)

    assert [sampler.draw(logits, at).token for at in range(3)] == [0, 1, 2]


def test_a_presence_penalty_counts_once_and_only_the_output() -> None:
    sampler = Sampler(SamplingParams(presence_penalty=0.5), ids(0), 2)
    logits = logits_of(1.0, 0.6)

    # 1.0; then 0.5 against 0.6; then 0.5 against 0.1; and so it stays.
    assert [sampler.draw(logits, at).token for at in range(4)] == [0, 1, 0, 0]


def test_a_frequency_penalty_counts_every_occurrence() -> None:
    sampler = Sampler(SamplingParams(frequency_penalty=0.5), ids(0), 2)
    logits = logits_of(1.0, 0.1)

    # 1.0 against 0.1; 0.5 against 0.1; 0.0 against 0.1; 0.0 against -0.4.
    assert [sampler.draw(logits, at).token for at in range(4)] == [0, 0, 1, 0]


def test_a_negative_penalty_favours_what_was_written() -> None:
    sampler = Sampler(SamplingParams(presence_penalty=-1.0), NO_PROMPT, 2)

    assert sampler.draw(logits_of(0.0, 0.5), 0).token == 1
    assert sampler.draw(logits_of(1.0, 0.5), 1).token == 1


def test_a_bias_is_added_to_its_ids() -> None:
    logits = logits_of(3.0, 2.0, 1.0)

    assert drawn(SamplingParams(logit_bias={2: 2.5}), logits) == 2
    assert drawn(SamplingParams(logit_bias={0: -100.0, 1: -100.0}), logits) == 2


def test_a_bias_moves_the_distribution() -> None:
    params = SamplingParams(temperature=1.0, logit_bias={0: -100.0}, seed=3)

    assert set(tokens_drawn(params, logits_of(5.0, 0.0, 0.0))) == {1, 2}


def test_samplers_do_not_share_what_they_have_seen() -> None:
    params = SamplingParams(presence_penalty=2.0)
    logits = logits_of(1.0, 0.5)
    one, other = Sampler(params, NO_PROMPT, 2), Sampler(params, NO_PROMPT, 2)

    assert [one.draw(logits, 0).token, one.draw(logits, 1).token] == [0, 1]
    assert other.draw(logits, 0).token == 0


# --- reports ------------------------------------------------------------------------------------


def test_without_a_wish_nothing_is_reported() -> None:
    assert Sampler(SamplingParams(), NO_PROMPT, 2).draw(logits_of(1.0, 0.0), 0) == Sampled(0)


def test_a_report_lists_the_likeliest_tokens_in_order() -> None:
    params = SamplingParams(top_logprobs=2)

    sampled = Sampler(params, NO_PROMPT, 3).draw(log_of(0.2, 0.7, 0.1), 0)

    assert sampled.token == 1
    assert sampled.logprob == pytest.approx(math.log(0.7), abs=1e-6)
    assert [token for token, _ in sampled.top] == [1, 0]
    assert [math.exp(value) for _, value in sampled.top] == pytest.approx([0.7, 0.2], abs=1e-6)


def test_a_report_may_list_no_alternatives() -> None:
    sampled = Sampler(SamplingParams(top_logprobs=0), NO_PROMPT, 2).draw(log_of(0.4, 0.6), 0)

    assert sampled.logprob == pytest.approx(math.log(0.6), abs=1e-6)
    assert sampled.top == ()


def test_equal_alternatives_are_listed_by_id() -> None:
    params = SamplingParams(top_logprobs=3)

    sampled = Sampler(params, NO_PROMPT, 30).draw(np.zeros(30, dtype=np.float32), 0)

    assert [token for token, _ in sampled.top] == [0, 1, 2]


def test_a_report_is_the_models_own_whatever_parameters_did() -> None:
    params = SamplingParams(
        temperature=0.5, top_k=1, logit_bias={2: 100.0}, repetition_penalty=2.0, top_logprobs=1
    )

    sampled = Sampler(params, ids(1), 3).draw(log_of(0.2, 0.7, 0.1), 0)

    assert sampled.token == 2
    assert sampled.logprob == pytest.approx(math.log(0.1), abs=1e-6)
    assert [token for token, _ in sampled.top] == [1]


def test_log_probabilities_of_large_logits_are_finite() -> None:
    sampled = Sampler(SamplingParams(top_logprobs=2), NO_PROMPT, 2).draw(logits_of(3e38, -3e38), 0)

    assert sampled.logprob == pytest.approx(0.0)


# --- ids ----------------------------------------------------------------------------------------


def test_ids_outside_the_vocabulary_are_named() -> None:
    assert invalid_ids([0, 5, 9], 10) == []
    assert invalid_ids([-1, 5, 10, 99], 10) == [-1, 10, 99]
