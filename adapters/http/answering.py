"""Serving one prepared request to its client, and noticing when the client goes away.

Litestar's own streaming response starts before anything is known of the request, and a handler
that waits for a whole answer never hears that its client left. So generation routes return this
ASGI application, which holds `receive` and `send` itself.
"""

import asyncio
from collections.abc import Coroutine, Iterable

import msgspec
from litestar.types import Receive, Scope, Send

from ...application.request import (
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Written,
)
from ...application.service import Service
from ...domain.errors import Draining
from . import sse
from .answer_format import AnswerFormat
from .errors import error_answer
from .event_stream import EventStream, submitted

_STOP_RETRY_AFTER_S = 30


class Answering:
    """An ASGI application for one request.

    What is raised before the response starts is left to the handler of errors around it, so that
    a full queue still gets its status; afterwards an error is the stream's last event.
    """

    def __init__(
        self,
        service: Service,
        request: GenerationRequest,
        answer: AnswerFormat,
        *,
        stream: bool,
        progress_interval_s: float,
    ) -> None:
        """Submits nothing before it is called."""
        self._service = service
        self._request = request
        self._answer = answer
        self._stream = stream
        self._progress_interval_s = progress_interval_s
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer until the answer is complete or the client has gone; see the class."""
        try:
            async with submitted(self._service, self._request) as events:
                await _while_connected(receive, self._serve(events, send))
        except asyncio.CancelledError:
            # Only a stop of the server whose time is up cancels this task.
            await self._fail(_stopped(), send)
        except Exception as error:
            await self._fail(error, send)

    async def _serve(self, events: EventStream, send: Send) -> None:
        first = await events.next()
        if isinstance(first, Failed):
            raise first.error
        if self._stream:
            await self._serve_stream(events, send, first)
        else:
            await self._serve_whole(events, send)

    async def _serve_whole(self, events: EventStream, send: Send) -> None:
        written: list[Written] = []
        while not isinstance(event := await events.next(), Finished):
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Written):
                written.append(event)
        body = self._answer.whole(written, _complete(event))
        length = str(len(body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await self._start(send, headers)
        await _send_body(send, body, more=False)

    async def _serve_stream(self, events: EventStream, send: Send, first: Event | None) -> None:
        loop = asyncio.get_running_loop()
        await self._start(send, sse.HEADERS)
        progress = sse.Progress(self._progress_interval_s, loop.time())
        progress.note(first)
        while not isinstance(event := await events.next(progress.due_s), Finished):
            if isinstance(event, Failed):
                raise event.error
            progress.note(event)
            out = self._written(event) if isinstance(event, Written) else b""
            if not out and loop.time() >= progress.due_s:
                out = progress.comment()
            if out:
                await _send_body(send, out, more=True)
                progress.sent(loop.time())
        last = self._answer.last_chunks(_complete(event))
        await _send_body(send, b"".join((*map(sse.data, last), sse.DONE)), more=False)

    def _written(self, event: Written) -> bytes:
        return b"".join(map(sse.data, self._answer.chunks(event)))

    async def _start(self, send: Send, headers: Iterable[tuple[bytes, bytes]]) -> None:
        request_id = (b"x-request-id", self._request.id.encode("latin-1", "replace"))
        self._started = True
        await send(
            {"type": "http.response.start", "status": 200, "headers": [*headers, request_id]}
        )

    async def _fail(self, error: Exception, send: Send) -> None:
        if not (self._started and self._stream):
            raise error
        body = msgspec.json.encode(error_answer(error).body)
        await _send_body(send, sse.data(body), more=False)


async def _while_connected(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Run `work` to its end, or stop it when the client disconnects.

    Raises what `work` raises; returns when the client has gone.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()  # does nothing to a task that is done
        watching.cancel()
        await asyncio.wait((working, watching))
    if not working.cancelled():
        working.result()


async def _gone(receive: Receive) -> None:
    """Returns once the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _complete(finished: Finished) -> Finished:
    """Raises for an answer that ended although its client is there: the server gave it up."""
    if finished.reason is FinishReason.CANCELLED:
        raise _stopped()
    return finished


def _stopped() -> Draining:
    return Draining(
        "the server stopped before the answer was complete", retry_after_s=_STOP_RETRY_AFTER_S
    )


async def _send_body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
