"""The client's side of a streamed chat over HTTP."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from ...domain.errors import AnchorlineError

if TYPE_CHECKING:  # importing httpx takes as long as all the rest of `anchorline --help`
    import httpx

PATIENCE_S: Final = 600.0
"""How long the server may say nothing: it sends comments while it reads, so this is a dead one."""

_PREFILL: Final = ": prefill "


class TurnFailed(AnchorlineError):
    """A question that got no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The server has read `done` of the prompt's `total` tokens."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Said:
    """New text of the answer; either may be empty."""

    reasoning: str
    content: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer is complete.

    Attributes:
        reason: as OpenAI's API names it: stop, length, ...
        figures: what is known about it, ready to be shown.
    """

    reason: str
    figures: tuple[str, ...]


ChatEvent: TypeAlias = Reading | Said | Ended


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Cache(msgspec.Struct):
    source: str = ""
    gate: str = ""
    cached: int | None = None
    reread: int | None = None


class _Ours(msgspec.Struct):
    cache: _Cache = msgspec.field(default_factory=_Cache)


class _Usage(msgspec.Struct):
    anchorline: _Ours = msgspec.field(default_factory=_Ours)


class _Timings(msgspec.Struct):
    ttft_ms: float | None = None
    predicted_n: int = 0
    predicted_ms: float = 0.0


class _Error(msgspec.Struct):
    message: str


class _Chunk(msgspec.Struct):
    """One event of the stream; other servers' may lack our parts."""

    choices: list[_Choice] = msgspec.field(default_factory=list[_Choice])
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: _Error | None = None


class _ErrorBody(msgspec.Struct):
    error: _Error


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class ChatClient:
    """Asks one server. Use it as a context: it holds a connection."""

    def __init__(self, url: str, api_key: str | None) -> None:
        import httpx  # noqa: PLC0415

        # People paste the base URL that OpenAI's clients take.
        self._url = url.rstrip("/").removesuffix("/v1")
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx.Timeout(10.0, read=PATIENCE_S)
        self._http = httpx.Client(headers=headers, timeout=timeout)

    def __enter__(self) -> "ChatClient":
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def model(self) -> str:
        """The name of the model that is served.

        Raises:
            TurnFailed: no server answers there, or it refuses the key.
        """
        with self._answer("GET", "/v1/models", None) as response:
            try:
                models = msgspec.json.decode(response.read(), type=_Models)
            except msgspec.MsgspecError:
                raise TurnFailed(f"{self._url} is no server of OpenAI's API") from None
        if not models.data:
            raise TurnFailed(f"{self._url} serves no model")
        return models.data[0].id

    def ask(
        self, messages: Sequence[Mapping[str, str]], options: Mapping[str, object]
    ) -> Generator[ChatEvent]:
        """Stream the answer to a conversation; closing the iterator cancels it on the server.

        Args:
            options: further fields of the request's body.

        Raises:
            TurnFailed: the server refused the request, failed, or left before the end.
        """
        body = {
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            **options,
        }
        reason = ""
        last = _Chunk()
        with self._answer("POST", "/v1/chat/completions", body) as response:
            for line in stream_lines(response.iter_bytes()):
                if line.startswith(_PREFILL):
                    yield from _reading(line)
                if not line.startswith("data:") or line.endswith("[DONE]"):
                    continue
                chunk = _decoded(line.removeprefix("data:"))
                for choice in chunk.choices[:1]:
                    reason = choice.finish_reason or reason
                    delta = choice.delta
                    if delta.content or delta.reasoning_content:
                        yield Said(delta.reasoning_content or "", delta.content or "")
                last.usage = chunk.usage or last.usage
                last.timings = chunk.timings or last.timings
        if not reason:
            raise TurnFailed("the server left before the answer's end")
        yield Ended(reason, _figures(last))

    @contextmanager
    def _answer(self, method: str, path: str, body: object) -> "Generator[httpx.Response]":
        """Send a request and wait for a successful answer's headers."""
        import httpx  # noqa: PLC0415

        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            with self._http.stream(
                method, self._url + path, content=content, headers=headers
            ) as response:
                if not response.is_success:
                    raise TurnFailed(_refusal(response.status_code, response.read()))
                yield response
        except httpx.ConnectError:
            raise TurnFailed(
                f"no server answers at {self._url}; start one with: anchorline serve"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TurnFailed(f"{self._url}: {str(error) or type(error).__name__}") from error


def stream_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    r"""The lines of a stream of events.

    They end in `\n` alone: httpx's own `iter_lines` also ends them at characters such as U+2028,
    which stand unescaped in JSON texts.
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r").decode("utf-8", "replace")


def _reading(comment: str) -> Iterator[Reading]:
    done, _, total = comment.removeprefix(_PREFILL).partition("/")
    if done.isdecimal() and total.isdecimal():
        yield Reading(int(done), int(total))


def _decoded(data: str) -> _Chunk:
    try:
        chunk = msgspec.json.decode(data, type=_Chunk)
    except msgspec.MsgspecError as error:
        raise TurnFailed(f"the server sent what is no part of a chat: {error}") from error
    if chunk.error is not None:
        raise TurnFailed(chunk.error.message)
    return chunk


def _refusal(status: int, body: bytes) -> str:
    try:
        message = msgspec.json.decode(body, type=_ErrorBody).error.message
    except msgspec.MsgspecError:
        message = body[:200].decode("utf-8", "replace").strip() or "no message"
    hint = "; give the key with --api-key" if status == 401 else ""
    return f"{message}{hint} (status {status})"


def _figures(last: _Chunk) -> tuple[str, ...]:
    figures: list[str] = []
    if last.usage is not None:
        cache = last.usage.anchorline.cache
        if cache.cached is not None:
            figures.append(f"cached {cache.cached}")
        if cache.reread is not None:
            figures.append(f"re-read {cache.reread}")
        figures.append(", ".join(word for word in (cache.source, cache.gate) if word))
    if last.timings is not None:
        timings = last.timings
        if timings.ttft_ms is not None:
            figures.append(f"first token {timings.ttft_ms:.0f} ms")
        if timings.predicted_ms > 0:
            figures.append(f"{timings.predicted_n / timings.predicted_ms * 1000:.0f} tok/s")
    return tuple(figure for figure in figures if figure)
