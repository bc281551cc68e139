"""What the bodies of all generation routes have in common."""

from msgspec import Struct


class StreamOptions(Struct):
    """Options of a stream.

    Attributes:
        include_usage: send a last chunk with the usage and no choice.
    """

    include_usage: bool | None = None


class GenerationBody(Struct, kw_only=True):
    """Fields that chat and completion bodies share; None was not given.

    Ranges are checked where a call is admitted; here stand types alone.

    Attributes:
        user: accepted and not used.
        session_id: ours; a hint that says which requests belong to one conversation.
        prompt_cache_key: OpenAI's name for such a hint.
        cache_salt: state made under one salt is invisible under every other.
        ignore_eos: go on after an end token, for benchmarks.
    """

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    session_id: str | None = None
    prompt_cache_key: str | None = None
    cache_salt: str | None = None
    ignore_eos: bool | None = None

    @property
    def streams(self) -> bool:
        return bool(self.stream)

    @property
    def streams_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)
