"""POST /v1/chat/completions, read by the official client."""

import openai
import pytest
from openai.types.chat import ChatCompletion

from support.chats import CALLED, REASONED, USER, WEATHER
from support.server import Running


def answered(client: openai.OpenAI) -> ChatCompletion:
    return client.chat.completions.create(model="checkable", messages=USER)


def test_an_answer_has_the_shape_that_the_official_client_reads(shared_server: Running) -> None:
    shared_server.engine.script = REASONED
    with shared_server.openai() as client:
        answer = answered(client)

    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.created > 1_600_000_000
    assert answer.model == "checkable"
    assert answer.system_fingerprint == "fp_test"
    (choice,) = answer.choices
    assert choice.index == 0
    assert choice.finish_reason == "stop"
    assert choice.logprobs is None
    assert choice.message.role == "assistant"
    assert choice.message.content == "Hi there"
    assert choice.message.tool_calls is None
    assert choice.message.model_dump()["reasoning_content"] == "I think"


def test_usage_counts_in_integers_and_parts_add_up(server: Running) -> None:
    server.engine.script = REASONED
    with server.openai() as client:
        first, second = answered(client), answered(client)

    for answer in (first, second):
        usage = answer.usage
        assert usage is not None
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        assert usage.prompt_tokens_details is not None
        assert type(usage.prompt_tokens_details.cached_tokens) is int
        assert usage.completion_tokens_details is not None
        assert usage.completion_tokens_details.reasoning_tokens == len("I think\n") + 3
        own = usage.model_dump()["anchorline"]
        assert set(own["cache"]) == {
            *("tier", "source", "gate", "cached", "reread", "restore_ms", "quarantined")
        }
        parts = own["parts"]
        assert set(parts) == {"system", "tools", "history", "injected", "images"}
        assert sum(parts.values()) == own["cache"]["cached"] + own["cache"]["reread"]
        assert sum(parts.values()) - parts["injected"] == usage.prompt_tokens


def test_a_second_turn_says_what_it_resumed_from(server: Running) -> None:
    server.engine.script = "\n</think>\n\nHi"
    with server.openai() as client:
        client.chat.completions.create(model="checkable", messages=USER)
        answer = client.chat.completions.create(
            model="checkable",
            messages=[
                *USER,
                {"role": "assistant", "content": "Hi"},
                {"role": "user", "content": "And again?"},
            ],
        )

    assert answer.usage is not None
    cache = answer.usage.model_dump()["anchorline"]["cache"]
    assert (cache["tier"], cache["source"], cache["gate"]) == ("slot", "end", "preserved")
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == cache["cached"] > 0
    assert cache["cached"] + cache["reread"] == answer.usage.prompt_tokens
    timings = answer.model_dump()["timings"]
    assert (timings["cache_n"], timings["prompt_n"]) == (cache["cached"], cache["reread"])


def test_timings_name_every_phase(shared_server: Running) -> None:
    shared_server.engine.script = REASONED
    with shared_server.openai() as client:
        answer = answered(client)

    timings = answer.model_dump()["timings"]
    assert set(timings) == {
        *("cache_n", "prompt_n", "prompt_ms", "prompt_per_second"),
        *("predicted_n", "predicted_ms", "predicted_per_second", "ttft_ms", "queue_ms"),
    }
    assert answer.usage is not None
    assert timings["predicted_n"] == answer.usage.completion_tokens
    assert all(value >= 0 for value in timings.values())


def test_tool_calls_come_whole_with_their_finish_reason(shared_server: Running) -> None:
    shared_server.engine.script = CALLED
    with shared_server.openai() as client:
        answer = client.chat.completions.create(
            model="checkable", messages=USER, tools=[WEATHER], max_tokens=400
        )

    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    calls = choice.message.tool_calls
    assert calls is not None
    assert [call.type for call in calls] == ["function", "function"]
    assert len({call.id for call in calls}) == 2
    first = calls[0]
    assert first.type == "function"
    assert (first.function.name, first.function.arguments) == ("weather", '{"city": "Bonn"}')


def test_content_is_null_where_the_model_only_calls_a_tool(shared_server: Running) -> None:
    shared_server.engine.script = (
        '</think>\n\n<tool_call>{"name": "a", "arguments": {}}</tool_call>'
    )
    with shared_server.openai() as client:
        answer = client.chat.completions.create(
            model="checkable", messages=USER, tools=[WEATHER], max_tokens=400
        )

    assert answer.choices[0].message.content is None
    assert answer.choices[0].message.tool_calls


def test_tool_choice_none_hides_the_tools_from_the_model(shared_server: Running) -> None:
    shared_server.engine.script = "\n</think>\n\nHi"
    with shared_server.openai() as client:
        hidden = client.chat.completions.create(
            model="checkable", messages=USER, tools=[WEATHER], tool_choice="none"
        )
        without = answered(client)

    assert hidden.usage is not None
    assert without.usage is not None
    assert hidden.usage.prompt_tokens == without.usage.prompt_tokens


