"""One request's text: stop strings, ends, limits, reasoning and tool calls."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.toy_tokenizer import TURN_END, VOCABULARY, ToyTokenizer
from anchorline.application.generation import Generation
from anchorline.application.request import (
    Decision,
    Event,
    Finished,
    FinishReason,
    Written,
)
from anchorline.domain.conversation import Piece, PieceKind
from anchorline.domain.entry import Source, Tier
from anchorline.domain.errors import EngineError
from anchorline.domain.sampling import Logits
from anchorline.domain.taint_line import Gate
from support.builders import a_prompt, a_request

COLD = Decision(Tier.NONE, Source.NONE, Gate.COLD, 0, 3, 0.0, 0, 0, 0)


@dataclass
class Writing:
    """A generation that is handed the tokens of a text, as if a model had written it."""

    stop: tuple[str, ...] = ()
    max_tokens: int = 100
    chat: bool = False
    opens_reasoning: bool = False
    tools: bool = False
    events: list[Event] = field(default_factory=list[Event])

    def __post_init__(self) -> None:
        request = a_request(
            a_prompt([1, 2, 3]),
            max_tokens=self.max_tokens,
            stop=self.stop,
            chat=self.chat,
            opens_reasoning=self.opens_reasoning,
            tools=self.tools,
            ignore_end=False,
        )
        profile = CheckableEngine(window=512, grid=64, vocabulary=VOCABULARY).profile
        self.generation = Generation(
            request, self.events.append, COLD, profile, ToyTokenizer(), 1.0
        )

    def write(self, text: str, *, ends: bool = True) -> Finished:
        """Hand over a text's tokens, and the end token behind it."""
        tokens = [int(token) for token in ToyTokenizer().encode(text)]
        tokens += [TURN_END] if ends else []
        span, _ = self.generation.next_chunk()
        self.generation.chunk_done(span, _one(tokens[0]), 2.0)
        for at, token in enumerate(tokens[1:]):
            if self.generation.finished:
                break
            self.generation.token_done(_one(token), 3.0 + at)
        return self.generation.close(9.0)

    def pieces(self) -> list[Piece]:
        """What was sent, neighbours of one kind joined."""
        joined: list[Piece] = []
        for event in self.events:
            for piece in event.pieces if isinstance(event, Written) else ():
                if joined and joined[-1].kind is piece.kind and piece.call is None:
                    joined[-1] = Piece(piece.kind, joined[-1].text + piece.text)
                else:
                    joined.append(piece)
        return joined

    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces())


def _one(token: int) -> Logits:
    logits = np.zeros(VOCABULARY, dtype=np.float32)
    logits[token] = 1.0
    return logits


def test_an_end_token_ends_an_answer_and_is_not_shown() -> None:
    writing = Writing()

    finished = writing.write("Hello!")

    assert finished.reason is FinishReason.STOP
    assert writing.text() == "Hello!"
    assert finished.usage.completion == 7


def test_a_limit_ends_an_answer_at_that_many_tokens() -> None:
    writing = Writing(max_tokens=3)

    finished = writing.write("Hello!")

    assert finished.reason is FinishReason.LENGTH
    assert writing.text() == "Hel"
    assert finished.usage.completion == 3


def test_a_stop_string_is_never_shown_not_even_its_beginning() -> None:
    writing = Writing(stop=("END",))

    finished = writing.write("one EN two END three")

    assert finished.reason is FinishReason.STOP
    assert writing.text() == "one EN two "


def test_what_only_looked_like_a_stop_string_is_shown_in_the_end() -> None:
    writing = Writing(stop=("END",))

    finished = writing.write("one EN")

    assert writing.text() == "one EN"
    assert finished.reason is FinishReason.STOP


def test_a_character_is_shown_only_when_it_is_whole() -> None:
    writing = Writing()
    writing.write("grün €")

    shown = [
        piece.text
        for event in writing.events
        if isinstance(event, Written)
        for piece in event.pieces
    ]

    assert "".join(shown) == "grün €"
    assert all("\ufffd" not in text for text in shown)


def test_reasoning_and_content_come_apart_and_reasoning_is_counted() -> None:
    writing = Writing(chat=True, opens_reasoning=True)

    finished = writing.write("I think.\n</think>\n\nYes.")

    assert writing.pieces() == [
        Piece(PieceKind.REASONING, "I think."),
        Piece(PieceKind.CONTENT, "Yes."),
    ]
    assert 8 <= finished.usage.reasoning <= 13


def test_a_tool_call_is_the_reason_an_answer_ended() -> None:
    writing = Writing(chat=True, tools=True)

    finished = writing.write('<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>')

    assert finished.reason is FinishReason.TOOL_CALLS
    call = writing.pieces()[0].call
    assert call is not None
    assert call.name == "look"


def test_a_limit_of_no_tokens_only_reads_the_prompt() -> None:
    writing = Writing(max_tokens=0)

    finished = writing.write("x")

    assert finished.reason is FinishReason.LENGTH
    assert finished.usage.completion == 0
    assert writing.text() == ""


def test_timings_add_up_from_the_arrival() -> None:
    finished = Writing().write("ab")

    assert finished.timings.queue_s == 1.0
    assert finished.timings.prompt_s == 1.0
    assert finished.timings.ttft_s == 2.0
    assert finished.timings.predicted_s == 7.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_give_the_state_up(bad: float) -> None:
    writing = Writing()
    logits = _one(5)
    logits[9] = bad
    span, _ = writing.generation.next_chunk()

    with pytest.raises(EngineError):
        writing.generation.chunk_done(span, logits, 2.0)
