"""Who may do what, asked by those who may not: proxies, other hosts' pages, borrowed names."""

import asyncio
import hmac
from collections.abc import Generator, Mapping

import httpx
import pytest
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from anchorline.adapters.http import auth
from support.errors import checked
from support.server import Options, Running, running_server

CHAT = "/v1/chat/completions"
BODY = b'{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}'
ADMIN = (
    ("GET", "/v1/cache/stats"),
    ("GET", "/v1/cache/entries"),
    ("POST", "/v1/cache/clear"),
    ("POST", "/v1/cache/flush"),
    ("GET", "/v1/cache/limits"),
    ("POST", "/v1/cache/limits"),
    ("POST", "/v1/cache/sessions/mine/close"),
)
API_KEY, ADMIN_KEY = "sesame", "open-admin"


@pytest.fixture(scope="module")
def keyed() -> Generator[Running]:
    with running_server(Options(api_key=API_KEY, admin_key=ADMIN_KEY)) as running:
        yield running


def asked_from(
    server: Running, address: str, route: tuple[str, str], headers: Mapping[str, str] | None = None
) -> int:
    """The status for a client at an address, which no socket of this machine can have."""

    async def ask() -> int:
        transport = httpx.ASGITransport(server.app, client=(address, 4711))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as own:
            return (await own.request(*route, headers=headers)).status_code

    return asyncio.run(ask())


def opened(status: int) -> bool:
    """Whether a request got past the guard; a flush without a disk tier is a 503."""
    return status not in {401, 403}


# --- other machines -------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ADMIN)
@pytest.mark.parametrize("address", ["203.0.113.7", "10.0.0.2", "fe80::1", "::ffff:10.0.0.2", ""])
def test_admin_routes_without_a_key_refuse_other_machines(
    shared_server: Running, route: tuple[str, str], address: str
) -> None:
    assert asked_from(shared_server, address, route) == 403


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"])
def test_admin_routes_without_a_key_answer_on_this_machine(
    shared_server: Running, address: str
) -> None:
    assert asked_from(shared_server, address, ADMIN[0]) == 200


@pytest.mark.parametrize("address", ["203.0.113.7", "127.0.0.1", "::1"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-for", "127.0.0.1, ::1"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-for", ""),
        ("forwarded", "for=127.0.0.1;host=localhost"),
        ("forwarded", "for=203.0.113.7"),
        ("x-real-ip", "127.0.0.1"),
        ("x-forwarded-host", "localhost"),
        ("via", "1.1 proxy"),
    ],
)
def test_nobody_is_on_this_machine_because_a_proxy_says_so(
    shared_server: Running, address: str, name: str, value: str
) -> None:
    assert asked_from(shared_server, address, ADMIN[0], {name: value}) == 403


def test_what_the_environment_says_of_proxies_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    with running_server(Options()) as server, server.http() as client:
        spoofed = client.get(ADMIN[0][1], headers={"x-forwarded-for": "127.0.0.1, 203.0.113.7"})

    assert spoofed.status_code == 403


# --- names that are made to lead here -------------------------------------------------------------


@pytest.mark.parametrize("route", ADMIN)
@pytest.mark.parametrize(
    "host", ["evil.example:8000", "localhost.evil.example", "10.0.0.2", "", "["]
)
def test_a_name_that_is_not_this_machines_opens_no_admin_route_without_a_key(
    shared_server: Running, route: tuple[str, str], host: str
) -> None:
    with shared_server.http() as client:
        # What a browser sends for a page that reads from its own host: no Origin at all.
        answer = client.request(*route, headers={"host": host})

    assert checked(answer, 403)["code"] == "forbidden"


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000"])
def test_this_machines_own_names_open_admin_routes(shared_server: Running, host: str) -> None:
    with shared_server.http() as client:
        assert client.get(ADMIN[0][1], headers={"host": host}).status_code == 200


def test_with_its_key_an_admin_may_use_any_name(keyed: Running) -> None:
    headers = {"host": "box.example", "x-admin-key": ADMIN_KEY}
    with keyed.http() as client:
        assert client.get(ADMIN[0][1], headers=headers).status_code == 200


# --- pages of other hosts -------------------------------------------------------------------------

