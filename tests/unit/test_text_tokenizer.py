"""The tokenizer adapter with templates of several habits."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from anchorline.adapters.text.tokenizer import TransformersTokenizer, load_tokenizer
from anchorline.domain.conversation import Conversation, Message, PieceKind, ToolCall
from anchorline.domain.errors import ModelNotFound, ModelRefused, RequestError
from anchorline.domain.prompt import PromptParts
from contract.tokenizer_contract import (
    ANSWER,
    FIRST,
    SECOND,
    SYSTEM,
    TALK,
    TOOL,
    calls_of,
    parsed,
    text_of,
)
from support.tiny_gguf import write_tiny_gguf
from support.tiny_tokenizer import (
    CHATML,
    DEFAULT_SYSTEM,
    FORGETFUL,
    STRICT,
    byte_level,
    saved,
    sentencepiece_like,
)

BARE = (FIRST, ANSWER, SECOND)


@cache
def vocabulary(*, bos: bool) -> Tokenizer:
    return byte_level(bos=bos)


def with_template(template: str | None, *, bos: str | None = None) -> TransformersTokenizer:
    with tempfile.TemporaryDirectory() as directory:
        backend = vocabulary(bos=bos is not None)
        return load_tokenizer(saved(backend, Path(directory), template=template, bos=bos))


def halves(tokenizer: TransformersTokenizer, conversation: Conversation) -> tuple[str, str]:
    """The prompt's text below and from the line of the last user message on."""
    prompt = tokenizer.render(conversation).prompt
    ids = prompt.ids.tolist()
    return tokenizer.decode(ids[: prompt.last_user]), tokenizer.decode(ids[prompt.last_user :])


# Ids


def test_ids_are_those_of_transformers_own_call(tmp_path: Path) -> None:
    saved(byte_level(bos=True), tmp_path, bos="<|endoftext|>")
    messages = [{"role": "user", "content": FIRST.content}]

    tokenizer: Any = AutoTokenizer
    own = tokenizer.from_pretrained(tmp_path).apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    ours = load_tokenizer(tmp_path).render(Conversation((FIRST,))).prompt.ids

    assert ours.tolist() == own


def test_a_plain_text_gets_the_first_token_once() -> None:
    tokenizer = with_template(CHATML, bos="<|endoftext|>")
    first = tokenizer.encode("").tolist()

    assert len(first) == 1
    assert tokenizer.encode("Anna").tolist()[:1] == first
    assert np.array_equal(tokenizer.encode("<|endoftext|>Anna"), tokenizer.encode("Anna"))


def test_marks_in_a_plain_text_become_their_tokens() -> None:
    tokenizer = with_template(CHATML)

    ids = tokenizer.encode("<|im_start|>user\nHello<|im_end|>")

    assert ids[-1] in tokenizer.end_tokens


def test_half_a_surrogate_pair_is_the_callers_fault() -> None:
    tokenizer = with_template(CHATML)

    with pytest.raises(RequestError, match="surrogate") as caught:
        tokenizer.encode("broken \ud83e")
    with pytest.raises(RequestError, match="surrogate"):
        tokenizer.render(Conversation((Message("user", "broken \ud83e"),)))

    assert caught.value.field == "prompt"


# Lines and parts


@pytest.mark.parametrize(
    "messages",
    [
        BARE,
        (SYSTEM, *BARE),
        (SYSTEM, FIRST, ANSWER, FIRST),
        (FIRST, Message("assistant", "?", reasoning="!"), Message("user", "")),
        (FIRST, ANSWER, Message("user", "  ? spaces")),
    ],
)
def test_a_template_that_forgets_reasoning_shows_its_last_user_message(
    messages: tuple[Message, ...],
) -> None:
    tokenizer = with_template(FORGETFUL)

    below, above = halves(tokenizer, Conversation(messages))

    assert below.endswith("<|im_end|>\n")
    assert above.startswith(f"<|im_start|>user\n{messages[-1].content}<|im_end|>")


def test_a_default_system_prompt_counts_as_system() -> None:
    tokenizer = with_template(DEFAULT_SYSTEM)

    alone = tokenizer.render(Conversation((FIRST,))).prompt
    below, above = halves(tokenizer, Conversation((FIRST,)))

    assert alone.parts.system == alone.last_user > 0
    assert below.endswith("assistant.<|im_end|>\n")
    assert above.startswith("<|im_start|>user\n")


