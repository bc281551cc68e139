"""Reading what stands between the marks of a tool call."""

import json

import pytest

from anchorline.adapters.text.tool_calls import CallFault, WrittenCall, read_call


@pytest.mark.parametrize(
    "arguments",
    [
        "{}",
        '{"a": 1}',
        '{"a":1,"b":[1, {"c": null}]}',
        '{"s": "\\u00e4 \\" }"}',
        '{"n": 1e5, "m": 1.0}',
        '{ "spaced" : true }',
    ],
)
def test_arguments_come_exactly_as_they_were_written(arguments: str) -> None:
    for text in (
        f'\n{{"name": "f", "arguments": {arguments}}}\n',
        f'{{"arguments":{arguments} , "name":"f", "more": [1]}}',
    ):
        assert read_call(text) == WrittenCall("f", arguments)


def test_a_call_without_arguments_has_none() -> None:
    assert read_call('{"name": "now"}') == WrittenCall("now", "{}")


def test_arguments_given_as_a_text_are_that_text() -> None:
    assert read_call('{"name": "f", "arguments": "{\\"a\\": 1}"}') == WrittenCall("f", '{"a": 1}')


def test_a_bare_line_end_in_a_string_is_escaped_for_clients() -> None:
    call = read_call('{"name": "f", "arguments": {"a": "one\ntwo"}}')

    assert isinstance(call, WrittenCall)
    assert json.loads(call.arguments) == {"a": "one\ntwo"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "weather in Rome",
        "[]",
        '"f"',
        '{"name": "f", "arguments": {"a": 1}',
        '{"name": "f", "arguments": {"a": 1}}}',
        '{"name": "f", "arguments": {"a": 1},}',
        '{"name": "f" "arguments": {}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": "[1]"}',
        '{"name": "f", "arguments": "no json"}',
        '{"name": "", "arguments": {}}',
        '{"name": 3, "arguments": {}}',
        '{3: "f"}',
        '{"arguments": {}}',
        '{"name": "f", "arguments": ' + "[" * 100_000,
        "<function=f>",
        "<function=f> words </function>",
        "<function=f><parameter=a>1</function>",
        "<function=f></function> words",
    ],
)
def test_what_is_no_call_is_malformed(text: str) -> None:
    assert read_call(text) is CallFault.MALFORMED


@pytest.mark.parametrize("inside", ["", "x\n"])
def test_an_end_inside_a_string_is_told_apart(inside: str) -> None:
    text = f'{{"name": "f", "arguments": {{"a": "{inside}'

    assert read_call(text) is CallFault.IN_STRING


def test_a_function_element_is_a_call() -> None:
    text = (
        "\n<function=weather>\n"
        "<parameter=city>\nRome\n</parameter>\n"
        "<parameter=note>\ntwo\n\nlines\n</parameter>\n"
        "</function>\n"
    )

    call = read_call(text)

    assert isinstance(call, WrittenCall)
    assert call.name == "weather"
    assert json.loads(call.arguments) == {"city": "Rome", "note": "two\n\nlines"}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("3", 3),
        ("1.5", 1.5),
        ("true", True),
        ("False", False),
        ("null", "null"),
        ('{"a": [1]}', {"a": [1]}),
        ('"quoted"', '"quoted"'),
        ("Rome", "Rome"),
        ("", ""),
        ("a < b", "a < b"),
    ],
)
def test_a_parameter_that_reads_as_json_is_that(written: str, value: object) -> None:
    call = read_call(f"<function=f>\n<parameter=x>\n{written}\n</parameter>\n</function>")

    assert isinstance(call, WrittenCall)
    assert json.loads(call.arguments) == {"x": value}


def test_a_function_element_without_parameters_has_no_arguments() -> None:
    assert read_call("<function=now>\n</function>") == WrittenCall("now", "{}")
