"""POST /v1/chat/completions and POST /v1/completions."""

from collections.abc import Mapping
from typing import Any

from litestar import Request, post
from litestar.di import NamedDependency
from litestar.types import ASGIApp

from ...application.request import GenerationRequest
from ...application.service import Service
from .answer_format import AnswerFormat
from .answering import Answering
from .chat_answers import ChatFormat
from .chat_calls import chat_call
from .completion_answers import CompletionFormat
from .completion_calls import completion_call
from .decoding import decode
from .serving import Serving
from .wire_chat import ChatBody
from .wire_completions import CompletionBody
from .wire_generation import GenerationBody


@post("/v1/chat/completions", status_code=200)
async def chat_completions(
    request: Request[Any, Any, Any], serving: NamedDependency[Serving]
) -> ASGIApp:
    """Answer a conversation."""
    body, prepared = await serving.worker.run(
        _prepare_chat, await request.body(), serving.service, dict(request.headers)
    )
    heading = serving.heading(prepared, streams_usage=body.streams_usage)
    return _answering(serving, body, prepared, ChatFormat(heading, serving.service.token_bytes))


@post("/v1/completions", status_code=200)
async def completions(
    request: Request[Any, Any, Any], serving: NamedDependency[Serving]
) -> ASGIApp:
    """Continue a text or token ids."""
    body, prepared = await serving.worker.run(
        _prepare_completion, await request.body(), serving.service, dict(request.headers)
    )
    heading = serving.heading(prepared, streams_usage=body.streams_usage)
    answer = CompletionFormat(heading, serving.service.token_bytes)
    return _answering(serving, body, prepared, answer)


# A long conversation takes a while to decode and to render, and the loop has others to serve: so
# the two functions below run on a worker thread.


def _prepare_chat(
    data: bytes, service: Service, headers: Mapping[str, str]
) -> tuple[ChatBody, GenerationRequest]:
    body = decode(data, ChatBody)
    return body, service.prepare_chat(chat_call(body, headers))


def _prepare_completion(
    data: bytes, service: Service, headers: Mapping[str, str]
) -> tuple[CompletionBody, GenerationRequest]:
    body = decode(data, CompletionBody)
    return body, service.prepare_completion(completion_call(body, headers))


def _answering(
    serving: Serving, body: GenerationBody, prepared: GenerationRequest, answer: AnswerFormat
) -> ASGIApp:
    return Answering(
        serving.service,
        prepared,
        answer,
        stream=body.streams,
        progress_interval_s=serving.progress_interval_s,
    )
