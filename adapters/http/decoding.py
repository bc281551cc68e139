"""From bytes to structs, with errors that name the field."""

import re
from typing import Final, TypeVar

import msgspec

from ...domain.errors import RequestError

_T = TypeVar("_T")

_AT: Final = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING: Final = re.compile(r"^Object missing required field `(?P<name>[^`]*)`$")
_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""How gzip and zstd begin. Nothing is decompressed: a small body could become a large one."""
_INDEX: Final = re.compile(r"\[(\d+)\]")


def decode(body: bytes, kind: type[_T]) -> _T:
    """A body as a struct; fields that the struct does not know are ignored.

    Raises:
        RequestError: it is not JSON, or a field is missing or of a wrong type.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        if body.startswith(_COMPRESSED):
            raise RequestError(
                "the body is compressed, and this server takes plain JSON", code="invalid_json"
            ) from error
        raise RequestError(f"the body is not JSON: {error}", code="invalid_json") from error


def _named(text: str) -> RequestError:
    """The error for a message of msgspec's as ``Expected `str`, got `int` - at `$.a[0].b```."""
    match = _AT.match(text)
    assert match is not None
    what, field = match["what"], _dotted(match["path"] or "")
    missing = _MISSING.match(what)
    if missing:
        name = missing["name"]
        return RequestError(
            "this field is required",
            field=f"{field}.{name}" if field else name,
            code="missing_required_parameter",
        )
    plain = what[:1].lower() + what[1:].replace("`", "")
    return RequestError(plain, field=field or None, code="invalid_type")


def _dotted(path: str) -> str:
    """`.messages[0].content` as `messages.0.content`.

    msgspec writes the key of a mapping as `[...]`; it is left out.
    """
    return _INDEX.sub(r".\1", path).replace("[...]", "").lstrip(".")
