"""The body of a completion."""

from .wire_generation import GenerationBody


class CompletionBody(GenerationBody, kw_only=True):
    """A text, or token ids, to continue.

    Attributes:
        prompt: a text, its token ids, or a list that holds one of either.
        logprobs: how many alternatives to report per token.
        best_of: only 1.
        echo: only False.
        suffix: not supported; only "" and None.
    """

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None
