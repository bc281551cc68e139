"""Texts of clients and of models that are made to do harm: none costs more than its length."""

import json
import math
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.adapters.text import answer_parser
from anchorline.adapters.text.answer_parser import AnswerParser
from anchorline.adapters.text.json_strings import JsonStrings
from anchorline.adapters.text.tokenizer import TransformersTokenizer, load_tokenizer
from anchorline.adapters.text.tool_calls import CallFault, WrittenCall, read_call
from anchorline.application.admission import Admission, Sources
from anchorline.application.calls import ChatCall, CompletionCall, GenerationWish, SamplingWish
from anchorline.domain.conversation import Conversation, Message, Piece, PieceKind, ToolCall
from anchorline.domain.errors import RequestError
from anchorline.domain.sampling import Sampler, SamplingParams
from anchorline.domain.tokens import token_ids
from anchorline.ports.tokenizer import Rendered
from contract.tokenizer_contract import parsed
from support.tiny_tokenizer import CHATML, byte_level, saved

USER = Message("user", "Hello")
DEEP = 100_000
DIGITS = "9" * 5000
"""More than Python turns into an int."""

HOSTILE_VALUES = {
    "a number of thousands of digits": DIGITS,
    "nested too deep": "[" * DEEP,
    "nested too deep and closed": "[" * DEEP + "]" * DEEP,
    "objects nested too deep": '{"a":' * DEEP,
    "nested nearly too deep": "[" * 960 + "]" * 960,
    "a line end before what is nested": '"\n", "b": ' + "[" * DEEP,
    "a line end before a number": '"\n", "b": ' + DIGITS,
    "half a surrogate pair": '"\\ud800"',
    "not a number": "NaN",
    "infinite": "1e999",
}


def pieces_of(text: str, step: int = 4096) -> Sequence[Piece]:
    return parsed(AnswerParser(opens_reasoning=False, tools=True), text, step)


# --- what a model writes --------------------------------------------------------------------------


@pytest.mark.parametrize("value", HOSTILE_VALUES.values(), ids=HOSTILE_VALUES)
@pytest.mark.parametrize(
    "written",
    [
        '<tool_call>\n{"name": "f", "arguments": {"a": VALUE}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": VALUE}\n</tool_call>',
        '<tool_call>\n{"name": VALUE, "arguments": {}}\n</tool_call>',
        "<tool_call>\n<function=f>\n<parameter=a>\nVALUE\n</parameter>\n</function>\n</tool_call>",
    ],
    ids=["an argument", "the arguments", "the name", "a parameter"],
)
def test_whatever_stands_in_a_call_is_a_call_or_content_that_can_be_sent(
    written: str, value: str
) -> None:
    text = written.replace("VALUE", value)
    found = pieces_of(text)

    assert len(found) == 1
    if found[0].kind is PieceKind.CONTENT:
        assert found[0].text == text
    else:
        call = found[0].call
        assert call is not None
        assert (call.name + call.arguments).encode()


def test_a_value_that_can_be_read_and_not_written_again_is_no_call() -> None:
    faults = 0
    for depth in range(900, 1000):
        value = "[" * depth + "]" * depth
        element = f"<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>"
        call = read_call(element)
        assert call is CallFault.MALFORMED or isinstance(call, WrittenCall)
        faults += call is CallFault.MALFORMED

    assert faults < 100, "some of them can be written"


