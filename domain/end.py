"""The end of a generation: what makes its state the one that the next turn resumes from."""

from dataclasses import dataclass

from .grid import Span


@dataclass(frozen=True, slots=True)
class End:
    """What is known about a conversation's end at `line`.

    Attributes:
        line: the last position the engine forwarded. The token sampled last is usually the end
            token and was not forwarded: a next prompt brings it along.
        hidden: spans of tokens that stand in the rows and that no client has seen.
        regions: the spans that generations wrote, oldest first.
    """

    line: int
    hidden: tuple[Span, ...] = ()
    regions: tuple[Span, ...] = ()

    def __post_init__(self) -> None:
        for span in (*self.hidden, *self.regions):
            if span.end > self.line:
                raise ValueError(f"{span} reaches beyond the end at {self.line}")
