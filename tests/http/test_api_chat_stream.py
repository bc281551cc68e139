"""POST /v1/chat/completions as a stream, read by the official client."""

import openai
from openai.types.chat import ChatCompletionChunk

from support.chats import CALLED, REASONED, USER, WEATHER
from support.server import Running


def streamed(client: openai.OpenAI) -> list[ChatCompletionChunk]:
    return list(client.chat.completions.create(model="checkable", messages=USER, stream=True))


def test_a_stream_opens_with_the_role_and_ends_with_the_reason(shared_server: Running) -> None:
    shared_server.engine.script = REASONED
    with shared_server.openai() as client:
        chunks = streamed(client)

    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.system_fingerprint for chunk in chunks} == {"fp_test"}
    assert all(len(chunk.choices) == 1 for chunk in chunks)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert (deltas[0].role, deltas[0].content) == ("assistant", "")
    assert all(delta.role is None for delta in deltas[1:])
    fields = [sorted(delta.model_dump(exclude_unset=True)) for delta in deltas]
    reasoning = fields.index(["content"])
    assert fields == [
        ["content", "role"],
        *[["reasoning_content"]] * (reasoning - 1),
        *[["content"]] * (len(fields) - reasoning - 1),
        [],
    ]
    assert "".join(delta.content or "" for delta in deltas) == "Hi there"
    assert "".join(delta.model_dump().get("reasoning_content") or "" for delta in deltas) == (
        "I think"
    )
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]


def test_a_stream_without_the_option_has_timings_and_no_usage(shared_server: Running) -> None:
    shared_server.engine.script = REASONED
    with shared_server.openai() as client:
        chunks = streamed(client)

    assert all("usage" not in chunk.model_fields_set for chunk in chunks)
    assert [chunk for chunk in chunks if "timings" in chunk.model_dump()] == chunks[-1:]


def test_a_stream_with_the_option_ends_with_usage_and_no_choice(shared_server: Running) -> None:
    shared_server.engine.script = REASONED
    with shared_server.openai() as client:
        chunks = list(
            client.chat.completions.create(
                model="checkable",
                messages=USER,
                stream=True,
                stream_options={"include_usage": True},
            )
        )

    *before, last = chunks
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.prompt_tokens_details is not None
    assert type(last.usage.prompt_tokens_details.cached_tokens) is int
    assert last.usage.model_dump()["anchorline"]["parts"]["history"] > 0
    assert last.model_dump()["timings"]["predicted_n"] == last.usage.completion_tokens
    assert all(chunk.usage is None and "usage" in chunk.model_fields_set for chunk in before)
    assert before[-1].choices[0].finish_reason == "stop"


def test_a_streamed_tool_call_is_complete_in_one_delta(shared_server: Running) -> None:
    shared_server.engine.script = CALLED
    with shared_server.openai() as client:
        chunks = list(
            client.chat.completions.create(
                model="checkable", messages=USER, tools=[WEATHER], max_tokens=400, stream=True
            )
        )

    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert [call.index for call in calls] == [0, 1]
    assert [call.type for call in calls] == ["function", "function"]
    functions = [call.function for call in calls if call.function]
    assert [(call.name, call.arguments) for call in functions] == [
        ("weather", '{"city": "Bonn"}'),
        ("weather", "{}"),
    ]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_the_official_stream_helper_puts_the_same_answer_together(shared_server: Running) -> None:
    shared_server.engine.script = CALLED
    with (
        shared_server.openai() as client,
        client.chat.completions.stream(
            model="checkable", messages=USER, tools=[WEATHER], max_tokens=400
        ) as stream,
    ):
        message = stream.get_final_completion().choices[0].message

    assert message.content == "Let me see."
    assert [call.function.arguments for call in message.tool_calls or []] == [
        '{"city": "Bonn"}',
        "{}",
    ]


def test_no_token_is_lost_from_streamed_log_probabilities(shared_server: Running) -> None:
    shared_server.engine.script = "\n</think>\n\nhé"
    with shared_server.openai() as client:
        chunks = list(
            client.chat.completions.create(
                model="checkable", messages=USER, logprobs=True, stream=True
            )
        )
        whole = client.chat.completions.create(
            model="checkable", messages=USER, logprobs=True, top_logprobs=0
        )

    reported = [chunk.choices[0].logprobs for chunk in chunks]
    tokens = [token for some in reported if some for token in some.content or []]
    expected = whole.choices[0].logprobs
    assert expected is not None
    assert expected.content is not None
    assert [token.bytes for token in tokens] == [token.bytes for token in expected.content]
    assert bytes(byte for token in tokens for byte in token.bytes or []).startswith(
        "\n</think>\n\nhé".encode()
    )
