"""POST /tokenize and POST /detokenize."""

from collections.abc import Mapping
from typing import Any, Final

from litestar import Request, post
from litestar.di import NamedDependency
from msgspec import UNSET, Raw, Struct, UnsetType

from ...application.service import Service
from ...domain.errors import RequestError
from ...domain.tokens import TokenIds
from .chat_calls import chat_call
from .decoding import decode
from .serving import Serving
from .wire_chat import ChatBody

CHARACTERS_MAX: Final = 4 << 20
TOKENS_MAX: Final = 4 << 20
PIECES_MAX: Final = 1 << 18


class TokenizeBody(Struct, frozen=True):
    """A text, or a conversation as `/v1/chat/completions` takes it.

    Attributes:
        content: the text, under llama.cpp's name.
        prompt: the text, under vLLM's name.
        messages: read again as part of a whole chat body.
        add_special: False leaves out the token a text begins with where the model has one.
        with_pieces: list every token with what it stands for.
    """

    content: str | None = None
    prompt: str | None = None
    messages: Raw | UnsetType = UNSET
    add_special: bool | None = None
    with_pieces: bool | None = None


class TokenPiece(Struct, frozen=True):
    """A token; its piece is a text, or bytes as numbers if they are none."""

    id: int
    piece: str | list[int]


class TokensBody(Struct, frozen=True):
    """The tokens of a text or a conversation."""

    tokens: list[int] | list[TokenPiece]
    count: int


class DetokenizeBody(Struct, frozen=True):
    """Token ids."""

    tokens: list[int]


class TextBody(Struct, frozen=True):
    """The text of token ids, special tokens included."""

    content: str


@post("/tokenize", status_code=200)
async def tokenize(
    request: Request[Any, Any, Any], serving: NamedDependency[Serving]
) -> TokensBody:
    """The ids of a text, or of a conversation up to where the answer starts."""
    return await serving.worker.run(
        _tokenized, await request.body(), serving.service, dict(request.headers)
    )


@post("/detokenize", status_code=200)
async def detokenize(
    request: Request[Any, Any, Any], serving: NamedDependency[Serving]
) -> TextBody:
    """The text of ids."""
    return await serving.worker.run(_detokenized, await request.body(), serving.service)


def _tokenized(data: bytes, service: Service, headers: Mapping[str, str]) -> TokensBody:
    body = decode(data, TokenizeBody)
    text = body.prompt if body.content is None else body.content
    if body.messages is not UNSET:
        call = chat_call(decode(data, ChatBody), headers)
        ids = _plain(service.prepare_chat(call).prompt.ids)
    elif text is not None:
        _check_amount(len(text), CHARACTERS_MAX, "prompt" if body.content is None else "content")
        ids = _of_text(service, text, special=body.add_special is not False)
    else:
        raise RequestError(
            "there is nothing to tokenize; give content, prompt or messages", field="content"
        )
    if body.with_pieces:
        _check_amount(len(ids), PIECES_MAX, "with_pieces")
    tokens = [_piece(service, index) for index in ids] if body.with_pieces else ids
    return TokensBody(tokens, len(ids))


def _of_text(service: Service, text: str, *, special: bool) -> list[int]:
    ids = _plain(service.encode(text))
    if special:
        return ids
    # What an empty text is encoded to is what stands before every text.
    beginning = _plain(service.encode(""))
    return ids[len(beginning) :] if ids[: len(beginning)] == beginning else ids


def _plain(ids: TokenIds) -> list[int]:
    return [int(index) for index in ids]


def _piece(service: Service, index: int) -> TokenPiece:
    data = service.token_bytes(index)
    try:
        return TokenPiece(index, data.decode())
    except UnicodeDecodeError:
        return TokenPiece(index, list(data))


def _detokenized(data: bytes, service: Service) -> TextBody:
    ids = decode(data, DetokenizeBody).tokens
    _check_amount(len(ids), TOKENS_MAX, "tokens")
    return TextBody(service.decode(ids))


def _check_amount(found: int, most: int, field: str) -> None:
    """A text takes many times its length as tokens, and that many times again as pieces."""
    if found > most:
        raise RequestError(f"{found} are more at once than the {most} there may be", field=field)
