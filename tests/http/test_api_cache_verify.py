"""POST /v1/cache/verify on the toy model: its answers, who may ask, and what becomes of it."""

import json
import stat
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from click.testing import CliRunner

from anchorline.adapters.cli.program import CliParts, build_cli
from anchorline.application.live_verify_cold import exported_rows
from anchorline.domain.grid import Span
from anchorline.settings import ServeSettings
from support.running_server import RunningServer, running_server
from support.server import Running

VERIFY = "/v1/cache/verify"
Body: TypeAlias = dict[str, Any]
PROMPT = list(range(20, 220))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def toy(cache: Path) -> Generator[RunningServer]:
    """A server that verifies when it is asked to."""
    settings = ServeSettings(
        cache_dir=cache, verify="on", verify_idle_s=0.0, disk_free_min=0, threads=1, grid=32
    )
    with running_server(settings) as running:
        yield running


def post(server: RunningServer, path: str, body: Body | None = None) -> Body:
    with server.http() as client:
        response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    answer: Body = response.json()
    return answer


def complete(server: RunningServer, prompt: list[int]) -> Body:
    body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    answer = post(server, "/v1/completions", body)
    cache: Body = answer["usage"]["anchorline"]["cache"]
    return cache


def spoil(server: RunningServer, row: int) -> None:
    """Change a byte of the first slot behind the cache's back."""
    state, span = server.engine.slots[0], Span(row, row + 1)
    rows = exported_rows(state, state.layout.views, span)
    next(iter(rows.values()))[0] ^= 1
    state.import_rows(span, rows)


def test_an_honest_server_is_found_whole(toy: RunningServer) -> None:
    complete(toy, PROMPT)
    post(toy, "/v1/cache/flush")

    answer = post(toy, VERIFY, {"samples": 10})

    assert answer["finished"]
    assert (answer["samples"] >= 2, answer["mismatches"], answer["skipped"]) == (True, [], [])
    assert answer["tokens"] >= 2 * len(PROMPT)


def test_one_entry_can_be_named(toy: RunningServer) -> None:
    complete(toy, PROMPT)
    with toy.http() as client:
        entries = client.get("/v1/cache/entries").json()["entries"]
    stored = next(entry["id"] for entry in entries if entry["tier"] == "disk")

    assert post(toy, VERIFY, {"entry": stored})["samples"] == 1
    unknown = post(toy, VERIFY, {"entry": "slot-9"})
    assert (unknown["samples"], unknown["skipped"][0]["entry"]) == (0, "slot-9")


def test_a_state_that_was_changed_is_found_given_up_and_written_down(
    toy: RunningServer, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = [token + 7 for token in PROMPT]
    complete(toy, prompt)
    spoil(toy, 70)

    (found,) = post(toy, VERIFY, {"entry": "slot-0"})["mismatches"]

    assert (found["kind"], found["row"], found["line"]) == ("bitwise_rows", 70, 96)
    assert complete(toy, prompt)["gate"] == "cold"
    file = cache / "state" / "quarantine" / found["dump"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    dump = json.loads(file.read_bytes())
    assert dump["token_ids"] == prompt[:96]
    assert {name: dump[name] for name in found if name != "dump"} == {
        name: value for name, value in found.items() if name != "dump"
    }
    assert "WRONG STATE of slot-0" in caplog.text
    assert str(prompt[:3]) not in caplog.text
    with toy.http() as client:
        # First what waits for fresh figures: /health gives the last ones rather than wait long.
        stats = client.get("/v1/cache/stats").json()["verify"]
        health = client.get("/health").json()["verify"]
        metrics = client.get("/metrics").text
    assert (health["mode"], health["mismatches"], health["serves_cold"]) == ("on", 1, False)
    assert stats["mismatches"] == {"bitwise_rows": 1}
    assert 'verify_mismatches_total{kind="bitwise_rows",tier="slot"} 1.0' in metrics


def test_what_the_file_says_can_be_replayed(toy: RunningServer, cache: Path) -> None:
    complete(toy, PROMPT)
    spoil(toy, 5)
    (found,) = post(toy, VERIFY, {"entry": "slot-0"})["mismatches"]
    dump = json.loads((cache / "state" / "quarantine" / found["dump"]).read_bytes())

    complete(toy, dump["token_ids"])

    assert post(toy, VERIFY, {"entry": "slot-0"})["mismatches"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [({"samples": 0}, "samples"), ({"samples": 5000}, "samples"), ({"entry": ""}, "entry")],
)
def test_a_body_that_cannot_be_served_is_refused(
    toy: RunningServer, body: Body, field: str
) -> None:
    with toy.http() as client:
        refused = client.post(VERIFY, json=body)

    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == field


def test_a_body_is_not_needed(toy: RunningServer) -> None:
    with toy.http() as client:
        assert client.post(VERIFY).status_code == 200


def test_a_page_of_another_host_may_not_ask(toy: RunningServer) -> None:
    with toy.http() as client:
        refused = client.post(VERIFY, headers={"origin": "https://elsewhere.example"})

    assert refused.status_code == 403


def test_a_server_that_verifies_nothing_says_how_to_start_one(server: Running) -> None:
    with server.http() as client:
        refused = client.post(VERIFY)
        health = client.get("/health").json()

    assert refused.status_code == 400
    assert "--verify on" in refused.json()["error"]["message"]
    assert refused.json()["error"]["code"] == "unsupported"
    assert health["verify"] is None


def test_the_command_shows_what_is_wrong_and_its_exit_code_tells(toy: RunningServer) -> None:
    def run() -> tuple[int, str]:
        def unused(*_: object) -> None:
            raise AssertionError

        parts = CliParts("1", ServeSettings, unused, unused, unused, unused)  # type: ignore[arg-type]
        runner = CliRunner(env={"NO_PROXY": "127.0.0.1", "ANCHORLINE_URL": toy.url})
        result = runner.invoke(build_cli(parts), ["verify", "--live"], prog_name="anchorline")
        return result.exit_code, result.output

    complete(toy, PROMPT)
    assert run() == (0, run()[1])
    spoil(toy, 70)

    code, output = run()

    assert code == 1
    assert "bitwise_rows" in output
    assert "1 wrong states were found and given up" in output


def test_strict_serves_cold_after_a_wrong_state(tmp_path: Path) -> None:
    settings = ServeSettings(
        cache_dir=tmp_path, verify="strict", verify_idle_s=0.0, disk="off", threads=1, grid=32
    )
    with running_server(settings) as server:
        complete(server, PROMPT)
        spoil(server, 70)
        found: list[Body] = post(server, VERIFY)["mismatches"]
        gates = [complete(server, PROMPT)["gate"] for _ in range(2)]
        with server.http() as client:
            client.get("/v1/cache/stats")
            health: Body = client.get("/health").json()

    assert [one["dump"] for one in found] == [None]
    assert gates == ["cold", "cold"]
    assert health["verify"]["serves_cold"]


def test_a_server_verifies_by_itself_once_it_is_idle(tmp_path: Path) -> None:
    settings = ServeSettings(
        cache_dir=tmp_path, verify="on", verify_idle_s=0.01, disk="off", threads=1, grid=32
    )
    with running_server(settings) as server, httpx.Client(base_url=server.url) as client:
        complete(server, PROMPT)
        asked: Iterator[Body] = (client.get("/v1/cache/stats").json() for _ in range(10_000))
        stats: Body = next(one["verify"] for one in asked if one["verify"]["samples"])

    assert (stats["samples"], stats["mismatches"]) == (1, {})
