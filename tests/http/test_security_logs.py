"""What a client sends can neither write the log's lines nor be read there, nor multiply figures."""

import io
import json
import logging
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import pytest

import support.server
from anchorline.adapters.telemetry.logs import configure_logging
from anchorline.adapters.telemetry.prometheus import PrometheusTelemetry
from anchorline.ports.telemetry import NO_LABELS, Labels
from support.server import JournalQueue, Options, Running, running_server

CHAT = "/v1/chat/completions"
API_KEY, ADMIN_KEY, SALT, PROMPT = "KEY-8c1f", "ADMIN-77ab", "SALT-51d0", "PROMPT-90aa"
WRONG_KEY, WRITTEN = "WRONG-3e2b", "WRITTEN-a7c4"
SECRETS = (API_KEY, ADMIN_KEY, SALT, PROMPT, WRONG_KEY, WRITTEN)
FORGED = "2026-11-29T22:00:00.000 INFO    anchorline forged"
HOSTILE = f'x"\\ \r\n{FORGED}\x1b[2J\x1b]0;title\x07\u202e\u2028\x85\x00 request=r1 finish=stop'
LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{12} (DEBUG|INFO|WARNING|ERROR) +[\w.]+ .*")


class Shown(JournalQueue):
    """Figures and journal as the real server has them, beside what tests wait for."""

    real: PrometheusTelemetry

    def __init__(self) -> None:
        super().__init__()
        type(self).real = self._real = PrometheusTelemetry()

    def count(self, name: str, amount: int = 1, labels: Labels = NO_LABELS) -> None:
        super().count(name, amount, labels)
        self._real.count(name, amount, labels)

    def gauge(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        super().gauge(name, value, labels)
        self._real.gauge(name, value, labels)

    def observe(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        super().observe(name, value, labels)
        self._real.observe(name, value, labels)

    def journal(self, record: Mapping[str, object]) -> None:
        self._real.journal(record)
        super().journal(record)  # whoever waits for it finds the line written


@contextmanager
def logged(*, json_lines: bool) -> Generator[io.StringIO]:
    """The whole process's log, down to the least urgent line."""
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.level
    configure_logging("debug", json_lines=json_lines, stream=stream)
    root.setLevel(1)
    try:
        yield stream
    finally:
        configure_logging("warning", json_lines=False, stream=io.StringIO())
        root.setLevel(before)
        for handler in [one for one in root.handlers if one.get_name() == "anchorline"]:
            root.removeHandler(handler)


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> Generator[Running]:
    monkeypatch.setattr(support.server, "JournalQueue", Shown)
    with running_server(Options(api_key=API_KEY, admin_key=ADMIN_KEY)) as running:
        running.engine.script = f"\n</think>\n\n{WRITTEN}"
        yield running


def use_all(server: Running, *, session: str = "mine") -> None:
    """Requests of all kinds, good and bad, with something secret in each place."""
    keys = {"authorization": f"Bearer {API_KEY}", "x-admin-key": ADMIN_KEY}
    chat = {
        "messages": [{"role": "user", "content": PROMPT}],
        "cache_salt": SALT,
        "session_id": session,
        "max_tokens": 40,
    }
    with server.http() as client:
        for body in (chat, chat | {"stream": True, "logprobs": True, "user": PROMPT}):
            client.post(CHAT, json=body, headers=keys).raise_for_status()
            server.telemetry.next_record()
        text = {"prompt": PROMPT, "cache_salt": SALT, "max_tokens": 1}
        client.post("/v1/completions", json=text, headers=keys).raise_for_status()
        server.telemetry.next_record()
        for bad in (
            {"model": PROMPT},
            {"stop": [""]},
            {"max_tokens": PROMPT},
            {"n": 2},
            {"messages": [{"role": PROMPT, "content": PROMPT}]},
            {"session_id": PROMPT * 1000},
            {"cache_salt": SALT * 1000},
        ):
            assert client.post(CHAT, json=chat | bad, headers=keys).status_code >= 400
        client.post(CHAT, content=f'{{"messages": "{PROMPT}'.encode(), headers=keys)
        client.post("/tokenize", json={"content": PROMPT}, headers=keys).raise_for_status()
        for path in ("/v1/cache/stats", "/v1/cache/entries", "/metrics", "/health", f"/{PROMPT}"):
            client.get(path, headers=keys)
        client.get("/v1/models", headers={"x-api-key": WRONG_KEY, "user-agent": PROMPT})
        client.get("/v1/models", params={"api_key": WRONG_KEY})
        server.engine.fail_next_forward()
        client.post(CHAT, json=chat, headers=keys)
        server.telemetry.next_record()


@pytest.mark.parametrize("json_lines", [False, True])
def test_no_secret_and_no_text_reaches_the_log_at_any_level(
    keyed: Running, json_lines: bool
) -> None:
    with logged(json_lines=json_lines) as log:
        use_all(keyed)

    assert "mine" in log.getvalue()  # it was listened to
    assert [secret for secret in SECRETS if secret in log.getvalue()] == []


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_line_of_the_log_is_the_servers_own_whatever_a_client_calls_itself(
    keyed: Running, json_lines: bool
) -> None:
    keys = {"authorization": f"Bearer {API_KEY}"}
    hostile = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    with logged(json_lines=json_lines) as log, keyed.http() as client:
        for name in ("session_id", "prompt_cache_key"):
            client.post(CHAT, json=hostile | {name: HOSTILE}, headers=keys).raise_for_status()
            keyed.telemetry.next_record()
        latin = {"x-session-id": "y\x9b2J\x85\xad", "user-agent": "\x9b2J"}
        raw = [(one.encode(), text.encode("latin-1")) for one, text in {**keys, **latin}.items()]
        client.post(CHAT, json=hostile, headers=raw).raise_for_status()
        keyed.telemetry.next_record()
        client.post(CHAT, json=hostile | {"model": HOSTILE}, headers=keys)
        client.get(f"/{'%1b%5b2J%0d%0a' * 3}", headers=keys)

    lines = log.getvalue().split("\n")
    assert lines.pop() == ""
    assert log.getvalue().isascii() or log.getvalue().replace("\n", "").isprintable()
    for line in lines:
        if json_lines:
            record = json.loads(line)
            assert record["logger"].startswith(
                ("anchorline", "uvicorn", "asyncio", "httpx", "httpcore")
            )
        else:
            assert LINE.fullmatch(line), line
            assert not line.startswith(FORGED)
    requests = [line for line in lines if "anchorline.request" in line]
    assert len(requests) == 3


def test_a_fault_that_repeats_a_clients_text_writes_no_line_of_its_own(
    keyed: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError(HOSTILE)

    monkeypatch.setattr(keyed.service, "prepare_chat", fail)
    with logged(json_lines=False) as log, keyed.http(authorization=f"Bearer {API_KEY}") as client:
        body = {"messages": [{"role": "user", "content": "x"}]}
        assert client.post(CHAT, json=body).status_code == 500

    assert "ZeroDivisionError" in log.getvalue()
    assert log.getvalue().replace("\n", "").isprintable()
    for line in log.getvalue().splitlines():
        assert line.startswith("    ") or LINE.fullmatch(line), line
        assert not line.startswith(FORGED)


def test_no_figure_and_no_error_shows_a_secret_or_a_text(keyed: Running) -> None:
    use_all(keyed)
    keys = {"authorization": f"Bearer {API_KEY}", "x-admin-key": ADMIN_KEY}
    with keyed.http() as client:
        shown = [
            client.get(path, headers=keys).text
            for path in ("/v1/cache/stats", "/v1/cache/entries", "/health", "/v1/models")
        ]
        shown += [client.get("/v1/models", headers={"x-api-key": WRONG_KEY}).text]
    shown += [Shown.real.exposition().decode(), repr(keyed.telemetry.records)]

    assert all(shown)
    assert [secret for secret in SECRETS for text in shown if secret in text] == []


def test_clients_cannot_make_more_figures(keyed: Running) -> None:
    def series() -> set[str]:
        return {
            line.rpartition(" ")[0]
            for line in Shown.real.exposition().decode().splitlines()
            if not line.startswith("#")
        }

    use_all(keyed)
    use_all(keyed)
    before = series()
    with keyed.http(authorization=f"Bearer {API_KEY}") as client:
        for number in range(20):
            name = f"{number}-{HOSTILE}"
            body = {"messages": [{"role": "user", "content": name}], "max_tokens": 2}
            client.post(CHAT, json=body | {"session_id": name, "cache_salt": name, "user": name})
            client.post(CHAT, json=body | {"model": name})
            client.get(f"/v1/models/{number}")
            client.request(f"METHOD{number}", f"/{number}", headers={"user-agent": str(number)})

    assert len(before) > 20
    assert series() == before
