"""Flush, clear and entries, over a server with a disk tier; and pages of other hosts."""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import NoReturn

import httpx
import pytest
from click.testing import CliRunner

import support.server
from anchorline.adapters.cli.program import CliParts, build_cli
from anchorline.adapters.http.app import create_app
from anchorline.adapters.http.auth import is_own_page
from anchorline.adapters.http.routes_cache import FLUSHES_OPEN_MAX
from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.adapters.simulation.faulty_storage import Fault, FaultyStorage
from anchorline.adapters.system.jobs import ThreadJobs
from anchorline.application.conversations import SavePolicy
from anchorline.application.disk_service import LANES, DiskService
from anchorline.application.disk_tier import DiskLimits, DiskTier
from anchorline.application.durability import FlushReport
from anchorline.application.limits import Limits
from anchorline.application.object_store import ObjectStore
from anchorline.application.scheduler import Scheduler
from anchorline.domain.disk_retention import Ages, Shares
from anchorline.domain.fingerprint import fingerprint_of
from anchorline.domain.write_guard import WriteGuard
from anchorline.ports.clock import Clock
from anchorline.ports.engine import Engine
from anchorline.ports.telemetry import Telemetry
from anchorline.ports.tokenizer import Tokenizer
from anchorline.settings import ServeSettings
from support.scripted_engine import PATIENCE_S
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"
FLUSH = "/v1/cache/flush"
CLEAR = "/v1/cache/clear"
ENTRIES = "/v1/cache/entries"
ASKS_MAX = 2000
"""How often a test asks for what must happen."""


def body(text: str = "Hello " * 40) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


class Medium:
    """What the server of a test stores its state on."""

    def __init__(self) -> None:
        self.storage = FaultyStorage(CrashableStorage(bytes_max=1 << 30), seed=0)
        self.jobs = ThreadJobs(LANES)

    def scheduler(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        clock: Clock,
        telemetry: Telemetry,
        limits: Limits,
    ) -> Scheduler:
        """A scheduler with a disk tier."""
        tier = DiskTier(
            ObjectStore(self.storage, PlainCodec()),
            MemoryCatalog(needs_rebuild=False),
            clock,
            telemetry,
            engine.profile,
            fingerprint_of(engine.profile.facts),
            DiskLimits(Shares(1 << 28, 1 << 28), Ages(), WriteGuard(1 << 40, 1 << 20)),
            local_day=lambda: "2026-11-29",
        )
        disk = DiskService(
            tier,
            self.jobs,
            engine.profile,
            engine.slots,
            engine.copies,
            clock,
            telemetry,
            SavePolicy(64, 64, 64, None),
            staging_count=3,
        )
        return Scheduler(engine, tokenizer, clock, telemetry, limits, disk)


@pytest.fixture
def medium() -> Medium:
    return Medium()


@pytest.fixture
def stored(medium: Medium, monkeypatch: pytest.MonkeyPatch) -> Generator[Running]:
    """A server with a disk tier."""
    monkeypatch.setattr(support.server, "Scheduler", medium.scheduler)
    with running_server(Options()) as running:
        yield running
    assert medium.jobs.close(PATIENCE_S)


@pytest.fixture
def hasty(medium: Medium, monkeypatch: pytest.MonkeyPatch) -> Generator[Running]:
    """The same, and it waits for no flush."""
    monkeypatch.setattr(support.server, "Scheduler", medium.scheduler)
    app = partial(create_app, flush_timeout_s=0.01)
    monkeypatch.setattr(support.server, "create_app", app)
    with running_server(Options()) as running:
        yield running
    assert medium.jobs.close(PATIENCE_S)


def answering(report: FlushReport) -> Callable[[Callable[[FlushReport], None]], None]:
    """A service's `flush` that answers at once."""

    def flush(answer: Callable[[FlushReport], None]) -> None:
        answer(report)

    return flush


def run_cli(server: Running, *arguments: str) -> tuple[int, str]:
    def unused(*_: object) -> NoReturn:
        raise AssertionError

    parts = CliParts("1", ServeSettings, unused, unused, unused)
    environ = {"NO_PROXY": "127.0.0.1", "ANCHORLINE_URL": server.url}
    result = CliRunner(env=environ).invoke(build_cli(parts), arguments, prog_name="anchorline")
    return result.exit_code, result.output


# --- flush ----------------------------------------------------------------------------------------


def test_a_flush_answers_200_once_everything_is_durable(stored: Running) -> None:
    with stored.http() as client:
        client.post(CHAT, json=body())
        first = client.post(FLUSH)
        again = client.post(FLUSH)

    assert first.status_code == 200
    assert first.json() | {"longest": 0} == {
        "durable": True,
        "finished": True,
        "tier": True,
        "saved": 1,
        "pending": 0,
        "failed": 0,
        "dropped": 0,
        "missing": 0,
        "entries": 1,
        "longest": 0,
    }
    assert first.json()["longest"] > 200
    assert again.json()["saved"] == 0


