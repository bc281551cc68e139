"""Bytes as people read them; how they write them stands with the settings."""

import pytest

from anchorline.domain.byte_size import bytes_from, size


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 50, "1024.0 TiB"),
    ],
)
def test_bytes_are_shown_in_the_unit_that_suits_them(nbytes: int, shown: str) -> None:
    assert size(nbytes) == shown


def test_what_is_shown_can_be_read_back() -> None:
    assert bytes_from(size(3 << 29)) == 3 << 29
