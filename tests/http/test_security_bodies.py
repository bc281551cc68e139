"""Bodies that are made to do harm: each is answered, and the next request is served as ever."""

import gzip
import json
import threading
import zlib
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import zstandard

from anchorline.adapters.http.routes_tokens import CHARACTERS_MAX, PIECES_MAX
from anchorline.adapters.http.worker import LARGE_AT_ONCE, LARGE_BYTES
from anchorline.application.calls import ChatCall
from anchorline.application.request import GenerationRequest
from support.errors import checked
from support.scripted_engine import PATIENCE_S
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "x"}
PLAIN = {"messages": [USER], "max_tokens": 1}
DIGITS = "9" * 5000


def with_field(name: str, value: str) -> bytes:
    """A chat with one more field, whose value is the text as it is."""
    return json.dumps(PLAIN).encode()[:-1] + f', "{name}": {value}}}'.encode()


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + "1" + closing * depth


def call_with(arguments: str) -> str:
    called = {"id": "a", "function": {"name": "f", "arguments": arguments}}
    return json.dumps([USER, {"role": "assistant", "tool_calls": [called]}, USER])


@pytest.fixture(scope="module")
def roomy() -> Generator[Running]:
    """A server that takes bodies as large as one does by default."""
    with running_server(Options(body_bytes_max=32 << 20)) as running:
        yield running


def is_answered(server: Running, body: bytes, path: str = CHAT) -> int:
    """The status of a body that is served or refused, and after which a plain one is served."""
    with server.http() as client:
        status = client.post(path, content=body).status_code
        assert status in {200, 400}, status
        assert client.post(CHAT, json=PLAIN).status_code == 200
    return status


@pytest.mark.parametrize("depth", [100, 900, 960, 980, 990, 1000, 5000, 100_000])
def test_a_body_may_be_nested_as_deep_as_it_likes(shared_server: Running, depth: int) -> None:
    tool = '[{"type": "function", "function": {"name": "f", "parameters": VALUE}}]'
    for body in (
        with_field("tools", tool.replace("VALUE", nested(depth))),
        with_field("tools", tool.replace("VALUE", nested(depth, '{"a":', "}"))),
        with_field("chat_template_kwargs", f'{{"x": {nested(depth)}}}'),
        with_field("metadata", nested(depth)),
        with_field("messages", nested(depth)),
        with_field("messages", call_with(nested(depth))),
    ):
        is_answered(shared_server, body)


NUMBERS = ("1e400", "-1e400", "NaN", "Infinity", "-Infinity", "1e-400", "5e-324", "-0.0", DIGITS)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
@pytest.mark.parametrize(
    "name",
    [
        *("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "n", "top_logprobs"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty", "max_completion_tokens"),
    ],
)
def test_a_number_may_be_as_it_likes(shared_server: Running, name: str, number: str) -> None:
    is_answered(shared_server, with_field(name, number))


@pytest.mark.parametrize("key", ["9" * 5000, "0" * 5000, "-1", "1e3", "\\u0000", ""])
def test_a_biased_token_may_be_called_as_it_likes(shared_server: Running, key: str) -> None:
    assert is_answered(shared_server, with_field("logit_bias", f'{{"{key}": 1}}')) == 400


def test_every_token_may_be_biased_and_penalised_at_once(shared_server: Running) -> None:
    bias = json.dumps({str(index): -100 if index % 2 else 100 for index in range(262)})
    body = with_field("logit_bias", bias)[:-1] + (
        b', "repetition_penalty": 0.01, "presence_penalty": -2, "frequency_penalty": 2,'
        b' "temperature": 2, "top_p": 0, "min_p": 1, "top_k": 1, "logprobs": true,'
        b' "top_logprobs": 20, "seed": -1}'
    )

    assert is_answered(shared_server, body) == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", json.dumps(["a"] * 100_000)),
        ("stop", json.dumps("a" * 500_000)),
        ("messages", json.dumps([{"role": "user", "content": ""}] * 20_000)),
        (
            "messages",
            json.dumps([{"role": "user", "content": [{"type": "text", "text": ""}] * 9000}]),
        ),
        ("messages", call_with(DIGITS)),
        ("tools", json.dumps([{"type": "function", "function": {"name": "f"}}] * 10_000)),
        ("session_id", json.dumps("s" * 900_000)),
        ("cache_salt", json.dumps("s" * 900_000)),
        ("model", json.dumps("m" * 900_000)),
        ("user", json.dumps("u" * 900_000)),
    ],
    ids=lambda value: value[:20],
)
def test_a_field_may_be_as_long_as_it_likes(shared_server: Running, name: str, value: str) -> None:
    with shared_server.http() as client:
        answer = client.post(CHAT, content=with_field(name, value))
        assert client.post(CHAT, json=PLAIN).status_code == 200

    assert answer.status_code in {200, 400, 404}
    # An error that repeats what it refuses would multiply it.
    assert answer.status_code == 200 or len(answer.content) < 1000


