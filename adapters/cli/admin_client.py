"""The client's side of the admin routes."""

from dataclasses import dataclass
from typing import Final

import msgspec

from ...domain.errors import AnchorlineError

PATIENCE_S: Final = 300.0
"""How long an answer may take: more than a server waits for its own flush."""


class AdminFailed(AnchorlineError):
    """A call that got no answer, or was refused; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    status: int
    body: bytes


class _Error(msgspec.Struct):
    message: str


class _ErrorBody(msgspec.Struct):
    error: _Error


class AdminClient:
    """Asks one server. Use it as a context: it holds a connection."""

    def __init__(self, url: str, api_key: str | None, admin_key: str | None) -> None:
        """Asks nothing yet."""
        # Importing it takes as long as all the rest of `anchorline --help`.
        import httpx  # noqa: PLC0415

        self._url = url.rstrip("/")
        headers: dict[str, str] = {}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        if admin_key:
            headers["x-admin-key"] = admin_key
        self._http = httpx.Client(headers=headers, timeout=httpx.Timeout(10.0, read=PATIENCE_S))

    def __enter__(self) -> "AdminClient":
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def ask(
        self, method: str, path: str, *, body: object = None, bad_status: int | None = None
    ) -> Answer:
        """Send a request.

        Args:
            body: sent as JSON; None sends none.
            bad_status: of an answer that is no success, and is to be looked at all the same.

        Raises:
            AdminFailed: no server answers there, or it refuses.
        """
        import httpx  # noqa: PLC0415

        try:
            response = self._http.request(method, self._url + path, json=body)
        except httpx.ConnectError:
            raise AdminFailed(
                f"no server answers at {self._url}; start one with: anchorline serve"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise AdminFailed(f"{self._url}: {str(error) or type(error).__name__}") from error
        if not response.is_success and response.status_code != bad_status:
            raise AdminFailed(_refusal(response.status_code, response.content))
        return Answer(response.status_code, response.content)


def _refusal(status: int, body: bytes) -> str:
    try:
        message = msgspec.json.decode(body, type=_ErrorBody).error.message
    except msgspec.MsgspecError:
        message = body[:200].decode("utf-8", "replace").strip() or "no message"
    hint = "; give the key with --admin-key or --api-key" if status == 401 else ""
    return f"{message}{hint} (status {status})"
