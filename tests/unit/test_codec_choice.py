"""Whether to compress, from measured rates (domain/codec_choice.py)."""

import pytest

from anchorline.domain.codec_choice import CodecPolicy, CodecRates, choose_codec

GB = 1e9
MEASURED = CodecRates(ratio=1.47, decode_bytes_per_s=2.15 * GB, checksum_bytes_per_s=14.9 * GB)
"""The figures of docs/adr/0005-codec.md's first machine."""


def compresses(drive_gb_s: float, cores: float = 1, rates: CodecRates = MEASURED) -> bool:
    return choose_codec(
        CodecPolicy.AUTO, drive_bytes_per_s=drive_gb_s * GB, free_cores=cores, rates=rates
    ).compress


def test_a_slow_drive_gains_the_whole_ratio() -> None:
    choice = choose_codec(
        CodecPolicy.AUTO, drive_bytes_per_s=1.3 * GB, free_cores=1, rates=MEASURED
    )

    assert choice.compress
    assert choice.raw_bytes_per_s == 1.3 * GB
    assert choice.coded_bytes_per_s == pytest.approx(1.3 * 1.47 * GB)


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_the_break_even_is_near_two_gb_per_second_and_core(cores: int) -> None:
    assert compresses(1.9 * cores, cores)
    assert not compresses(2.0 * cores, cores)


def test_the_measured_rates_decide_and_no_constant() -> None:
    faster = CodecRates(ratio=1.47, decode_bytes_per_s=4 * GB, checksum_bytes_per_s=14.9 * GB)
    denser = CodecRates(ratio=1.01, decode_bytes_per_s=40 * GB, checksum_bytes_per_s=14.9 * GB)

    assert compresses(3, rates=faster)
    assert compresses(3, rates=denser)
    assert not compresses(3)


def test_equal_rates_go_to_raw() -> None:
    useless = CodecRates(ratio=1.0, decode_bytes_per_s=1e15, checksum_bytes_per_s=1e15)

    assert not compresses(1, rates=useless)


def test_a_part_that_grows_is_never_compressed() -> None:
    growing = CodecRates(ratio=0.99, decode_bytes_per_s=1e15, checksum_bytes_per_s=1e15)

    assert not compresses(0.1, cores=64, rates=growing)


@pytest.mark.parametrize("drive_gb_s", [0.1, 100])
def test_a_policy_that_is_set_decides_alone_and_says_what_it_costs(drive_gb_s: float) -> None:
    for policy, compress in ((CodecPolicy.ON, True), (CodecPolicy.OFF, False)):
        choice = choose_codec(
            policy, drive_bytes_per_s=drive_gb_s * GB, free_cores=1, rates=MEASURED
        )

        assert choice.compress is compress
        assert f"set to {policy}" in choice.reason
        assert f"{drive_gb_s:.2f} GB/s" in choice.reason


def test_a_rate_that_was_not_measured_is_a_fault_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="not measured"):
        compresses(0)
