"""Who may use which route."""

from collections.abc import Generator, Iterator, Mapping

import openai
import pytest

from anchorline.adapters.http.auth import is_loopback
from support.server import Options, Running, running_server

API_KEY = "sesame-ä"
ADMIN_KEY = "open-admin"
ROUTES = (
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/checkable"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/metrics"),
)
ADMIN = ("GET", "/v1/cache/stats")


@pytest.fixture(scope="module")
def keyed() -> Generator[Running]:
    with running_server(Options(api_key=API_KEY)) as running:
        yield running


@pytest.fixture(scope="module")
def both_keys() -> Generator[Running]:
    with running_server(Options(api_key=API_KEY, admin_key=ADMIN_KEY)) as running:
        yield running


def raw(headers: Mapping[str, bytes]) -> Iterator[tuple[bytes, bytes]]:
    """As bytes on both sides: a key need not be ASCII."""
    return ((name.encode(), value) for name, value in headers.items())


def status(server: Running, route: tuple[str, str], headers: dict[str, bytes]) -> int:
    with server.http() as client:
        return client.request(*route, headers=list(raw(headers))).status_code


@pytest.mark.parametrize(("method", "path"), [*ROUTES, ADMIN])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": b"Bearer wrong"},
        {"authorization": b"Bearer"},
        {"authorization": f"Basic {API_KEY}".encode()},
        {"authorization": f"Bearer {API_KEY}x".encode()},
        {"x-api-key": b""},
    ],
    ids=["none", "wrong", "empty", "another scheme", "longer", "empty header"],
)
def test_a_request_without_the_key_is_refused(
    keyed: Running, method: str, path: str, headers: dict[str, bytes]
) -> None:
    with keyed.http() as client:
        answer = client.request(method, path, headers=list(raw(headers)))

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")


def test_health_needs_no_key(both_keys: Running) -> None:
    assert status(both_keys, ("GET", "/health"), {}) == 200


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
def test_the_key_opens_every_route(keyed: Running, method: str, path: str, name: str) -> None:
    value = f"Bearer {API_KEY}" if name == "authorization" else API_KEY

    # Posts without a body are refused for that, once the key has let them in.
    expected = 400 if method == "POST" else 200
    assert status(keyed, (method, path), {name: value.encode()}) == expected


def test_without_an_admin_key_admin_routes_take_the_api_key_from_this_machine(
    keyed: Running,
) -> None:
    assert status(keyed, ADMIN, {"x-api-key": API_KEY.encode()}) == 200


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "x-admin-key"])
def test_the_admin_key_opens_admin_routes(both_keys: Running, name: str) -> None:
    value = f"Bearer {ADMIN_KEY}" if name == "authorization" else ADMIN_KEY

    assert status(both_keys, ADMIN, {name: value.encode()}) == 200


def test_the_api_key_opens_no_admin_route_once_there_is_an_admin_key(both_keys: Running) -> None:
    assert status(both_keys, ADMIN, {"x-api-key": API_KEY.encode()}) == 401


def test_the_admin_key_opens_no_other_route(both_keys: Running) -> None:
    assert status(both_keys, ("GET", "/v1/models"), {"x-api-key": ADMIN_KEY.encode()}) == 401


def test_both_keys_may_come_together(both_keys: Running) -> None:
    headers = {"authorization": f"Bearer {API_KEY}".encode(), "x-admin-key": ADMIN_KEY.encode()}

    assert status(both_keys, ADMIN, headers) == 200
    assert status(both_keys, ("GET", "/v1/models"), headers) == 200


def test_without_an_admin_key_admin_routes_refuse_other_machines(shared_server: Running) -> None:
    # What a proxy on this machine says of whom it speaks for.
    headers = {"x-forwarded-for": b"203.0.113.7"}

    assert status(shared_server, ADMIN, headers) == 403
    assert status(shared_server, ("GET", "/v1/models"), headers) == 200
    assert status(shared_server, ADMIN, {}) == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("fe80::1", False),
        ("", False),
        ("testclient", False),
    ],
)
def test_an_address_is_this_machines_own_or_not(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_the_official_client_is_refused_by_its_own_error(keyed: Running) -> None:
    with keyed.openai(api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
