"""Text that is safe in one line of a log, whatever a client put into it."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, cast

TEXT_CHARACTERS_MAX: Final = 200
"""Longer texts are cut: a line explains a decision, it does not carry a body."""

LIST_ITEMS_MAX: Final = 16

_BARE: Final = re.compile(r"[A-Za-z0-9_.,:;@/+-]+")
_NOT_IN_KEYS: Final = re.compile(r"[^A-Za-z0-9_.]")


def escaped(text: str) -> str:
    """The text with everything that could end a line or move a cursor spelled out.

    Controls, line separators, and the marks that turn the direction of writing: all that is not
    printable.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def key_values(record: Mapping[str, object]) -> str:
    """The record as `key=value` pairs, in its own order.

    A value that is not one plain word stands in double quotes, where backslashes and quotes are
    escaped: so no value can look like another pair.
    """
    return " ".join(f"{_key(name)}={_shown(value)}" for name, value in record.items())


def plain_values(record: Mapping[str, object]) -> dict[str, object]:
    """The record as values a JSON encoder takes: texts and lists cut, numbers finite."""
    return {_key(name): _plain(value) for name, value in record.items()}


def _key(name: str) -> str:
    return _NOT_IN_KEYS.sub("_", name)[:TEXT_CHARACTERS_MAX]


def _cut(text: str) -> str:
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    return f"{text[:TEXT_CHARACTERS_MAX]}...({len(text)} characters)"


def _shown(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return f"{value:.6g}"
        case None:
            return "none"
        case list() | tuple():
            items = _items(cast("object", value))
            return f"[{','.join(_shown(item) for item in items)}]"
        case _:
            return _quoted(_cut(str(value)))


def _plain(value: object) -> object:
    match value:
        case bool() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case list() | tuple():
            return [_plain(item) for item in _items(cast("object", value))]
        case _:
            return _cut(str(value))


def _items(value: object) -> Iterable[object]:
    items = list(cast("Iterable[object]", value))
    left = len(items) - LIST_ITEMS_MAX
    return items if left <= 0 else [*items[:LIST_ITEMS_MAX], f"and {left} more"]


def _quoted(text: str) -> str:
    if _BARE.fullmatch(text):
        return text
    inside = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped(inside)}"'
