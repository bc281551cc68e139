"""What stands between the marks of a tool call, in the formats that models write.

Hermes and Qwen write one JSON object, Qwen3-Coder and Qwen3.5 a function element:

    {"name": "weather", "arguments": {"city": "Rome"}}

    <function=weather>
    <parameter=city>
    Rome
    </parameter>
    </function>
"""

import enum
import json
import re
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_FUNCTION: Final = re.compile(r"<function=([^>\n]+)>(.*)</function>", re.DOTALL)
_PARAMETER: Final = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_SPELLED: Final = {"True": True, "False": False}
"""Qwen3-Coder's template writes truth values as Python does."""

UNREADABLE: Final = (ValueError, RecursionError)
"""What `json` raises over a text: no JSON, a number of thousands of digits, nested too deep."""

_Members: TypeAlias = dict[str, tuple[object, str]]
"""An object's values, each with its text."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as the model wrote it.

    Attributes:
        arguments: the JSON text of an object.
    """

    name: str
    arguments: str


class CallFault(enum.Enum):
    """Why a text is no call."""

    IN_STRING = "in_string"
    """It ends inside a JSON string: the mark that ended it may be a part of that string."""

    MALFORMED = "malformed"


def read_call(text: str) -> WrittenCall | CallFault:
    """The call that `text`, which stood between two marks, describes."""
    body = text.strip()
    if body.startswith("<function="):
        return _read_element(body)
    return _read_object(body)


def _read_object(body: str) -> WrittenCall | CallFault:
    written = True
    members = _decoded(body, json.JSONDecoder())
    if members is CallFault.MALFORMED:
        # Models do write line ends into strings as they are. Clients could not parse that text,
        # so theirs is a corrected one.
        written = False
        members = _decoded(body, json.JSONDecoder(strict=False))
    if isinstance(members, CallFault):
        return members
    name, _ = members.get("name", (None, ""))
    value, source = members.get("arguments", ({}, "{}"))
    if isinstance(value, str):  # the object's text as a string, as OpenAI's API has it
        source, written = value, True
        value = _json_object(value)
    if not isinstance(name, str) or not _is_text(name) or not isinstance(value, dict):
        return CallFault.MALFORMED
    arguments = source if written else _json_text(cast("object", value))
    return CallFault.MALFORMED if arguments is None else WrittenCall(name, arguments)


def _is_text(name: str) -> bool:
    """Whether it can be sent: not empty, and without half a surrogate pair."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _json_text(value: object) -> str | None:
    """The JSON of a value that was read; None where it is nested too deep to be written again."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return None
    return text if _is_text(text) else json.dumps(value)


def _json_object(text: str) -> object:
    """What `text` is as JSON; None if it is none."""
    try:
        return cast("object", json.loads(text))
    except UNREADABLE:
        return None


def _decoded(body: str, decoder: json.JSONDecoder) -> _Members | CallFault:
    try:
        return _members(body, decoder)
    except json.JSONDecodeError as error:
        unterminated = error.msg.startswith("Unterminated string")
        return CallFault.IN_STRING if unterminated else CallFault.MALFORMED
    except UNREADABLE:
        return CallFault.MALFORMED


def _members(text: str, decoder: json.JSONDecoder) -> _Members:
    """The members of the object that `text` is, each value with the text it was read from.

    Raises:
        json.JSONDecodeError: it is no object, or something follows it.
    """
    found: _Members = {}
    at = _after(text, 0, "{")
    while text[at : at + 1] != "}":
        if found:
            at = _after(text, at, ",")
        name, at = cast("tuple[object, int]", decoder.raw_decode(text, at))
        start = _after(text, _skip_space(text, at), ":")
        value, end = cast("tuple[object, int]", decoder.raw_decode(text, start))
        if not isinstance(name, str):
            raise json.JSONDecodeError("Expecting a name", text, at)
        found[name] = (value, text[start:end])
        at = _skip_space(text, end)
    if at + 1 != len(text):
        raise json.JSONDecodeError("Extra data", text, at + 1)
    return found


def _after(text: str, at: int, mark: str) -> int:
    """The place behind `mark`, which stands at `at`, and the space that follows it."""
    if text[at : at + 1] != mark:
        raise json.JSONDecodeError(f"Expecting {mark!r}", text, at)
    return _skip_space(text, at + 1)


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _read_element(body: str) -> WrittenCall | CallFault:
    function = _FUNCTION.fullmatch(body)
    if function is None:
        return CallFault.MALFORMED
    inner = function[2]
    arguments: dict[str, object] = {}
    at = 0
    while parameter := _PARAMETER.match(inner, at):
        arguments[parameter[1]] = _value(parameter[2])
        at = parameter.end()
    if inner[at:].strip():
        return CallFault.MALFORMED
    text = _json_text(arguments)
    return CallFault.MALFORMED if text is None else WrittenCall(function[1], text)


def _value(text: str) -> object:
    """A parameter's value. The element names no type: what reads as JSON is that, else a text."""
    if text in _SPELLED:
        return _SPELLED[text]
    value = _json_object(text)
    # A quoted text is a text with quotes, and null cannot be told from a text that is missing.
    return text if value is None or isinstance(value, str) else value