def test_a_strict_template_renders_and_falls_back_where_it_refuses() -> None:
    tokenizer = with_template(STRICT, bos="<|endoftext|>")

    prompt = tokenizer.render(Conversation(BARE)).prompt
    below, above = halves(tokenizer, Conversation(BARE))

    assert SECOND.content in above
    assert ANSWER.content in below
    assert prompt.parts.system + prompt.parts.history == len(prompt)


@pytest.mark.parametrize("asked", [FIRST, SYSTEM])
def test_parts_that_cannot_be_probed_count_as_history(asked: Message) -> None:
    template = """
    {%- if messages[0].content not in known or not add_generation_prompt or not tools -%}
      {{- raise_exception('nothing but this') -}}
    {%- endif -%}
    {{- messages[0].content -}}"""
    tokenizer = with_template(template)
    known = (FIRST.content, SYSTEM.content)
    talk = Conversation((asked,), (TOOL,), template_args={"known": known})

    prompt = tokenizer.render(talk).prompt

    assert prompt.last_user == 0
    assert prompt.parts.tools == 0
    assert prompt.parts.system + prompt.parts.history == len(prompt)


def test_a_system_prompt_alone_is_all_system_but_the_start_of_the_answer() -> None:
    tokenizer = with_template(CHATML)

    prompt = tokenizer.render(Conversation((SYSTEM,))).prompt

    answer = tokenizer.encode("<|im_start|>assistant\n<think>\n")
    assert prompt.parts == PromptParts(len(prompt) - len(answer), 0, len(answer))


def test_tools_that_a_template_does_not_show_cost_nothing() -> None:
    render = with_template(FORGETFUL).render

    assert render(Conversation((FIRST,), (TOOL,))).prompt.parts.tools == 0


# What templates are given


def test_a_developer_is_a_system_to_a_template_that_knows_none() -> None:
    tokenizer = with_template(FORGETFUL)

    ids = tokenizer.render(Conversation((Message("developer", "Be kind."), FIRST))).prompt.ids

    assert tokenizer.decode(ids.tolist()).startswith("<|im_start|>system\nBe kind.")


@pytest.mark.parametrize(
    ("template", "written", "rendered"),
    [
        (CHATML, '{"a":1}', '{"a":1}'),
        (FORGETFUL, '{"a":1}', '{"a": 1}'),
        (FORGETFUL, "", "{}"),
        (FORGETFUL, "no json", '"no json"'),
    ],
)
def test_arguments_are_texts_to_templates_that_write_texts_and_else_objects(
    template: str, written: str, rendered: str
) -> None:
    tokenizer = with_template(template)
    answer = Message("assistant", "", tool_calls=(ToolCall("x", "f", written),))

    ids = tokenizer.render(Conversation((FIRST, answer))).prompt.ids

    assert f'{{"name": "f", "arguments": {rendered}}}' in tokenizer.decode(ids.tolist())


@pytest.mark.parametrize(
    ("thinking", "expected"), [(None, "unset"), (True, "True True"), (False, "False False")]
)
def test_thinking_reaches_the_template_under_both_its_names(
    thinking: bool | None, expected: str
) -> None:
    template = "{{ enable_thinking ~ ' ' ~ thinking if thinking is defined else 'unset' }}"
    tokenizer = with_template(template)

    ids = tokenizer.render(Conversation((FIRST,), thinking=thinking)).prompt.ids

    assert tokenizer.decode(ids.tolist()) == expected


def test_template_arguments_reach_the_template() -> None:
    tokenizer = with_template("{{ style }} {{ messages[0].name }} {{ messages[0].tool_call_id }}")
    message = Message("user", "", name="anna", tool_call_id="x")

    ids = tokenizer.render(Conversation((message,), template_args={"style": "brief"})).prompt.ids

    assert tokenizer.decode(ids.tolist()) == "brief anna x"


