"""Users under different salts: nobody sees, uses, or loses anything for another one."""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import support.server
from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.crashable_storage import CrashableStorage
from anchorline.adapters.memory.memory_catalog import MemoryCatalog
from anchorline.adapters.memory.plain_codec import PlainCodec
from anchorline.adapters.system.clock import SystemClock
from anchorline.adapters.system.jobs import ThreadJobs
from anchorline.application.conversations import SavePolicy
from anchorline.application.disk_service import LANES, DiskService
from anchorline.application.disk_tier import DiskLimits, DiskTier
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
from support.scripted_engine import PATIENCE_S
from support.server import Options, Running, running_server

GRID = 64
LONG = "the same long text of two users, word by word. " * 12
OTHER = "and something else altogether, as long as that. " * 12
ASKS_MAX = 2000


class WorkClock(SystemClock):
    """A clock by which every forwarded token takes a hundredth of a second.

    The engine of these tests is so fast that nothing would be worth a look at the disk.
    """

    def __init__(self, engine: CheckableEngine) -> None:
        self._engine = engine

    def monotonic(self) -> float:
        return super().monotonic() + 0.01 * self._engine.tokens_forwarded


class Store:
    """What outlives the servers of a test."""

    def __init__(self) -> None:
        self.storage = CrashableStorage(bytes_max=1 << 30)
        self.catalog = MemoryCatalog(needs_rebuild=False)
        self.jobs: list[ThreadJobs] = []
        self.saved_tokens_min = GRID

    def scheduler(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        clock: Clock,
        telemetry: Telemetry,
        limits: Limits,
    ) -> Scheduler:
        """A scheduler with a disk tier over what was stored before."""
        assert isinstance(engine, CheckableEngine)
        clock = WorkClock(engine)
        self.jobs.append(ThreadJobs(LANES))
        tier = DiskTier(
            ObjectStore(self.storage, PlainCodec()),
            self.catalog,
            clock,
            telemetry,
            engine.profile,
            fingerprint_of(engine.profile.facts),
            DiskLimits(Shares(1 << 28, 1 << 28), Ages(), WriteGuard(1 << 40, 1 << 20)),
            local_day=lambda: "2026-11-29",
        )
        disk = DiskService(
            tier,
            self.jobs[-1],
            engine.profile,
            engine.slots,
            engine.copies,
            clock,
            telemetry,
            SavePolicy(self.saved_tokens_min, GRID, GRID, None),
            staging_count=3,
        )
        disk.start()
        return Scheduler(engine, tokenizer, clock, telemetry, limits, disk)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def start(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Starts a server over the store; it is stopped, durable, at the end of the block."""
    monkeypatch.setattr(support.server, "Scheduler", store.scheduler)

    @contextmanager
    def one() -> Generator[Running]:
        with running_server(Options(grid=GRID)) as server:
            yield server
            with server.http() as client:
                assert client.post("/v1/cache/flush").status_code == 200
        assert store.jobs[-1].close(PATIENCE_S)
        store.catalog = store.catalog.restart()

    return one


def chat(text: str, salt: str | None) -> tuple[str, dict[str, object]]:
    return "/v1/chat/completions", body(salt) | {"messages": [{"role": "user", "content": text}]}


def completion(text: str, salt: str | None) -> tuple[str, dict[str, object]]:
    return "/v1/completions", body(salt) | {"prompt": text}


def body(salt: str | None) -> dict[str, object]:
    limit: dict[str, object] = {"max_tokens": 2}
    return limit if salt is None else limit | {"cache_salt": salt}


ROUTES = (chat, completion)
Request = tuple[str, Mapping[str, object]]
Route = Callable[[str, str | None], Request]


def ask(server: Running, request: Request, **more: object) -> dict[str, Any]:
    """What an answer says of the cache."""
    path, fields = request
    with server.http() as client:
        answer = client.post(path, json={**fields, **more})
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached == usage["anchorline"]["cache"]["cached"] == answer.json()["timings"]["cache_n"]
    told: dict[str, Any] = usage["anchorline"]["cache"]
    return told


def decision(server: Running) -> dict[str, Any]:
    """What an admin is told of the last request."""
    with server.http() as client:
        last: dict[str, Any] = client.get("/v1/cache/stats").json()["last"][-1]["decision"]
    return last


def is_cold(told: dict[str, Any]) -> bool:
    return (told["cached"], told["gate"], told["tier"], told["source"], told["restore_ms"]) == (
        *(0, "cold", "none", "none"),
        0.0,
    )


def stored(server: Running, role: str) -> bool:
    """Whether an entry of the role becomes durable, asked again and again."""
    with server.http() as client:
        asked = (client.get("/v1/cache/entries").json()["entries"] for _ in range(ASKS_MAX))
        return any(one["role"] == role for entries in asked for one in entries)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("first", "second"), [("a", "b"), ("a", None), (None, "b"), ("a", "A"), ("a", "a ")]
)
def test_what_one_user_has_read_is_cold_for_another_in_every_tier(
    start: Callable[[], Any], route: Route, first: str | None, second: str | None
) -> None:
    with start() as server:
        ask(server, route(LONG, first))
        assert ask(server, route(LONG, first))["cached"] > 0  # it is kept
        assert is_cold(ask(server, route(LONG, second)))  # in the slot
        assert (decision(server)["shared"], decision(server)["nearest"]) == (0, 0)
        ask(server, route(OTHER, first))
    with start() as server:
        assert is_cold(ask(server, route(LONG + "x", "c")))  # on disk
        assert (decision(server)["shared"], decision(server)["nearest"]) == (0, 0)
        ask(server, route(OTHER, first))
        again = ask(server, route(LONG, first))

    assert (again["tier"], again["cached"] > 0) == ("disk", True)


def test_one_route_does_not_tell_of_another_users_prompts_on_the_other(
    start: Callable[[], Any],
) -> None:
    """The completions route takes the very ids that a chat becomes."""
    with start() as server:
        path, fields = chat(LONG, "a")
        ask(server, (path, fields))
        with server.http() as client:
            ids = client.post("/tokenize", json=fields).json()["tokens"]
        prompt = ("/v1/completions", {"prompt": ids, "max_tokens": 2})
        own = ask(server, prompt, cache_salt="a")
        others = [ask(server, prompt, cache_salt=salt) for salt in ("b", "c", "")]

    assert own["cached"] > 0
    assert all(map(is_cold, others))


@pytest.mark.parametrize("route", ROUTES)
def test_a_head_of_one_user_is_none_for_another_also_after_a_restart(
    start: Callable[[], Any], store: Store, route: Route
) -> None:
    store.saved_tokens_min = 1 << 20  # a conversation that came back would be no cold read
    with start() as server:
        for number in range(2):
            ask(server, route(f"{LONG}{number}", "a"), session_id=f"s{number}")
            ask(server, route(f"{number}{OTHER}", "b"), session_id=f"t{number}")
        # The last one stays in the slot until its head is copied; one before it may have been cut.
        ask(server, route(f"{LONG}w", "a"), session_id="s")
        assert stored(server, "head")
        assert is_cold(ask(server, route(f"{LONG}x", "c")))
    with start() as server:
        assert is_cold(ask(server, route(f"{LONG}y", "d")))
        own = ask(server, route(f"{LONG}z", "a"))

    assert (own["tier"], own["cached"] > 0) == ("disk", True)


def test_cold_reads_of_two_users_make_no_head_together(start: Callable[[], Any]) -> None:
    with start() as server:
        for salt in ("a", "b", "c", "d"):
            assert is_cold(ask(server, chat(LONG, salt)))
        with server.http() as client:
            client.post("/v1/cache/flush")
            entries = client.get("/v1/cache/entries").json()["entries"]

    assert "head" not in {entry["role"] for entry in entries}


def test_another_user_with_the_same_session_hint_costs_nobody_a_conversation(
    start: Callable[[], Any],
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(start())
        ask(server, chat(LONG, "a"), session_id="mine")
        ask(server, chat(OTHER, "b"), session_id="mine")
        again = ask(server, chat(LONG, "a"), session_id="mine")

    assert (again["tier"], again["cached"] > 0) == ("disk", True)


def test_nothing_that_is_shown_holds_a_salt_or_a_text(start: Callable[[], Any]) -> None:
    with start() as server:
        for number in range(3):
            text = f"{number}: {LONG}"
            ask(server, chat(text, "salt-of-anna"), session_id=f"session-{number}")
        assert stored(server, "conversation")
        with server.http() as client:
            client.post("/v1/cache/flush")
            shown = [
                client.get(path).text
                for path in ("/v1/cache/stats", "/v1/cache/entries", "/metrics", "/health")
            ]
    with start() as server, server.http() as client:
        shown.append(client.get("/v1/cache/entries").text)

    assert "session-2" in shown[1]
    for text in shown:
        assert "anna" not in text
        assert "same long text" not in text
