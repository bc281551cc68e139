"""Who may use which route."""

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler

OPEN: Final[Mapping[str, object]] = {"access": "open"}
"""Options of a route that needs no key."""

ADMIN: Final[Mapping[str, object]] = {"access": "admin"}
"""Options of an admin route."""

_KEY_HEADERS: Final = ("x-api-key", "x-admin-key")


class KeyGuard:
    """Litestar's guard of every route.

    The API key opens all routes but those of admins; the admin key opens these. Where there is no
    admin key, admin routes want the API key, if there is one, and a client on this machine.
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
            PermissionDeniedException: it comes from elsewhere.
        """
        access = handler.opt.get("access")
        if access == "open":
            return
        given = list(_given_keys(connection.headers))
        if access != "admin":
            _check(given, self._api_key, "an API key")
        elif self._admin_key is not None:
            _check(given, self._admin_key, "the admin key")
        else:
            _check(given, self._api_key, "an API key")
            client = connection.client
            if client is None or not is_loopback(client.host):
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
