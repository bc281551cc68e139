"""Log probabilities, in the two shapes OpenAI's API has for them."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ...application.request import Written
from ...domain.sampling import Sampled
from .answer_format import TokenBytes


class TopLogprob(Struct, frozen=True):
    """A token that might have been written.

    Attributes:
        token: its text; U+FFFD stands for bytes that are a part of a character.
        bytes: its bytes, as numbers.
    """

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct, frozen=True):
    """A token that was written, and the likeliest ones at its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, frozen=True):
    """Of the tokens of a chat answer, reasoning and tool calls included."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(Struct, frozen=True):
    """Of the tokens of a completion, as parallel lists.

    Attributes:
        text_offset: where each token starts in the answer, in characters.
    """

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


def tokens_of(written: Iterable[Written]) -> list[Sampled]:
    """All tokens of several events."""
    return [token for event in written for token in event.tokens]


def chat_logprobs(tokens: Sequence[Sampled], token_bytes: TokenBytes) -> ChatLogprobs | None:
    """None where none were asked for, or no token came."""
    if not tokens:
        return None
    return ChatLogprobs([_token_logprob(sampled, token_bytes) for sampled in tokens])


def completion_logprobs(
    tokens: Sequence[Sampled], token_bytes: TokenBytes, *, offset: int
) -> CompletionLogprobs | None:
    """The same for a completion.

    Args:
        offset: characters of the answer that stand before these tokens.
    """
    if not tokens:
        return None
    texts = [_spelled(token_bytes(sampled.token)) for sampled in tokens]
    offsets = [offset]
    for text in texts[:-1]:
        offsets.append(offsets[-1] + len(text))
    return CompletionLogprobs(
        tokens=texts,
        token_logprobs=[_logprob(sampled) for sampled in tokens],
        top_logprobs=[
            {_spelled(token_bytes(token)): logprob for token, logprob in sampled.top}
            for sampled in tokens
        ],
        text_offset=offsets,
    )


def _token_logprob(sampled: Sampled, token_bytes: TokenBytes) -> TokenLogprob:
    data = token_bytes(sampled.token)
    top: list[TopLogprob] = []
    for token, logprob in sampled.top:
        other = token_bytes(token)
        top.append(TopLogprob(_text(other), logprob, list(other)))
    return TokenLogprob(_text(data), _logprob(sampled), list(data), top)


def _logprob(sampled: Sampled) -> float:
    assert sampled.logprob is not None, "tokens are reported with their log probability"
    return sampled.logprob


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _spelled(data: bytes) -> str:
    """A token's text; bytes that are no text are spelled out, so that no two tokens look alike."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