def test_log_probabilities_list_bytes_and_alternatives(shared_server: Running) -> None:
    shared_server.engine.script = "é"
    with shared_server.openai() as client:
        answer = client.chat.completions.create(
            model="checkable",
            messages=USER,
            logprobs=True,
            top_logprobs=3,
            extra_body={"enable_thinking": False},
        )

    assert answer.choices[0].message.content == "é"
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.refusal is None
    assert logprobs.content is not None
    assert [token.bytes for token in logprobs.content[:2]] == [[0xC3], [0xA9]]
    assert logprobs.content[0].token == "\ufffd"
    for token in logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token
        assert token.top_logprobs[0].logprob == token.logprob <= 0.0
        ranked = [other.logprob for other in token.top_logprobs]
        assert ranked == sorted(ranked, reverse=True)


def test_max_completion_tokens_goes_before_the_older_name(shared_server: Running) -> None:
    shared_server.engine.script = REASONED
    with shared_server.openai() as client:
        answer = client.chat.completions.create(
            model="checkable", messages=USER, max_completion_tokens=3, max_tokens=9
        )

    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3
    assert answer.choices[0].finish_reason == "length"


def test_a_stop_string_is_not_shown(shared_server: Running) -> None:
    shared_server.engine.script = "\n</think>\n\none two three"
    with shared_server.openai() as client:
        answer = client.chat.completions.create(
            model="checkable", messages=USER, stop=[" two", "never"]
        )

    assert answer.choices[0].message.content == "one"
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "extra",
    [
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}},
    ],
)
def test_thinking_can_be_turned_off_under_each_name(
    shared_server: Running, extra: dict[str, object]
) -> None:
    shared_server.engine.script = "Hi"
    with shared_server.openai() as client:
        answer = client.chat.completions.create(model="checkable", messages=USER, extra_body=extra)

    assert answer.choices[0].message.content == "Hi"
    assert "reasoning_content" not in answer.choices[0].message.model_dump()


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_that_is_sent_back_is_part_of_the_prompt(
    shared_server: Running, name: str
) -> None:
    def tokens(assistant: dict[str, object]) -> int:
        messages = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"} | assistant,
            {"role": "user", "content": "c"},
        ]
        with shared_server.http() as client:
            return int(client.post("/tokenize", json={"messages": messages}).json()["count"])

    assert tokens({name: "thought"}) == tokens({}) + len("thought")


def test_text_parts_are_joined(shared_server: Running) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    with shared_server.http() as client:
        counts = [
            client.post(
                "/tokenize", json={"messages": [{"role": "user", "content": content}]}
            ).json()["tokens"]
            for content in (parts, "one two")
        ]

    assert counts[0] == counts[1]


def test_unknown_fields_and_nulls_change_nothing(shared_server: Running) -> None:
    shared_server.engine.script = "\n</think>\n\nHi"
    nulls = dict.fromkeys(
        ("temperature", "top_p", "seed", "stop", "stream_options", "tools", "tool_choice", "user")
    )
    with shared_server.http() as client:
        answer = client.post(
            "/v1/chat/completions",
            json={"messages": USER, "store": True, "metadata": {"a": [1]}, **nulls},
        )

    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "Hi"


@pytest.mark.parametrize(
    ("body", "headers", "session"),
    [
        ({"session_id": "a", "prompt_cache_key": "b"}, {"x-session-id": "c"}, "a"),
        ({"prompt_cache_key": "b"}, {"x-session-id": "c", "x-session-affinity": "d"}, "b"),
        ({}, {"x-session-id": "c", "x-session-affinity": "d"}, "c"),
        ({"session_id": ""}, {"x-session-affinity": "d"}, "d"),
        ({}, {}, ""),
    ],
)
def test_the_session_hint_is_the_first_of_four(
    server: Running, body: dict[str, str], headers: dict[str, str], session: str
) -> None:
    with server.http(**headers) as client:
        client.post("/v1/chat/completions", json={"messages": USER, **body}).raise_for_status()

    assert server.telemetry.next_record()["session"] == session


def test_state_under_another_salt_is_not_resumed(server: Running) -> None:
    body: dict[str, object] = {
        "messages": [{"role": "user", "content": "x" * 200}],
        "max_tokens": 0,
    }
    with server.http() as client:
        usages = [
            client.post("/v1/chat/completions", json=body | salt).json()["usage"]
            for salt in ({}, {}, {"cache_salt": "s"})
        ]

    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert cached[1] > 0
    assert cached[0] == cached[2] == 0


def test_every_answer_names_its_request(shared_server: Running) -> None:
    with shared_server.http() as client:
        for stream in (False, True):
            answer = client.post("/v1/chat/completions", json={"messages": USER, "stream": stream})
            request_id = answer.headers["x-request-id"]
            assert f"chatcmpl-{request_id}" in answer.text