@pytest.mark.parametrize("name", ["chat_template", "tokenize", "tools", "add_generation_prompt"])
def test_template_arguments_cannot_replace_what_is_no_variable(name: str) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        with_template(CHATML).render(Conversation((FIRST,), template_args={name: "x"}))

    assert caught.value.field == "chat_template_kwargs"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('Roles must alternate') }}", "Roles must alternate"),
        ("{{ messages[0].content + 1 }}", "can only concatenate"),
        ("{{ messages[7].content.x }}", "no element 7"),
        ("{{ 1 // 0 }}", "zero"),
    ],
)
def test_whatever_a_template_raises_is_the_callers_fault(template: str, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as caught:
        with_template(template).render(TALK)

    assert caught.value.field == "messages"


def test_without_a_template_there_is_no_chat_but_completion() -> None:
    tokenizer = with_template(None)

    with pytest.raises(RequestError, match="/v1/completions"):
        tokenizer.render(TALK)
    assert len(tokenizer.encode("Anna")) > 0


# Reasoning


def test_a_model_that_opens_its_block_itself_is_read_and_rendered_again() -> None:
    tokenizer = with_template(FORGETFUL)
    asked = tokenizer.render(Conversation((FIRST,)))
    text = '<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n'
    text += "</tool_call>"

    parser = tokenizer.parser(opens_reasoning=asked.opens_reasoning, tools=True)
    pieces = parsed(parser, text, 1)
    copy = Message(
        "assistant",
        text_of(pieces, PieceKind.CONTENT),
        reasoning=text_of(pieces, PieceKind.REASONING),
        tool_calls=calls_of(pieces),
    )
    again = tokenizer.render(Conversation((FIRST, copy, Message("tool", "sunny"))))

    before = tokenizer.decode(asked.prompt.ids.tolist())
    assert not asked.opens_reasoning
    assert tokenizer.decode(again.prompt.ids.tolist()).startswith(before + text)


@pytest.mark.parametrize(
    ("start", "opens"),
    [
        ("<think>", True),
        ("<think>\nOkay, ", True),
        ("<think>\n\n</think>\n\n", False),
        ("", False),
    ],
)
def test_the_start_of_the_answer_tells_whether_a_block_is_open(start: str, opens: bool) -> None:
    text = "{{ messages[0].content }}{% if add_generation_prompt %}{{ start }}{% endif %}"
    tokenizer = with_template(text)
    talk = Conversation((Message("user", "<think> is a mark"),), template_args={"start": start})

    assert tokenizer.render(talk).opens_reasoning is opens


# Facts and ends


def test_facts_change_with_the_vocabulary_and_with_the_template() -> None:
    one = with_template(CHATML).facts
    other_template = with_template(FORGETFUL).facts
    other_vocabulary = with_template(CHATML, bos="<|endoftext|>").facts

    assert one["tokenizer"] == other_template["tokenizer"] != other_vocabulary["tokenizer"]
    assert one["chat_template"] == other_vocabulary["chat_template"]
    assert one["chat_template"] != other_template["chat_template"]


def test_ends_come_from_the_files_and_from_the_template(tmp_path: Path) -> None:
    backend = byte_level()
    saved(backend, tmp_path, eos="<|endoftext|>", generation_ends=(7, 9))

    ends = load_tokenizer(tmp_path).end_tokens

    named = {backend.token_to_id("<|endoftext|>"), backend.token_to_id("<|im_end|>")}
    assert ends == {7, 9} | named


def test_a_sentencepiece_like_vocabulary_works(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ '[' + m.role + '] ' + m.content }}</s>{% endfor %}"
    saved(sentencepiece_like(), tmp_path, template=template, eos="</s>", bos="<s>")
    tokenizer = load_tokenizer(tmp_path)

    prompt = tokenizer.render(replace(TALK, messages=BARE)).prompt

    assert tokenizer.decode(prompt.ids.tolist()).startswith("[user] Where does")
    assert 0 < prompt.last_user < len(prompt)
    assert tokenizer.decode(tokenizer.encode("Anna lives").tolist()).endswith("Anna lives")


# Loading


def test_a_place_without_a_tokenizer_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="tokenizer"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_that_is_not_a_fast_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')

    with pytest.raises(ModelRefused, match="no fast tokenizer"):
        load_tokenizer(tmp_path)


def test_a_gguf_file_brings_its_own_tokenizer_and_template(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    tokenizer = load_tokenizer(tmp_path / "tiny.gguf")

    ids = tokenizer.render(Conversation((FIRST,))).prompt.ids.tolist()

    assert tokenizer.decode(ids).startswith(f"<|im_start|>user\n{FIRST.content}<|im_end|>")
    assert tokenizer.end_tokens == {2}


def test_a_directory_with_several_templates_takes_the_one_for_tools(tmp_path: Path) -> None:
    saved(byte_level(), tmp_path, template="plain")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("with tools")
    tokenizer = load_tokenizer(tmp_path)

    plain = tokenizer.render(Conversation((FIRST,))).prompt.ids
    tools = tokenizer.render(Conversation((FIRST,), (TOOL,))).prompt.ids

    assert tokenizer.decode(plain.tolist()) == "plain"
    assert tokenizer.decode(tools.tolist()) == "with tools"
