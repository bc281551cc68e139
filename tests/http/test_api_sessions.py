"""Closing a session: the preference goes, the state stays."""

import pytest

from support.errors import checked
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"


def close(session: str) -> str:
    return f"/v1/cache/sessions/{session}/close"


def body(text: str = "Hello " * 40, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **more}


def test_a_session_that_is_closed_is_known_no_more(server: Running) -> None:
    with server.http() as client:
        client.post(CHAT, json=body(session_id="mine"))
        answers = [client.post(close("mine")) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.json() for answer in answers] == [{"closed": 1}, {"closed": 0}]


def test_what_it_has_left_is_resumed_all_the_same(server: Running) -> None:
    with server.http() as client:
        client.post(CHAT, json=body(session_id="mine"))
        client.post(close("mine"))
        again = client.post(CHAT, json=body(session_id="mine")).json()

    assert again["usage"]["anchorline"]["cache"]["source"] == "resident"
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 192


def test_other_sessions_stay(server: Running) -> None:
    with server.http() as client:
        client.post(CHAT, json=body(session_id="mine"))
        others = client.post(close("yours")).json(), client.post(close("min")).json()
        own = client.post(close("mine")).json()

    assert others == ({"closed": 0}, {"closed": 0})
    assert own == {"closed": 1}


def test_the_session_of_one_salt_can_be_closed_alone() -> None:
    with running_server(Options(slots=3)) as server, server.http() as client:
        for salt in ("a", "b", ""):
            client.post(CHAT, json=body(session_id="mine", cache_salt=salt))
        closed = [
            client.post(close("mine"), json=which).json()["closed"]
            for which in ({"cache_salt": "c"}, {"cache_salt": "a"}, {"cache_salt": ""}, {}, {})
        ]

    assert closed == [0, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("session", "path"), [("a b", "a%20b"), ("50%", "50%25"), ("ü", "%C3%BC"), ("..x", "..x")]
)
def test_a_hint_is_read_as_it_was_meant(server: Running, session: str, path: str) -> None:
    with server.http() as client:
        client.post(CHAT, json=body(session_id=session))
        assert client.post(close(path)).json() == {"closed": 1}


def test_a_body_that_is_none_is_400(shared_server: Running) -> None:
    with shared_server.http() as client:
        wrong_type = client.post(close("mine"), json={"cache_salt": 7})
        no_json = client.post(close("mine"), content=b"{")
        too_long = client.post(close("mine"), json={"cache_salt": "x" * 20_000})

    assert checked(wrong_type, 400)["param"] == "cache_salt"
    assert checked(no_json, 400)["code"] == "invalid_json"
    assert checked(too_long, 400)["code"] == "invalid_value"


def test_without_a_name_there_is_no_such_route(shared_server: Running) -> None:
    with shared_server.http() as client:
        assert checked(client.post("/v1/cache/sessions//close"), 404)["code"] == "unknown_url"
        assert checked(client.get(close("mine")), 405)["code"] == "method_not_allowed"


@pytest.mark.parametrize(("key", "status"), [("sesame", 401), ("open-admin", 200), ("", 401)])
def test_it_is_an_admins_route(key: str, status: int) -> None:
    options = Options(api_key="sesame", admin_key="open-admin")
    with running_server(options) as server, server.http() as client:
        answer = client.post(close("mine"), headers={"x-api-key": key} if key else {})

    assert answer.status_code == status


def test_pages_of_other_hosts_close_nothing(shared_server: Running) -> None:
    with shared_server.http() as client:
        answer = client.post(close("mine"), headers={"origin": "https://evil.example"})

    assert checked(answer, 403)["code"] == "forbidden"
