"""Whether parts are compressed before they are stored.

Reading a part back is what a request waits for. Drive and cores work at the same time, so the
slower of them decides: with the codec the drive moves fewer bytes and the cores have more to do.
"""

from dataclasses import dataclass
from enum import StrEnum


class CodecPolicy(StrEnum):
    """What was asked for."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class CodecRates:
    """What was measured of a codec on this machine, on one core.

    Attributes:
        ratio: bytes of a part over the bytes it is stored in.
        decode_bytes_per_s: of the part.
        checksum_bytes_per_s: of what is stored.
    """

    ratio: float
    decode_bytes_per_s: float
    checksum_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class CodecChoice:
    """Whether to compress, and what it was decided by.

    Attributes:
        compress: the choice.
        raw_bytes_per_s: how fast parts would come back uncompressed.
        coded_bytes_per_s: how fast compressed.
        reason: for a person.
    """

    compress: bool
    raw_bytes_per_s: float
    coded_bytes_per_s: float
    reason: str


def choose_codec(
    policy: CodecPolicy, *, drive_bytes_per_s: float, free_cores: float, rates: CodecRates
) -> CodecChoice:
    """Decide from measured rates; equal rates go to raw, which leaves the cores to others.

    Args:
        policy: decides alone unless it is AUTO.
        drive_bytes_per_s: read rate of the medium for bytes as they are stored.
        free_cores: cores that reading back may use, above 0.
        rates: of the codec.
    """
    for figure in (drive_bytes_per_s, free_cores, *_figures(rates)):
        assert figure > 0, f"{figure} was not measured"
    raw = min(drive_bytes_per_s, free_cores * rates.checksum_bytes_per_s)
    # Seconds of one core for a byte of the part: what is stored of it is checked, then decoded.
    core_s = 1 / rates.decode_bytes_per_s + 1 / (rates.ratio * rates.checksum_bytes_per_s)
    coded = min(drive_bytes_per_s * rates.ratio, free_cores / core_s)
    figures = (
        f"{raw / 1e9:.2f} GB/s raw and {coded / 1e9:.2f} GB/s compressed, with a drive of "
        f"{drive_bytes_per_s / 1e9:.2f} GB/s and {free_cores:g} free cores"
    )
    if policy is not CodecPolicy.AUTO:
        return CodecChoice(policy is CodecPolicy.ON, raw, coded, f"set to {policy}: {figures}")
    return CodecChoice(coded > raw, raw, coded, figures)


def _figures(rates: CodecRates) -> tuple[float, float, float]:
    return rates.ratio, rates.decode_bytes_per_s, rates.checksum_bytes_per_s