FOREIGN = (
    {"origin": "https://evil.example"},
    {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    {"origin": "null", "sec-fetch-site": "cross-site"},
    {"origin": "null"},
    # A name that its owner made to lead to this machine: the page is the server's own by it.
    {"origin": "http://evil.example:8000", "host": "evil.example:8000"},
)
WELCOME: tuple[dict[str, str], ...] = (
    {},
    {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"},
    {"origin": "http://127.0.0.1:8000", "host": "127.0.0.1:8000"},
    {"origin": "chrome-extension://abc", "sec-fetch-site": "cross-site"},
    {"origin": "tauri://localhost"},
    # A proxy that puts its own name in the place of the page's.
    {"origin": "https://box.example", "host": "127.0.0.1:8000", "sec-fetch-site": "same-origin"},
)


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/tokenize", "/detokenize"])
@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_without_a_key_nothing_is_done_for_pages_of_other_hosts(
    server: Running, path: str, headers: dict[str, str]
) -> None:
    # A form and a script without permission may send this kind of text, and no JSON.
    simple = {"content-type": "text/plain", **headers}
    with server.http() as client:
        answer = client.post(path, content=BODY, headers=simple)

    assert checked(answer, 403)["code"] == "forbidden"
    assert server.service.submitted.empty()


@pytest.mark.parametrize("headers", WELCOME, ids=str)
def test_programs_and_pages_of_this_machine_are_served(
    shared_server: Running, headers: dict[str, str]
) -> None:
    with shared_server.http() as client:
        assert client.post(CHAT, content=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_with_its_key_a_page_is_served_whatever_its_host(
    keyed: Running, headers: dict[str, str]
) -> None:
    with keyed.http() as client:
        answer = client.post(CHAT, content=BODY, headers={"x-api-key": API_KEY, **headers})

    assert answer.status_code == 200


def test_a_page_on_another_machine_is_served_by_its_own_host_alone(shared_server: Running) -> None:
    own = {"origin": "http://box.lan:8000", "host": "box.lan:8000"}
    other = {"origin": "https://evil.example", "host": "box.lan:8000"}

    assert asked_from(shared_server, "10.0.0.2", ("POST", CHAT), other) == 403
    assert asked_from(shared_server, "10.0.0.2", ("POST", CHAT), own) == 400  # it has no body


@pytest.mark.parametrize("path", [CHAT, "/health", "/v1/models", "/v1/cache/entries"])
def test_no_answer_invites_pages_of_other_hosts(shared_server: Running, path: str) -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    with shared_server.http() as client:
        answers = [client.request(one, path, headers=headers) for one in ("OPTIONS", "GET", "POST")]

    for answer in answers:
        assert not [name for name in answer.headers if name.startswith("access-control")]


# --- keys -----------------------------------------------------------------------------------------


def test_every_route_but_the_open_ones_wants_a_key(keyed: Running) -> None:
    asked = 0
    with keyed.http() as client:
        for route in keyed.app.routes:
            assert isinstance(route, HTTPRoute)
            for handler in route.route_handlers:
                assert isinstance(handler, HTTPRouteHandler)
                if handler.opt.get("access") == "open" or "OPTIONS" in handler.http_methods:
                    continue
                path = route.path.replace("{model:path}", "checkable")
                for method in sorted(handler.http_methods):
                    asked += 1
                    assert client.request(method, path).status_code == 401, (method, path)
    assert asked >= 10
    assert [one.path for one in keyed.app.routes if _is_open(one)] == ["/health"]


def _is_open(route: object) -> bool:
    assert isinstance(route, HTTPRoute)
    return any(handler.opt.get("access") == "open" for handler in route.route_handlers)


def test_a_key_in_the_address_opens_nothing(keyed: Running) -> None:
    with keyed.http() as client:
        answer = client.get("/v1/models", params={"api_key": API_KEY, "key": API_KEY})

    assert answer.status_code == 401


def test_keys_are_compared_in_constant_time_and_all_of_them(
    keyed: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    honest = hmac.compare_digest

    def record(given: bytes, wanted: bytes) -> bool:
        compared.append((given, wanted))
        return honest(given, wanted)

    monkeypatch.setattr(auth.hmac, "compare_digest", record)
    headers = {"authorization": "Bearer s", "x-api-key": API_KEY, "x-admin-key": "sesam"}
    with keyed.http() as client:
        assert client.get("/v1/models", headers=headers).status_code == 200

    assert sorted(compared) == [(given, b"sesame") for given in (b"s", b"sesam", b"sesame")]


def test_a_refusal_repeats_no_key(keyed: Running) -> None:
    with keyed.http() as client:
        answers = [
            client.get(path, headers={"authorization": "Bearer WRONG-KEY", "x-admin-key": "OTHER"})
            for path in ("/v1/models", "/v1/cache/stats")
        ]

    for answer in answers:
        assert checked(answer, 401)["code"] == "invalid_api_key"
        for text in ("WRONG-KEY", "OTHER", API_KEY, ADMIN_KEY):
            assert text not in answer.text


# --- names in addresses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "%00",
        "checkable%00",
        "a%0d%0aset-cookie:%20x",
        "a" * 8000,
        "%ff%fe",
        "%E2%80%AE",
    ],
    ids=lambda name: name[:24],
)
def test_a_models_name_is_compared_and_leads_nowhere(shared_server: Running, name: str) -> None:
    with shared_server.http() as client:
        answer = client.get(f"/v1/models/{name}")

    error = checked(answer, 404)
    assert error["code"] in {"model_not_found", "unknown_url"}
    assert "set-cookie" not in answer.headers
    assert len(answer.content) < 20_000
