"""How fast this process prefills."""

import pytest

from anchorline.domain.prefill_rate import SAMPLES, PrefillRate


def test_before_the_first_sample_the_prior_holds() -> None:
    rate = PrefillRate(tokens_per_s_prior=100.0)

    assert rate.tokens_per_s(5000) == 100.0
    assert rate.seconds(0, 1000) == 10.0


def test_a_sample_replaces_the_prior() -> None:
    rate = PrefillRate(tokens_per_s_prior=100.0)

    rate.observe(start=0, tokens=64, seconds=0.032)

    assert rate.tokens_per_s(0) == 2000.0


def test_one_slow_chunk_changes_nothing() -> None:
    rate = PrefillRate(tokens_per_s_prior=1.0)
    for _ in range(4):
        rate.observe(start=0, tokens=64, seconds=0.064)

    rate.observe(start=0, tokens=64, seconds=60.0)

    assert rate.tokens_per_s(0) == 1000.0


def test_old_samples_are_forgotten() -> None:
    rate = PrefillRate(tokens_per_s_prior=1.0)
    for _ in range(100):
        rate.observe(start=0, tokens=64, seconds=0.064)

    for _ in range(SAMPLES // 2 + 1):
        rate.observe(start=0, tokens=64, seconds=0.128)

    assert rate.tokens_per_s(0) == 500.0


def test_rows_high_in_the_context_have_a_rate_of_their_own() -> None:
    rate = PrefillRate(tokens_per_s_prior=1.0)
    rate.observe(start=0, tokens=1000, seconds=1.0)
    rate.observe(start=100_000, tokens=100, seconds=1.0)

    assert rate.tokens_per_s(90_000) == 100.0
    assert rate.tokens_per_s(3) == 1000.0


def test_the_nearest_position_with_samples_answers() -> None:
    rate = PrefillRate(tokens_per_s_prior=1.0)
    rate.observe(start=1024, tokens=1000, seconds=1.0)
    rate.observe(start=65_536, tokens=100, seconds=1.0)

    assert rate.tokens_per_s(2048) == 1000.0
    assert rate.tokens_per_s(40_000) == 100.0
    assert rate.tokens_per_s(0) == 1000.0
    assert rate.tokens_per_s(10**6) == 100.0


@pytest.mark.parametrize(("tokens", "seconds"), [(0, 1.0), (64, 0.0), (-1, 1.0)])
def test_empty_measurements_are_ignored(tokens: int, seconds: float) -> None:
    rate = PrefillRate(tokens_per_s_prior=100.0)

    rate.observe(start=0, tokens=tokens, seconds=seconds)

    assert rate.tokens_per_s(0) == 100.0


def test_nothing_to_prefill_takes_no_time() -> None:
    rate = PrefillRate(tokens_per_s_prior=100.0)

    assert rate.seconds(10, 10) == 0.0
    assert rate.seconds(12, 10) == 0.0