@pytest.mark.parametrize("name", ["session_id", "prompt_cache_key", "cache_salt"])
@pytest.mark.parametrize(
    "hint", ["../../x", "a\x00b", "a\nb", "\x1b[2J", "\u202e", "\U0001f512" * 1024]
)
def test_a_hint_may_hold_anything_that_is_text(
    shared_server: Running, name: str, hint: str
) -> None:
    assert is_answered(shared_server, with_field(name, json.dumps(hint))) == 200


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe{}",
        b'{"messages": "\xc3\x28"}',
        b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
    ],
    ids=["another encoding", "half a character", "a surrogate"],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/tokenize", "/detokenize"])
def test_what_is_no_utf_8_is_refused(shared_server: Running, path: str, body: bytes) -> None:
    assert is_answered(shared_server, body, path) == 400


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd", "br", "gzip, gzip"])
def test_a_compressed_body_is_refused_and_stays_as_small_as_it_came(
    shared_server: Running, name: str
) -> None:
    bomb = json.dumps(PLAIN).encode()[:-1] + b" " * (32 << 20) + b"}"
    packed = {
        "deflate": zlib.compress(bomb),
        "zstd": zstandard.ZstdCompressor().compress(bomb),
    }.get(name, gzip.compress(bomb))
    assert len(packed) < 1 << 16
    with shared_server.http() as client:
        error = checked(client.post(CHAT, content=packed, headers={"content-encoding": name}), 400)

    assert error["code"] == "invalid_json"
    if name != "deflate":  # whose beginning is no mark
        assert "compressed" in str(error["message"])


# --- amounts --------------------------------------------------------------------------------------


def test_more_text_than_can_be_counted_is_refused(roomy: Running) -> None:
    for name in ("content", "prompt"):
        with roomy.http() as client:
            text = "x" * (CHARACTERS_MAX + 1)
            assert checked(client.post("/tokenize", json={name: text}), 400)["param"] == name


def test_more_pieces_than_can_be_listed_are_refused(roomy: Running) -> None:
    text = "x" * (PIECES_MAX + 1)
    with roomy.http() as client:
        pieces = client.post("/tokenize", json={"content": text, "with_pieces": True})
        plain = client.post("/tokenize", json={"content": text})

    assert checked(pieces, 400)["param"] == "with_pieces"
    assert plain.json()["count"] == PIECES_MAX + 1


def test_more_tokens_than_can_be_read_are_refused(roomy: Running) -> None:
    body = b'{"tokens": [' + b"1," * (1 << 22) + b"1]}"
    with roomy.http() as client:
        assert checked(client.post("/detokenize", content=body), 400)["param"] == "tokens"


def test_large_bodies_leave_room_for_small_ones(
    roomy: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = roomy.service.prepare_chat
    entered, gate = threading.Semaphore(0), threading.Event()

    def slow(call: ChatCall) -> GenerationRequest:
        if call.wish.session == "large":
            entered.release()
            assert gate.wait(PATIENCE_S)
        return prepare(call)

    monkeypatch.setattr(roomy.service, "prepare_chat", slow)
    large = {**PLAIN, "session_id": "large", "user": "x" * LARGE_BYTES}

    def post_large() -> httpx.Response:
        with roomy.http() as client:
            return client.post(CHAT, json=large)

    with ThreadPoolExecutor(max_workers=40) as others, roomy.http() as client:
        waiting = [others.submit(post_large) for _ in range(40)]
        for _ in range(LARGE_AT_ONCE):
            assert entered.acquire(timeout=PATIENCE_S)
        assert client.post(CHAT, json=PLAIN).status_code == 200
        assert not entered.acquire(blocking=False)
        gate.set()
        codes = {answer.result().status_code for answer in waiting}

    assert codes <= {200, 503}  # a full queue is one
