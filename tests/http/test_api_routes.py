"""Models, tokens, health, metrics and the cache's figures."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from anchorline.adapters.http.routes_status import DRAINING
from anchorline.application.calls import ChatCall
from anchorline.application.request import GenerationRequest
from anchorline.domain.tokens import TokenIds
from support.scripted_engine import PATIENCE_S
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"


def body(text: str = "Hello") -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


def test_the_served_model_is_listed_and_found(shared_server: Running) -> None:
    with shared_server.openai() as client:
        listed = client.models.list().data
        found = client.models.retrieve("checkable")

    assert listed == [found]
    assert (found.id, found.object, found.owned_by) == ("checkable", "model", "anchorline")
    assert found.created > 1_600_000_000
    assert found.model_dump()["max_model_len"] == 4096


@pytest.mark.parametrize("name", ["content", "prompt"])
def test_a_text_is_tokenized_and_read_back(shared_server: Running, name: str) -> None:
    with shared_server.http() as client:
        tokens = client.post("/tokenize", json={name: "héllo"}).json()
        text = client.post("/detokenize", json={"tokens": tokens["tokens"]}).json()

    assert tokens == {"tokens": list("héllo".encode()), "count": 6}
    assert text == {"content": "héllo"}


def test_pieces_are_texts_or_bytes(shared_server: Running) -> None:
    with shared_server.http() as client:
        tokens = client.post("/tokenize", json={"content": "aé", "with_pieces": True}).json()

    assert tokens["tokens"] == [
        {"id": 97, "piece": "a"},
        {"id": 0xC3, "piece": [0xC3]},
        {"id": 0xA9, "piece": [0xA9]},
    ]


def test_messages_are_tokenized_as_a_chat_renders_them(shared_server: Running) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    with shared_server.http() as client:
        for extra in ({}, {"tools": tools}, {"enable_thinking": False}):
            counted = client.post("/tokenize", json=body() | extra).json()
            answer = client.post(CHAT, json=body() | extra | {"max_tokens": 1}).json()
            assert counted["count"] == answer["usage"]["prompt_tokens"]
            assert len(counted["tokens"]) == counted["count"]


def test_special_tokens_at_the_beginning_can_be_left_out(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = server.service.encode

    def encode_with_beginning(text: str) -> TokenIds:
        return encode(f"<|im_start|>{text}")

    monkeypatch.setattr(server.service, "encode", encode_with_beginning)
    with server.http() as client:
        counts = [
            client.post("/tokenize", json={"content": "abc"} | special).json()["count"]
            for special in ({}, {"add_special": True}, {"add_special": False})
        ]

    assert counts == [4, 4, 3]


def test_health_tells_what_is_served(server: Running) -> None:
    with server.http() as client:
        client.get("/v1/cache/stats")
        answer = client.get("/health").json()

    assert answer["status"] == "ok"
    assert (answer["model"], answer["version"]) == ("checkable", "0.0.test")
    assert answer["uptime_s"] >= 0
    assert (answer["requests"]["running"], answer["requests"]["queued"]) == (0, 0)


def test_health_answers_while_a_prefill_holds_the_engine(server: Running) -> None:
    server.engine.hold()
    with server.http() as client, client.stream("POST", CHAT, json=body() | {"stream": True}):
        assert server.engine.held.wait(PATIENCE_S)
        answers = [client.get("/health") for _ in range(2)]
        server.engine.release()

    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[1].json()["requests"]["age_s"] >= answers[0].json()["requests"]["age_s"]


def test_health_answers_while_a_long_conversation_is_rendered(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = server.service.prepare_chat
    entered, gate = threading.Event(), threading.Event()

    def slow(call: ChatCall) -> GenerationRequest:
        entered.set()
        assert gate.wait(PATIENCE_S)
        return prepare(call)

    monkeypatch.setattr(server.service, "prepare_chat", slow)
    with server.http() as client, ThreadPoolExecutor() as others:
        running = others.submit(client.post, CHAT, json=body())
        assert entered.wait(PATIENCE_S)
        assert client.get("/health").status_code == 200
        gate.set()
        assert running.result().status_code == 200


def test_health_says_when_the_server_is_stopping(server: Running) -> None:
    server.app.state[DRAINING] = True
    with server.http() as client:
        assert client.get("/health").json()["status"] == "draining"


def test_health_counts_what_runs_and_waits(server: Running) -> None:
    server.engine.script = "x" * 1000
    server.engine.hold()
    stream = body() | {"stream": True, "max_tokens": 1000}
    with server.http() as client, client.stream("POST", CHAT, json=stream):
        assert server.engine.held.wait(PATIENCE_S)
        while client.get("/health").json()["requests"]["running"] == 0:
            server.engine.let()
        server.engine.release()


def test_metrics_are_given_as_they_are(server: Running) -> None:
    with server.http() as client:
        answer = client.get("/metrics")

    assert answer.text == "anchorline_requests_total 0.0\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_the_caches_figures_are_given_whole(server: Running) -> None:
    with server.http() as client:
        client.post(CHAT, json=body() | {"max_tokens": 3})
        client.post(CHAT, json=body() | {"max_tokens": 3})
        figures = client.get("/v1/cache/stats").json()

    assert figures["enabled"] is True
    assert figures["requests"] == 2
    assert (figures["queued"], figures["running"]) == (0, 0)
    assert len(figures["slots"]) == 1
    assert figures["slots"][0]["busy"] is False
    assert [row["decision"]["tier"] for row in figures["last"]] == ["none", "none"]
    assert figures["grid"] == 64


def test_figures_that_the_engine_does_not_give_in_time_are_503() -> None:
    options = Options(stats_timeout_s=0.01)
    with running_server(options) as server, server.http() as client:
        server.engine.hold()
        with client.stream("POST", CHAT, json=body() | {"stream": True}):
            assert server.engine.held.wait(PATIENCE_S)
            late = client.get("/v1/cache/stats")
            server.engine.release()

    assert late.status_code == 503
    assert late.json()["error"]["code"] == "unavailable"
    assert int(late.headers["retry-after"]) > 0