@pytest.mark.parametrize(
    "inside",
    [
        '{"a": "' + "</tool_call>" * 2000,
        '{"a": "' + '\\"</tool_call>' * 2000,
        "{" + ", ".join(f'"{at}": "</tool_call>"' for at in range(2000)),
        "<function=f>" + "<parameter=a>" * 2000,
        "<tool_call>" * 2000,
        "</tool_call><tool_call>" * 1000,
    ],
    ids=["marks", "escapes", "strings", "parameters", "openings", "empty calls"],
)
def test_a_call_is_read_twice_at_most_however_many_marks_it_holds(
    inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0

    def counted(text: str) -> WrittenCall | CallFault:
        nonlocal read
        read += len(text)
        return read_call(text)

    monkeypatch.setattr(answer_parser, "read_call", counted)
    text = f"<tool_call>{inside}"
    found = pieces_of(text, step=7)

    assert "".join(piece.text for piece in found) == text
    assert read <= 2 * len(text)


def test_a_mark_in_a_later_string_of_a_call_ends_nothing() -> None:
    arguments = {"a": "</tool_call>", "b": 'x"</tool_call>\\', "c": "</tool_call>"}
    written = json.dumps({"name": "f", "arguments": arguments})

    (found,) = pieces_of(f"<tool_call>\n{written}\n</tool_call>", step=3)

    assert found.call is not None
    assert json.loads(found.call.arguments) == arguments


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("", False),
        ('"', True),
        ('"a"', False),
        ('"\\"', True),
        ('"\\\\"', False),
        ('"\\\\\\"', True),
        ('\\"', True),
        ('{"a": "b', True),
    ],
)
def test_strings_are_told_apart_in_one_go_and_in_steps(text: str, *, inside: bool) -> None:
    stepped = JsonStrings()

    assert JsonStrings().inside(text, len(text)) is inside
    assert [stepped.inside(text, end) for end in range(len(text) + 1)][-1] is inside


# --- what a client sends --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TransformersTokenizer:
    directory = tmp_path_factory.mktemp("tokenizer")
    return load_tokenizer(saved(byte_level(), directory, template=CHATML))


def nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [10, 300, 500, 700, 900, 980])
def test_tools_are_rendered_or_refused_however_deep_they_are(
    tokenizer: TransformersTokenizer, depth: int
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": nested(depth)}}
    conversation = Conversation((USER,), tools=(tool,))

    assert rendered_or_refused(tokenizer, conversation) is (depth < 400)


@pytest.mark.parametrize(
    "arguments",
    [DIGITS, f"[{DIGITS}]", "[" * DEEP, "[" * 960 + "]" * 960, "{", "\x00", "NaN", '"\\ud800"'],
    ids=["digits", "digits in a list", "deep", "nearly too deep", "cut", "NUL", "NaN", "half"],
)
@pytest.mark.parametrize("template", [CHATML, CHATML.replace("is string", "is none")])
def test_arguments_sent_back_are_rendered_or_refused(
    tmp_path: Path, template: str, arguments: str
) -> None:
    tokenizer = load_tokenizer(saved(byte_level(), tmp_path, template=template))
    called = Message("assistant", "", tool_calls=(ToolCall("a", "f", arguments),))

    rendered_or_refused(tokenizer, Conversation((USER, called, USER)))


@pytest.mark.parametrize(
    "name",
    ["self", "__class__", "range", "bos_token", "raise_exception", "loop", "", "a b", "\x00"],
)
def test_variables_of_any_name_are_rendered_or_refused(
    tokenizer: TransformersTokenizer, name: str
) -> None:
    rendered_or_refused(tokenizer, Conversation((USER,), template_args={name: "x"}))


def test_a_users_text_is_no_template(tokenizer: TransformersTokenizer) -> None:
    text = "{{ 7 * 191 }}{% for x in range(9) %}{{ raise_exception('x') }}{% endfor %}"
    rendered = tokenizer.render(Conversation((Message("user", text),)))

    assert text in tokenizer.decode([int(index) for index in rendered.prompt.ids])


def rendered_or_refused(tokenizer: TransformersTokenizer, conversation: Conversation) -> bool:
    """Whether it is rendered; what is neither rendered nor refused raises."""
    try:
        tokenizer.render(conversation)
    except RequestError:
        return False
    return True


# --- what a template does -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ lipsum.__globals__['os'].popen('id').read() }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ messages.append(1) }}",
        "{{ range(99999999) | list }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_a_template_reaches_nothing_outside_itself(tmp_path: Path, template: str) -> None:
    tokenizer = load_tokenizer(saved(byte_level(), tmp_path, template=template))

    with pytest.raises(RequestError, match="chat template refuses"):
        tokenizer.render(Conversation((USER,)))


# --- amounts --------------------------------------------------------------------------------------


class NeverAsked(ToyTokenizer):
    """A tokenizer for calls that are refused before it is asked for anything."""

    def render(self, conversation: Conversation) -> Rendered:
        raise AssertionError("it was rendered")


def admission(tokenizer: ToyTokenizer) -> Admission:
    engine = CheckableEngine(window=128, vocabulary=300)
    sources = Sources(request_id=lambda: "r", seed=lambda: 0)
    return Admission(engine.profile, tokenizer, ManualClock(), sources, SamplingParams(), None)


@pytest.mark.parametrize(
    "messages",
    [
        (Message("user", ""),) * 129,
        (Message("user", "x" * 70_000),),
        (Message("user", "x" * 700),) * 100,
    ],
    ids=["many messages", "a long one", "many long ones"],
)
def test_a_conversation_that_cannot_fit_is_refused_before_it_is_rendered(
    messages: tuple[Message, ...],
) -> None:
    call = ChatCall(Conversation(messages), GenerationWish())
    with pytest.raises(RequestError) as refused:
        admission(NeverAsked()).chat(call)

    assert (refused.value.field, refused.value.code) == ("messages", "context_length_exceeded")


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = ToyTokenizer()
    monkeypatch.setattr(tokenizer, "encode", lambda _: pytest.fail("it was tokenized"))  # type: ignore[misc]
    with pytest.raises(RequestError) as refused:
        admission(tokenizer).completion(CompletionCall("x" * 70_000, GenerationWish()))

    assert (refused.value.field, refused.value.code) == ("prompt", "context_length_exceeded")


@pytest.mark.parametrize(
    "key",
    [DIGITS, "0" * 5000 + "1", "99999999999", "-1", "+1", "1_0", "\u0661"],
    ids=lambda key: key[:12],
)
def test_a_bias_on_no_token_is_refused_whatever_its_key(key: str) -> None:
    wish = GenerationWish(sampling=SamplingWish(logit_bias={key: 1.0}))
    with pytest.raises(RequestError) as refused:
        admission(ToyTokenizer()).completion(CompletionCall("x", wish))

    assert (refused.value.field or "").startswith("logit_bias.")
    assert len(refused.value.field or "") < 60


# --- extremes of sampling -------------------------------------------------------------------------

LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    "params",
    [
        *(
            SamplingParams(temperature=at)
            for at in (5e-324, 1e-320, 1e-300, 1e-30, 1e-6, 1e-5, 2.0)
        ),
        SamplingParams(temperature=1.0, top_p=0.0),
        SamplingParams(temperature=1.0, top_p=5e-324),
        SamplingParams(temperature=1.0, min_p=1.0),
        SamplingParams(temperature=1.0, top_k=10**30),
        SamplingParams(temperature=1.0, repetition_penalty=0.01, presence_penalty=-2.0),
        SamplingParams(temperature=1.0, repetition_penalty=10.0, frequency_penalty=2.0),
        SamplingParams(
            temperature=1.0, seed=(1 << 64) - 1, logit_bias=dict.fromkeys(range(50), -100.0)
        ),
        SamplingParams(
            temperature=0.0, logit_bias=dict.fromkeys(range(50), 100.0), top_logprobs=20
        ),
    ],
    ids=repr,
)
def test_a_token_is_drawn_under_any_parameters_that_are_admitted(params: SamplingParams) -> None:
    logits = np.linspace(-40, 40, 50, dtype=np.float32)
    sampler = Sampler(params, token_ids([1, 2, 3]), 50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an overflow is one
        drawn = [sampler.draw(logits, position) for position in range(20)]

    assert all(0 <= one.token < 50 for one in drawn)
    assert all(one.logprob is None or math.isfinite(one.logprob) for one in drawn)


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-12])
def test_a_temperature_next_to_nothing_takes_the_likeliest_token(temperature: float) -> None:
    logits = np.array([0.0, 1.0, 0.999, -LARGEST / 4], dtype=np.float32)

    assert (
        Sampler(SamplingParams(temperature=temperature), token_ids([0]), 4).draw(logits, 1).token
        == 1
    )
