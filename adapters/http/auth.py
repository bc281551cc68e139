"""Who may use which route."""

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.types import HTTPScope

OPEN: Final[Mapping[str, object]] = {"access": "open"}
"""Options of a route that needs no key."""

ADMIN: Final[Mapping[str, object]] = {"access": "admin"}
"""Options of an admin route."""

_DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_KEY_HEADERS: Final = ("x-api-key", "x-admin-key")
_PROXY_HEADERS: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class KeyGuard:
    """Litestar's guard of every route.

    The API key opens all routes but those of admins; the admin key opens these. Where there is no
    admin key, admin routes want the API key, if there is one, and a client on this machine.

    A browser on this machine is such a client, whatever page it shows, and sends a form anywhere
    without asking. So admin routes refuse what comes from pages of other hosts, and, where nobody
    needs a key, what is sent to a name that is not this machine's: a name can be made to lead here,
    and a page of that name reads what it gets. Other routes that need no key refuse to work for
    pages of other hosts; without CORS those could not read the answer, but it would be written.
    """

    def __init__(self, *, api_key: str | None, admin_key: str | None) -> None:
        """Takes the keys; None asks for none."""
        self._api_key = api_key
        self._admin_key = admin_key

    async def __call__(
        self, connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
    ) -> None:
        """Let a request pass.

        Raises:
            NotAuthorizedException: it lacks the key.
            PermissionDeniedException: it comes from elsewhere, or from a page of elsewhere.
        """
        access = handler.opt.get("access")
        if access == "open":
            return
        given = list(_given_keys(connection.headers))
        if access != "admin":
            _check(given, self._api_key, "an API key")
            if self._api_key is None and _works_for_others(connection):
                raise PermissionDeniedException(
                    detail="this server does not work for pages of other hosts; "
                    "start it with --api-key to use it from one"
                )
            return
        keyed = self._admin_key is not None or self._api_key is not None
        if not is_own_page(connection.headers, keyed=keyed):
            raise PermissionDeniedException(
                detail="this route does not answer to pages of other hosts"
            )
        if self._admin_key is not None:
            _check(given, self._admin_key, "the admin key")
        else:
            _check(given, self._api_key, "an API key")
            if not _is_here(connection):
                raise PermissionDeniedException(
                    detail="without an admin key this route answers on this machine only; "
                    "start the server with --admin-key to use it from elsewhere"
                )


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own; an IPv4 address may come inside an IPv6 one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    inner = getattr(address, "ipv4_mapped", None) or address
    return bool(inner.is_loopback)


def is_own_page(headers: Mapping[str, str], *, keyed: bool) -> bool:
    """Whether a request comes from a page of this server's own host, or from no page at all.

    Args:
        keyed: False also wants that host to be this machine, by address or as `localhost`.
    """
    origin = headers.get("origin")
    if origin is None:
        # Browsers leave it out of what a page reads from its own host.
        return keyed or "host" not in headers or names_this_machine(f"http://{headers['host']}")
    try:
        page = urlsplit(origin)
        own = urlsplit(f"{page.scheme}://{headers.get('host', '')}")
        port = _DEFAULT_PORTS.get(page.scheme)
        same = (page.hostname, page.port or port) == (own.hostname, own.port or port)
    except ValueError:
        return False
    return same and own.hostname is not None and (keyed or names_this_machine(origin))


def names_this_machine(url: str) -> bool:
    """Whether a URL leads here by its own text, and not by what a name server makes of it."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return False
    return host is not None and (host == "localhost" or is_loopback(host))


def is_foreign_page(headers: Mapping[str, str], *, here: bool) -> bool:
    """Whether a page of another host sends this, as far as its browser tells.

    Pages of this machine do not count, nor do programs and what is built into a browser.

    Args:
        here: the browser runs on this machine: a name that leads here is not trusted then.
    """
    origin = headers.get("origin")
    if origin is None or names_this_machine(origin):
        return False
    if not origin.startswith(("http://", "https://", "null")):
        return False
    # What browsers say themselves: right even where a proxy has put its own host in.
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "cross-site"
    return here or not is_own_page(headers, keyed=True)


def _works_for_others(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    if cast("HTTPScope", connection.scope)["method"] in _READING:
        return False
    return is_foreign_page(connection.headers, here=_is_here(connection))


def _is_here(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether a client on this machine sends this, and no proxy does for another one."""
    client = connection.client
    if client is None or any(name in connection.headers for name in _PROXY_HEADERS):
        return False
    return is_loopback(client.host)


def _given_keys(headers: Mapping[str, str]) -> Iterable[str]:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip()
    for name in _KEY_HEADERS:
        if name in headers:
            yield headers[name]


def _check(given: list[str], wanted: str | None, what: str) -> None:
    if wanted is None:
        return
    # Headers come decoded as Latin-1. Every key is compared, each in constant time.
    matches = [
        hmac.compare_digest(key.encode("latin-1", "replace"), wanted.encode()) for key in given
    ]
    if not any(matches):
        raise NotAuthorizedException(
            detail=f"this route needs {what}, as in 'Authorization: Bearer KEY'",
            headers={"WWW-Authenticate": "Bearer"},
        )
