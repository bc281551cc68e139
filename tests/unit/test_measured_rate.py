"""How fast a medium moves bytes."""

import pytest

from anchorline.domain.measured_rate import (
    BYTES_PER_S_PRIOR,
    OBJECT_S_PRIOR,
    SAMPLES,
    MeasuredRate,
)


def test_before_the_first_measurement_the_prior_holds() -> None:
    rate = MeasuredRate(bytes_per_s_prior=1000.0, object_s_prior=0.5)

    assert rate.seconds(nbytes=2000, objects=3) == 3.5
    assert MeasuredRate().seconds(10**9, 2) == 10**9 / BYTES_PER_S_PRIOR + 2 * OBJECT_S_PRIOR


def test_a_measurement_replaces_the_prior() -> None:
    rate = MeasuredRate(bytes_per_s_prior=1000.0, object_s_prior=0.5)

    rate.observe(nbytes=8000, objects=2, seconds=3.0)

    assert rate.bytes_per_s == 4000.0
    assert rate.seconds(nbytes=8000, objects=2) == 3.0
    assert rate.seconds(nbytes=40_000, objects=10) == 15.0


def test_one_slow_transfer_changes_nothing() -> None:
    rate = MeasuredRate(object_s_prior=0.0)
    for _ in range(4):
        rate.observe(nbytes=1000, objects=1, seconds=1.0)

    rate.observe(nbytes=1000, objects=1, seconds=600.0)

    assert rate.bytes_per_s == 1000.0


def test_a_drive_that_has_become_slow_is_believed_after_half_the_samples() -> None:
    rate = MeasuredRate(object_s_prior=0.0)
    for _ in range(100):
        rate.observe(nbytes=1000, objects=1, seconds=1.0)

    for _ in range(SAMPLES // 2 + 1):
        rate.observe(nbytes=1000, objects=1, seconds=2.0)

    assert rate.bytes_per_s == 500.0


def test_small_objects_say_nothing_about_the_rate() -> None:
    # 4 KiB in half a millisecond are no drive of 8 MB/s.
    rate = MeasuredRate(bytes_per_s_prior=1e9, object_s_prior=4e-4)

    rate.observe(nbytes=4096, objects=1, seconds=5e-4)

    assert rate.bytes_per_s == 1e9
    assert rate.seconds(nbytes=4096, objects=1) == pytest.approx(5e-4)


def test_a_fixed_time_that_is_set_too_high_gives_way_to_measurements() -> None:
    rate = MeasuredRate(bytes_per_s_prior=1e9, object_s_prior=1.0)

    rate.observe(nbytes=1000, objects=10, seconds=0.1)

    assert rate.object_s == pytest.approx(0.01, rel=1e-4)
    assert rate.seconds(nbytes=1000, objects=10) == pytest.approx(0.1)
    assert rate.seconds(nbytes=5000, objects=50) == pytest.approx(0.5)


def test_priors_that_are_both_wrong_give_way_to_measurements() -> None:
    # Bytes at 1e9/s and 1 ms an object, where 7e9/s and 0.1 ms are true.
    rate = MeasuredRate(bytes_per_s_prior=1e9, object_s_prior=1e-3)

    for _ in range(2 * SAMPLES):
        rate.observe(nbytes=10**6, objects=1, seconds=1e-4 + 10**6 / 7e9)

    assert rate.seconds(nbytes=10**7, objects=10) == pytest.approx(1e-3 + 10**7 / 7e9)


def test_bytes_that_are_in_no_object_cost_their_bytes_alone() -> None:
    rate = MeasuredRate(bytes_per_s_prior=1000.0, object_s_prior=0.5)

    rate.observe(nbytes=1000, objects=0, seconds=2.0)

    assert rate.seconds(nbytes=1000, objects=0) == 2.0
    assert rate.seconds(nbytes=1000, objects=1) == 2.5


@pytest.mark.parametrize(
    ("nbytes", "objects", "seconds"),
    [(0, 1, 1.0), (-1, 1, 1.0), (10, -1, 1.0), (10, 1, 0.0), (10, 1, -1.0)],
)
def test_empty_measurements_are_ignored(nbytes: int, objects: int, seconds: float) -> None:
    rate = MeasuredRate(bytes_per_s_prior=1000.0, object_s_prior=0.5)

    rate.observe(nbytes, objects, seconds)

    assert rate.seconds(nbytes=2000, objects=3) == 3.5


def test_nothing_to_move_takes_no_time() -> None:
    assert MeasuredRate().seconds(0, 0) == 0.0
    assert MeasuredRate().seconds(-5, -1) == 0.0


@pytest.mark.parametrize(("prior", "object_s"), [(0.0, 0.1), (-1.0, 0.1), (1.0, -0.1)])
def test_a_prior_that_is_no_speed_is_refused(prior: float, object_s: float) -> None:
    with pytest.raises(AssertionError):
        MeasuredRate(prior, object_s)
