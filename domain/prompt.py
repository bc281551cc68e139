"""A prompt as the cache sees it: ids, key ids, and the lines where clients' texts part."""

from dataclasses import dataclass

from .tokens import TokenIds


@dataclass(frozen=True, slots=True)
class PromptParts:
    """How many of a prompt's tokens stand for what; they add up to its length."""

    system: int = 0
    tools: int = 0
    history: int = 0
    images: int = 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request asks the model to continue.

    Attributes:
        ids: what the model reads; shape (tokens,).
        key_ids: what caches compare; same shape, equal to `ids` where no media stands.
        last_user: the line where the last user message starts; 0 where there is none. Clients
            edit and retry there, so the grid line below is worth an anchor.
        parts: for the usage report.
        first_answer: the line where the first answer in it starts; None where there is none.
    """

    ids: TokenIds
    key_ids: TokenIds
    last_user: int = 0
    parts: PromptParts = PromptParts()
    first_answer: int | None = None

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.key_ids):
            raise ValueError(f"{len(self.ids)} ids, {len(self.key_ids)} key ids")
        if not 0 <= self.last_user <= len(self.ids):
            raise ValueError(f"a user message at {self.last_user} of {len(self.ids)} tokens")
        if self.first_answer is not None and not 0 <= self.first_answer <= len(self.ids):
            raise ValueError(f"an answer at {self.first_answer} of {len(self.ids)} tokens")

    def __len__(self) -> int:
        return len(self.ids)