def test_a_flush_that_the_medium_refuses_is_503_with_the_evidence(
    stored: Running, medium: Medium
) -> None:
    medium.storage.rates = {Fault.FAILED_WRITE: 1.0}
    with stored.http() as client:
        client.post(CHAT, json=body())
        answer = client.post(FLUSH)

    assert answer.status_code == 503
    report = answer.json()
    assert (report["durable"], report["finished"]) == (False, True)
    assert (report["failed"], report["missing"]) == (1, 1)
    assert report["error"]["code"] == "not_durable"
    assert report["error"]["message"] == "not everything is durable; failed: 1, missing: 1"
    assert int(answer.headers["retry-after"]) > 0


def test_a_flush_without_a_disk_tier_says_so(shared_server: Running) -> None:
    with shared_server.http() as client:
        answer = client.post(FLUSH)

    assert answer.status_code == 503
    assert answer.json()["tier"] is False
    assert answer.json()["error"]["code"] == "no_disk_tier"


def test_a_flush_that_takes_too_long_is_503_and_goes_on(hasty: Running) -> None:
    hasty.engine.hold()
    with hasty.http() as client:
        with client.stream("POST", CHAT, json=body() | {"stream": True}):
            assert hasty.engine.held.wait(PATIENCE_S)
            late = client.post(FLUSH)
            hasty.engine.release()
        tiers = iter(lambda: {one["tier"] for one in client.get(ENTRIES).json()["entries"]}, None)
        assert any("disk" in found for found in islice(tiers, ASKS_MAX))

    assert late.status_code == 503
    assert (late.json()["durable"], late.json()["finished"]) == (False, False)
    assert late.json()["pending"] >= 1
    assert late.json()["error"]["code"] == "flush_pending"


def test_only_so_many_flushes_are_under_way(hasty: Running) -> None:
    def never(_: object) -> None:
        pass

    hasty.service.flush = never  # type: ignore[method-assign]
    with hasty.http() as client:
        codes = [client.post(FLUSH).json()["error"]["code"] for _ in range(FLUSHES_OPEN_MAX + 1)]

    assert codes == [*["flush_pending"] * FLUSHES_OPEN_MAX, "unavailable"]


def test_what_was_flushed_counts_no_more_once_it_is_answered(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.service, "flush", answering(FlushReport(durable=True, tier=True)))
    with server.http() as client:
        codes = {client.post(FLUSH).status_code for _ in range(3 * FLUSHES_OPEN_MAX)}

    assert codes == {200}


def test_other_requests_are_served_while_a_flush_waits(stored: Running) -> None:
    stored.engine.hold()
    with stored.http() as client, ThreadPoolExecutor() as others:
        with client.stream("POST", CHAT, json=body() | {"stream": True}):
            assert stored.engine.held.wait(PATIENCE_S)
            flushing = others.submit(client.post, FLUSH)
            assert client.get("/health").status_code == 200
            assert not flushing.done()
            stored.engine.release()
        assert flushing.result().status_code == 200


# --- clear and entries ----------------------------------------------------------------------------


def test_what_is_kept_is_listed_without_a_text(stored: Running) -> None:
    with stored.http() as client:
        client.post(CHAT, json=body("secret words " * 20) | {"session_id": "mine"})
        client.post(FLUSH)
        answer = client.get(ENTRIES)

    entries = answer.json()["entries"]
    assert [(entry["role"], entry["tier"]) for entry in entries] == [
        ("resident", "slot"),
        ("conversation", "disk"),
    ]
    assert all(entry["session"] == "mine" for entry in entries)
    assert set(entries[0]) == set(entries[1])
    assert entries[1]["tokens"] == entries[0]["tokens"] > 0
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("query", "tier", "ram", "disk"),
    [
        ("", "ram", True, False),
        ("?tier=ram", "ram", True, False),
        ("?tier=disk", "disk", False, True),
        ("?tier=all", "all", True, True),
    ],
)
def test_a_clear_frees_the_tiers_it_names(
    stored: Running, query: str, tier: str, *, ram: bool, disk: bool
) -> None:
    with stored.http() as client:
        client.post(CHAT, json=body())
        client.post(FLUSH)
        cleared = client.post(CLEAR + query)
        left = {entry["tier"] for entry in client.get(ENTRIES).json()["entries"]}

    assert cleared.status_code == 200
    assert cleared.json()["tier"] == tier
    assert (cleared.json()["ram_tokens"] > 0, cleared.json()["disk_bytes"] > 0) == (ram, disk)
    assert left == {"slot", "disk"} - ({"slot"} if ram else set()) - ({"disk"} if disk else set())


@pytest.mark.parametrize("tier", ["", "RAM", "tape"])
def test_a_tier_that_is_none_is_400(shared_server: Running, tier: str) -> None:
    with shared_server.http() as client:
        answer = client.post(CLEAR, params={"tier": tier})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tier"


def test_health_tells_of_the_disk(stored: Running, shared_server: Running) -> None:
    with stored.http() as client:
        client.post(CHAT, json=body())
        client.post(FLUSH)
        client.get("/v1/cache/stats")
        on = client.get("/health").json()["disk"]
    with shared_server.http() as client:
        off = client.get("/health").json()["disk"]

    assert on["on"] is True
    assert on["bytes"] > 0
    assert on["write_level"] == "ok"
    assert off == {"on": False, "bytes": 0, "write_level": None}


