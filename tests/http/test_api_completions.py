"""POST /v1/completions, read by the official client."""

import pytest

from support.server import Running


def test_a_completion_has_the_shape_that_the_official_client_reads(
    shared_server: Running,
) -> None:
    shared_server.engine.script = " there was"
    with shared_server.openai() as client:
        answer = client.completions.create(model="checkable", prompt="Once")

    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.system_fingerprint == "fp_test"
    (choice,) = answer.choices
    assert (choice.index, choice.text, choice.finish_reason) == (0, " there was", "stop")
    assert choice.logprobs is None
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len("Once")
    assert answer.usage.prompt_tokens_details is not None
    assert type(answer.usage.prompt_tokens_details.cached_tokens) is int
    assert answer.model_dump()["timings"]["predicted_n"] == answer.usage.completion_tokens


def test_marks_of_reasoning_and_tools_are_plain_text_here(shared_server: Running) -> None:
    shared_server.engine.script = "<think>a</think><tool_call>b</tool_call>"
    with shared_server.openai() as client:
        answer = client.completions.create(model="checkable", prompt="Once")

    assert answer.choices[0].text == shared_server.engine.script


@pytest.mark.parametrize("prompt", ["Once", ["Once"], list(b"Once"), [list(b"Once")]], ids=str)
def test_a_prompt_may_be_a_text_or_ids_or_a_list_of_one(
    shared_server: Running, prompt: str | list[str]
) -> None:
    shared_server.engine.script = "!"
    with shared_server.openai() as client:
        answer = client.completions.create(model="checkable", prompt=prompt)

    assert answer.choices[0].text == "!"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 4


def test_a_streamed_completion_ends_with_its_reason_and_usage(shared_server: Running) -> None:
    shared_server.engine.script = " there was"
    with shared_server.openai() as client:
        chunks = list(
            client.completions.create(
                model="checkable",
                prompt="Once",
                stream=True,
                stream_options={"include_usage": True},
            )
        )

    *texts, reason, usage = chunks
    assert {chunk.object for chunk in chunks} == {"text_completion"}
    assert "".join(chunk.choices[0].text for chunk in texts) == " there was"
    # Declared as never null by the client's types, and null in OpenAI's own streams.
    assert [chunk.choices[0].model_dump()["finish_reason"] for chunk in texts] == [None] * len(
        texts
    )
    assert (reason.choices[0].text, reason.choices[0].finish_reason) == ("", "stop")
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.completion_tokens == len(" there was") + 1


def test_log_probabilities_are_parallel_lists_with_offsets(shared_server: Running) -> None:
    shared_server.engine.script = "ab"
    with shared_server.openai() as client:
        whole = client.completions.create(model="checkable", prompt="Once", logprobs=2)
        chunks = list(
            client.completions.create(model="checkable", prompt="Once", logprobs=2, stream=True)
        )

    logprobs = whole.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["a", "b", "<|im_end|>"]
    assert logprobs.text_offset == [0, 1, 2]
    assert logprobs.token_logprobs is not None
    assert all(value <= 0 for value in logprobs.token_logprobs)
    assert logprobs.top_logprobs is not None
    assert [len(top) for top in logprobs.top_logprobs] == [2, 2, 2]
    assert "a" in logprobs.top_logprobs[0]
    streamed = [chunk.choices[0].logprobs for chunk in chunks]
    assert [token for some in streamed if some for token in some.tokens or []] == logprobs.tokens
    assert [at for some in streamed if some for at in some.text_offset or []] == [0, 1, 2]


def test_bytes_that_are_no_character_are_spelled_out(shared_server: Running) -> None:
    shared_server.engine.script = "é"
    with shared_server.openai() as client:
        answer = client.completions.create(model="checkable", prompt="Once", logprobs=0)

    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["bytes:\\xc3", "bytes:\\xa9", "<|im_end|>"]


def test_no_tokens_may_be_asked_for_to_only_read_a_prompt(shared_server: Running) -> None:
    for stream in (False, True):
        with shared_server.http() as client:
            answer = client.post(
                "/v1/completions", json={"prompt": "Once", "max_tokens": 0, "stream": stream}
            )

        assert answer.status_code == 200
        assert '"finish_reason":"length"' in answer.text


def test_an_end_token_can_be_ignored(shared_server: Running) -> None:
    shared_server.engine.script = ""
    with shared_server.openai() as client:
        answer = client.completions.create(
            model="checkable", prompt="Once", max_tokens=5, extra_body={"ignore_eos": True}
        )

    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.choices[0].finish_reason == "length"
