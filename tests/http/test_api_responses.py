"""Answers given again over HTTP: what a client sees of it, whole and streamed."""

import json
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

import support.server
from anchorline.adapters.memory.recording_telemetry import RecordingTelemetry
from anchorline.adapters.system.clock import SystemClock
from anchorline.application.response_cache import ResponseCache
from anchorline.application.scheduler import Scheduler
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
OWN = {"id", "created", "timings", "usage"}
"""What tells two equal answers apart."""


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Generator[Running]:
    """A server that gives answers again."""
    cache = ResponseCache(SystemClock(), RecordingTelemetry(), bytes_max=1 << 20, ttl_s=3600.0)
    monkeypatch.setattr(support.server, "Scheduler", partial(Scheduler, responses=cache))
    with running_server(Options()) as running:
        yield running


def body(text: str = "Hello", **more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}


def without(answer: dict[str, Any], names: set[str] = OWN) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in names}


def chunks_of(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("more", [{}, {"logprobs": True, "top_logprobs": 3}, {"max_tokens": 3}])
def test_an_equal_chat_gets_the_same_message(answering: Running, more: dict[str, Any]) -> None:
    with answering.http() as client:
        first, again = (client.post(CHAT, json=body(**more)).json() for _ in range(2))

    assert without(again) == without(first)
    assert again["id"] != first["id"]
    assert again["usage"]["completion_tokens"] == first["usage"]["completion_tokens"] > 0
    prompt = again["usage"]["prompt_tokens"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == prompt
    assert again["usage"]["anchorline"]["cache"] == {
        "tier": "ram",
        "source": "response",
        "gate": "cold",
        "cached": prompt,
        "reread": 0,
        "restore_ms": 0.0,
        "quarantined": 0,
    }
    assert again["usage"]["anchorline"]["parts"] == first["usage"]["anchorline"]["parts"]
    timings = again["timings"]
    assert (timings["prompt_n"], timings["predicted_per_second"]) == (0, 0.0)
    assert timings["ttft_ms"] == timings["queue_ms"]


def test_a_stream_gets_the_same_chunks(answering: Running) -> None:
    request = body(stream=True, stream_options={"include_usage": True})
    with answering.http() as client:
        first, again = (chunks_of(client.post(CHAT, json=request).text) for _ in range(2))

    assert [without(chunk) for chunk in again] == [without(chunk) for chunk in first]
    assert again[-1]["usage"]["anchorline"]["cache"]["source"] == "response"


def test_what_was_streamed_is_given_whole_and_the_other_way_round(answering: Running) -> None:
    with answering.http() as client:
        streamed = chunks_of(client.post(CHAT, json=body("one", stream=True)).text)
        whole = client.post(CHAT, json=body("one")).json()
        other = client.post(CHAT, json=body("two")).json()
        other_streamed = chunks_of(client.post(CHAT, json=body("two", stream=True)).text)

    for answer, parts in ((whole, streamed), (other, other_streamed)):
        deltas = [choice["delta"] for chunk in parts for choice in chunk["choices"]]
        written = "".join(delta.get("reasoning_content", "") for delta in deltas)
        assert answer["choices"][0]["message"]["reasoning_content"] == written == "Hello"


def test_tool_calls_come_again_with_their_ids(answering: Running) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    answering.engine.script = f"</think>\n\n{call}"
    request = body(tools=[{"type": "function", "function": {"name": "f"}}])
    with answering.http() as client:
        first, again = (client.post(CHAT, json=request).json() for _ in range(2))

    assert first["choices"][0]["finish_reason"] == "tool_calls"
    assert again["choices"] == first["choices"]
    assert again["usage"]["anchorline"]["cache"]["source"] == "response"


def test_a_completion_never_gets_a_chats_answer(answering: Running) -> None:
    with answering.http() as client:
        tokens = client.post("/tokenize", json=body()).json()["tokens"]
        client.post(CHAT, json=body(max_tokens=3))
        asked = {"prompt": tokens, "max_tokens": 3, "temperature": 0}
        first, again = (client.post(COMPLETIONS, json=asked).json() for _ in range(2))

    sources = [one["usage"]["anchorline"]["cache"]["source"] for one in (first, again)]
    assert [source == "response" for source in sources] == [False, True]
    assert without(again) == without(first)


def test_what_is_drawn_is_drawn_again(answering: Running) -> None:
    with answering.http() as client:
        asked = [client.post(CHAT, json=body(temperature=0.5, seed=1)).json() for _ in range(2)]

    assert all(one["usage"]["anchorline"]["cache"]["source"] != "response" for one in asked)


def test_a_clear_of_memory_forgets_answers(answering: Running) -> None:
    with answering.http() as client:
        client.post(CHAT, json=body())
        client.post("/v1/cache/clear?tier=ram")
        again = client.post(CHAT, json=body()).json()
        stats = client.get("/v1/cache/stats").json()

    assert again["usage"]["anchorline"]["cache"]["source"] == "none"
    assert stats["responses"]["dropped"] == {"cleared": 1}
    assert stats["responses"]["answers"] == 1


def test_without_it_the_figures_say_so(shared_server: Running) -> None:
    with shared_server.http() as client:
        assert client.get("/v1/cache/stats").json()["responses"] is None
