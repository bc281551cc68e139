"""Numbers of bytes as people write and read them."""

import re
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

_DECIMAL_UNITS: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES_PER_UNIT: Final = _DECIMAL_UNITS | {"kib": KIB, "mib": MIB, "gib": GIB, "tib": 1 << 40}
_BYTE_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_SHOWN_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def bytes_from(text: str) -> int:
    """The number of bytes that a text as `2.5GiB`, `512 MB` or `4096` stands for.

    Raises:
        ValueError: it is no such text.
    """
    match = _BYTE_SIZE.fullmatch(text.strip())
    unit = match and _BYTES_PER_UNIT.get(match[2].lower())
    if not match or not unit:
        raise ValueError(f"{text!r} is no number of bytes")
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def size(nbytes: float) -> str:
    """Bytes as people read them: `1.5 GiB`."""
    for unit in _SHOWN_UNITS[:-1]:
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} {_SHOWN_UNITS[-1]}"
