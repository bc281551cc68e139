"""What a stream says while nothing is written yet, and in which order."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx

from support.scripted_engine import PATIENCE_S
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"


def body(text: str = "Hello") -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "stream": True}


def events(answer: httpx.Response) -> Iterator[str]:
    """The events and comments of a stream as they come."""
    return (line for line in answer.iter_lines() if line)


def until(lines: Iterator[str], start: str) -> str:
    """The next line that starts so."""
    return next(line for line in lines if line.startswith(start))


def test_comments_tell_how_far_a_slow_prefill_is(server: Running) -> None:
    server.engine.hold()
    with server.http() as client, client.stream("POST", CHAT, json=body("x" * 200)) as answer:
        lines = events(answer)
        assert until(lines, ": ") == ": queued, 0 ahead"
        server.engine.let()
        first = until(lines, ": prefill")
        server.engine.let()
        second = until(lines, ": prefill 128")
        server.engine.release()
        rest = list(lines)

    prompt = 200 + 21  # the toy template around the text
    assert first == f": prefill 64/{prompt}"
    assert second == f": prefill 128/{prompt}"
    assert rest[-1] == "data: [DONE]"


def test_a_comment_is_repeated_so_that_the_connection_stays_alive(server: Running) -> None:
    server.engine.hold()
    with server.http() as client, client.stream("POST", CHAT, json=body("x" * 200)) as answer:
        lines = events(answer)
        server.engine.let()
        first = until(lines, ": prefill")
        again = [next(lines) for _ in range(3)]
        server.engine.release()
        list(lines)

    assert again == [first] * 3


def test_a_queued_request_is_told_its_place(server: Running) -> None:
    server.engine.script = "x" * 1000
    long = body() | {"max_tokens": 1000}
    server.engine.hold()
    with ThreadPoolExecutor() as others, server.http() as client:
        running = [others.submit(client.post, CHAT, json=long) for _ in range(2)]
        while server.service.submitted.qsize() < 2:
            server.engine.let()
        waiting = others.submit(first_comment, server)
        while not waiting.done():
            server.engine.let()  # the engine thread takes requests between two steps
        server.engine.release()
        assert all(answer.result().status_code == 200 for answer in running)

    assert waiting.result() == ": queued, 1 ahead"


def first_comment(server: Running) -> str:
    with server.http() as client, client.stream("POST", CHAT, json=body()) as answer:
        return next(events(answer))


def test_no_comment_comes_while_tokens_do() -> None:
    with running_server(Options(progress_interval_s=PATIENCE_S)) as server, server.http() as client:
        answer = client.post(CHAT, json=body("x" * 200))

    assert all(line.startswith("data: ") for line in answer.text.splitlines() if line)


def test_at_most_one_comment_comes_per_interval() -> None:
    with running_server(Options(progress_interval_s=PATIENCE_S)) as server, server.http() as client:
        server.engine.hold()
        with client.stream("POST", CHAT, json=body("x" * 640)) as answer:
            server.engine.let(10)
            server.engine.release()
            lines = list(events(answer))

    assert not [line for line in lines if line.startswith(":")]


def test_the_head_of_a_stream_forbids_caching_and_buffering(server: Running) -> None:
    with server.http() as client:
        answer = client.post(CHAT, json=body())

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"


def test_tokens_are_sent_as_they_come(server: Running) -> None:
    server.engine.script = "\n</think>\n\nab"
    server.engine.hold()
    with server.http() as client, client.stream("POST", CHAT, json=body()) as answer:
        lines = events(answer)
        server.engine.let(5)
        first = until(lines, 'data: {"id"'), until(lines, "data: ")
        server.engine.release()
        rest = list(lines)

    assert '"role":"assistant"' in first[0]
    assert '"content":"a"' in first[1]
    assert any('"content":"b"' in line for line in rest)


def test_two_streams_run_side_by_side() -> None:
    with (
        running_server(Options(slots=2)) as server,
        server.http() as client,
        ThreadPoolExecutor() as others,
    ):
        running = [others.submit(client.post, CHAT, json=body(text)) for text in ("one", "two")]
        answers = [answer.result().text.split("\n\n") for answer in running]

    for lines in answers:
        assert [line for line in lines if line][-1] == "data: [DONE]"
        assert "".join(lines).count('"finish_reason":"stop"') == 1
    names = [{line.split('"')[3] for line in lines if '"id":"' in line} for lines in answers]
    assert [len(name) for name in names] == [1, 1]
    assert names[0] != names[1]
