"""What a request would find is told before it is sent, and brought in ahead of it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from anchorline.settings import ServeSettings
from support.errors import checked
from support.running_server import require_model, running_server
from support.server import Options, Running
from support.server import running_server as small_server

CHAT = "/v1/chat/completions"
PEEK = "/v1/cache/peek"
PREWARM = "/v1/cache/prewarm"
FACTS = "Remember these facts. Anna lives in Paris. Ben lives in Rome. " * 8


def body(text: str = "Hello " * 40, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **more}


def test_a_chat_is_foreseen_as_it_is_then_served(server: Running) -> None:
    with server.http() as client:
        before = client.post(PEEK, json=body()).json()
        client.post(CHAT, json=body())
        peeked = client.post(PEEK, json=body(session_id="mine")).json()
        told = client.post(CHAT, json=body()).json()["usage"]

    tokens = told["prompt_tokens"]
    assert before == {
        "tier": "none",
        "source": "none",
        "line": 0,
        "gate": "cold",
        "cached_tokens": 0,
        "reread_tokens": tokens,
        "reread_eta_ms": before["reread_eta_ms"],
        "restore_ms": 0.0,
        "tokens": tokens,
        "session": None,
        "nearest": {"shares": 0, "parts_at": 0},
    }
    assert before["reread_eta_ms"] > 0
    cache = told["anchorline"]["cache"]
    assert (peeked["tier"], peeked["source"], peeked["gate"]) == (
        cache["tier"],
        cache["source"],
        cache["gate"],
    )
    assert (peeked["line"], peeked["cached_tokens"]) == (cache["cached"], cache["cached"])
    assert peeked["reread_tokens"] == cache["reread"]
    assert (peeked["session"], peeked["nearest"]["parts_at"]) == ("mine", None)


def test_a_completion_is_foreseen_as_well(server: Running) -> None:
    prompt = {"prompt": "Hello " * 40}
    with server.http() as client:
        client.post("/v1/completions", json=prompt)
        peeked = client.post(PEEK, json=prompt).json()

    assert (peeked["tier"], peeked["source"]) == ("slot", "resident")


def test_the_session_may_come_in_a_header(server: Running) -> None:
    with server.http() as client:
        peeked = client.post(PEEK, json=body(), headers={"x-session-id": "mine"}).json()

    assert peeked["session"] == "mine"


def test_it_answers_while_a_request_runs(server: Running) -> None:
    with server.http() as client:
        client.post(CHAT, json=body())
        with client.stream("POST", CHAT, json=body("Tell me more.", stream=True)) as running:
            next(running.iter_lines())
            peeked = client.post(PEEK, json=body())

    assert peeked.status_code == 200
    assert peeked.json()["tokens"] > 0


def test_it_leaves_no_trace_in_any_figure(server: Running) -> None:
    with server.http() as client:
        client.post(CHAT, json=body())
        before = client.get("/v1/cache/stats").json()
        client.post(PEEK, json=body())
        after = client.get("/v1/cache/stats").json()

    assert after == before


def test_without_a_medium_nothing_is_prewarmed(server: Running) -> None:
    with server.http() as client:
        answer = client.post(PREWARM, json=body())

    assert (answer.status_code, answer.json()) == (
        200,
        {"prewarmed": False, "why": "not_on_disk"},
    )


@pytest.mark.parametrize("path", [PEEK, PREWARM])
def test_what_could_not_be_asked_cannot_be_foreseen(shared_server: Running, path: str) -> None:
    with shared_server.http() as client:
        neither = client.post(path, json={"model": None})
        wrong_type = client.post(path, json={"messages": 7})
        wrong_value = client.post(path, json=body(temperature=9))
        no_json = client.post(path, content=b"{")
        too_long = client.post(path, json={"prompt": "word " * 5000})
        by_get = client.get(path)

    assert checked(neither, 400)["param"] == "messages"
    assert checked(wrong_type, 400)["param"] == "messages"
    assert checked(wrong_value, 400)["param"] == "temperature"
    assert checked(no_json, 400)["code"] == "invalid_json"
    assert checked(too_long, 400)["param"] == "prompt"
    assert checked(by_get, 405)["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", [PEEK, PREWARM])
@pytest.mark.parametrize(("key", "status"), [("sesame", 401), ("open-admin", 200), ("", 401)])
def test_they_are_an_admins_routes(path: str, key: str, status: int) -> None:
    options = Options(api_key="sesame", admin_key="open-admin")
    with small_server(options) as server, server.http() as client:
        headers = {"x-api-key": key} if key else {}
        answer = client.post(path, json=body(), headers=headers)

    assert answer.status_code == status


@pytest.mark.parametrize("path", [PEEK, PREWARM])
def test_pages_of_other_hosts_learn_nothing(shared_server: Running, path: str) -> None:
    with shared_server.http() as client:
        answer = client.post(path, json=body(), headers={"origin": "https://evil.example"})

    assert checked(answer, 403)["code"] == "forbidden"


def test_a_conversation_is_foreseen_on_the_medium_and_brought_back_ahead_of_its_request(
    tmp_path: Path,
) -> None:
    require_model("toy")
    settings = ServeSettings(model="toy", cache_dir=tmp_path, disk_save_tokens_min=64)
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": FACTS}],
        "max_tokens": 8,
        "temperature": 0,
        "session_id": "mine",
    }
    with running_server(settings) as server, server.http() as client:
        answer = posted(client, CHAT, asked)["choices"][0]["message"]
        assert posted(client, "/v1/cache/flush", {})["durable"]
        posted(client, "/v1/cache/clear?tier=ram", {})
        asked["messages"] += [
            {
                "role": "assistant",
                "content": answer["content"],
                "reasoning_content": answer.get("reasoning_content") or "",
            },
            {"role": "user", "content": "Where does Ben live?"},
        ]
        on_disk = posted(client, PEEK, asked)
        warmed = posted(client, PREWARM, asked)
        again = posted(client, PREWARM, asked)
        in_slot = posted(client, PEEK, asked)
        cache = posted(client, CHAT, asked)["usage"]["anchorline"]["cache"]

    assert (on_disk["tier"], on_disk["source"]) == ("disk", "conversation")
    assert 0 < on_disk["restore_ms"] < on_disk["reread_eta_ms"]
    assert warmed["prewarmed"] is True
    assert (warmed["restore"]["tier"], warmed["restore"]["line"]) == ("disk", on_disk["line"])
    assert warmed["restore"]["bytes"] > 0
    assert again == {"prewarmed": False, "why": "not_on_disk"}
    assert (in_slot["tier"], in_slot["restore_ms"]) == ("disk", 0.0)
    assert (cache["tier"], cache["source"], cache["cached"]) == (
        "disk",
        "conversation",
        on_disk["line"],
    )
    assert cache["gate"] == on_disk["gate"] == in_slot["gate"]


def posted(client: httpx.Client, path: str, what: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(path, json=what)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found