# --- who may --------------------------------------------------------------------------------------

ADMIN_ROUTES = (("POST", FLUSH), ("POST", CLEAR), ("GET", ENTRIES), ("GET", "/v1/cache/stats"))


@pytest.fixture(scope="module")
def keyed() -> Generator[Running]:
    with running_server(Options(api_key="sesame", admin_key="admin")) as running:
        yield running


@pytest.mark.parametrize("route", ADMIN_ROUTES)
def test_admin_routes_want_the_admin_key(keyed: Running, route: tuple[str, str]) -> None:
    with keyed.http() as client:
        statuses = [
            client.request(*route, headers=headers).status_code
            for headers in ({}, {"x-api-key": "sesame"}, {"x-admin-key": "admin"})
        ]

    assert statuses[:2] == [401, 401]
    assert statuses[2] not in {401, 403}


@pytest.mark.parametrize("route", ADMIN_ROUTES)
@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://127.0.0.1:1", "http://localhost.evil.example", "null"],
)
def test_pages_of_other_hosts_are_refused(
    shared_server: Running, route: tuple[str, str], origin: str
) -> None:
    with shared_server.http() as client:
        answer = client.request(*route, headers={"origin": origin})

    assert answer.status_code == 403
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "forbidden")


@pytest.mark.parametrize("route", ADMIN_ROUTES)
def test_the_servers_own_pages_may(shared_server: Running, route: tuple[str, str]) -> None:
    with shared_server.http() as client:
        answer = client.request(*route, headers={"origin": shared_server.url})

    assert answer.status_code != 403


def test_a_form_of_another_page_clears_nothing(stored: Running) -> None:
    """What a browser sends without asking: a simple POST, its page in the Origin header."""
    with stored.http() as client:
        client.post(CHAT, json=body())
        form = client.post(CLEAR, data={"tier": "all"}, headers={"origin": "https://evil.example"})
        left = client.get(ENTRIES).json()["entries"]

    assert form.status_code == 403
    assert left


def test_other_routes_do_not_look_at_the_page(shared_server: Running) -> None:
    with shared_server.http() as client:
        answer = client.get("/v1/models", headers={"origin": "https://chat.example"})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("origin", "host", "keyed", "expected"),
    [
        (None, "127.0.0.1:8000", False, True),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", False, True),
        ("http://LOCALHOST:8000", "localhost:8000", False, True),
        ("http://[::1]:8000", "[::1]:8000", False, True),
        ("http://localhost", "localhost:80", False, True),
        ("https://box.example", "box.example", True, True),
        # A name that its owner made to lead to this machine.
        ("http://evil.example:8000", "evil.example:8000", False, False),
        ("http://evil.example:8000", "evil.example:8000", True, True),
        ("http://localhost:8001", "localhost:8000", False, False),
        ("http://localhost:8000", "127.0.0.1:8000", False, False),
        ("http://localhost:8000", "", False, False),
        ("http://localhost:x", "localhost:x", False, False),
        ("null", "null", True, False),
        ("", "", True, False),
    ],
)
def test_a_page_is_the_servers_own_or_not(
    origin: str | None, host: str, *, keyed: bool, expected: bool
) -> None:
    headers = httpx.Headers({"host": host} if origin is None else {"host": host, "origin": origin})
    assert is_own_page(headers, keyed=keyed) is expected


# --- the commands, against a real server ----------------------------------------------------------


def test_flush_says_what_is_durable(stored: Running) -> None:
    with stored.http() as client:
        client.post(CHAT, json=body())
    code, output = run_cli(stored, "flush")

    assert code == 0
    assert output.startswith("durable: 1 entries, the longest of ")
    assert output.endswith("; 1 saved now\n")


def test_flush_fails_where_nothing_is_kept(shared_server: Running) -> None:
    code, output = run_cli(shared_server, "flush")

    assert code == 1
    assert output == "anchorline: nothing is kept on disk by this server\n"


def test_clear_says_what_was_freed(stored: Running) -> None:
    with stored.http() as client:
        client.post(CHAT, json=body())
    run_cli(stored, "flush")
    code, output = run_cli(stored, "clear", "--tier", "all")

    assert code == 0
    ram, _, disk = output.partition("; ")
    assert ram.endswith(" tokens left memory")
    assert disk.endswith(" left the disk\n")


def test_stats_reads_what_the_server_says(stored: Running) -> None:
    with stored.http() as client:
        client.post(CHAT, json=body())
    run_cli(stored, "flush")
    code, output = run_cli(stored, "stats")

    assert code == 0
    rows = dict(line.split("  ", 1) for line in output.splitlines())
    labels = [label.strip() for label in rows]
    assert labels[:2] == ["requests", "prompt tokens"]
    assert "slot 0" in labels
    assert "disk entries" in labels
    assert max(len(line) for line in output.splitlines()) <= 80
