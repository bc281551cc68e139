"""Whole conversations over HTTP with the official client, beside a server without a cache.

Both servers are asked the very same questions: each turn's messages hold the answers of the server
with the cache, as its client received them. So a turn's two answers continue the same prompt.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias, cast

import httpx
import msgspec
import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from anchorline.adapters.http.usage import CacheReport
from anchorline.settings import ServeSettings
from support.near_tie import Step, kinship
from support.running_server import require_model, running_server

Message: TypeAlias = Mapping[str, str]
Record: TypeAlias = Callable[[str, object], None]

FACTS: Final = (
    "You know these facts. Anna lives in Rome. Ben has a red lamp. The code of Carla is 42. "
    "David likes soup. Emma works as a baker. Felix is 31 years old. The favourite colour of "
    "Grace is green. Hugo lives in Oslo. Iris has a blue kite. Jack likes pears. Kira works as a "
    "pilot. The code of Leo is 77. Mia is 54 years old. Noah lives in Cairo. Olga has a white "
    "drum. Peter is 19 years old. Quinn likes milk. The favourite colour of Rosa is pink. Sam "
    "works as a judge."
)
"""More than two steps of toy's grid."""

TOY_QUESTIONS: Final = (
    "Where does Anna live?",
    "What is the capital of France?",
    "What does Ben have?",
    "What is 3 + 4?",
    "Remember that Paul lives in Lima.",
    "What is the opposite of hot?",
)
"""Of the kinds that the model was trained on, see scripts/toy_corpus.py."""

SMOLLM2_QUESTIONS: Final = (
    "What is the capital of France?",
    "And of Italy?",
    "Which of the two is larger?",
)


@dataclass(frozen=True, slots=True)
class Talk:
    """What is said to a model."""

    model: str
    system: str
    questions: tuple[str, ...]
    max_tokens: int


TOY: Final = Talk("toy", FACTS, TOY_QUESTIONS, 64)
SMOLLM2: Final = Talk("smollm2", "Answer in one short sentence.", SMOLLM2_QUESTIONS, 20)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as the client received it.

    Attributes:
        steps: every sampled token, the end token included.
    """

    content: str
    reasoning: str
    prompt_tokens: int
    completion_tokens: int
    cache: CacheReport
    steps: tuple[Step, ...]

    def message(self, *, stripped: bool = False) -> Message:
        """The answer as clients send it back; a stripping client keeps no reasoning."""
        message = {"role": "assistant", "content": self.content}
        if self.reasoning and not stripped:
            message["reasoning_content"] = self.reasoning
        return message


@dataclass(frozen=True, slots=True)
class Turn:
    """One question to both servers.

    Attributes:
        prompt: the bytes of each token of the rendered conversation.
        answer: of the server with the cache.
        cold: of the one without.
    """

    prompt: tuple[bytes, ...]
    answer: Answer
    cold: Answer

    @property
    def held(self) -> tuple[bytes, ...]:
        """What the server holds after the turn: all but the token that was sampled last."""
        return (*self.prompt, *(step.token for step in self.answer.steps[:-1]))


@dataclass(frozen=True, slots=True)
class Pair:
    """A server with the cache and one without, and a client of each."""

    talk: Talk
    grid: int
    cached: openai.OpenAI
    cold: openai.OpenAI
    http: httpx.Client

    def ask(self, messages: Sequence[Message], salt: str) -> Turn:
        return Turn(
            self._tokens(messages),
            self._answer(self.cached, messages, salt),
            self._answer(self.cold, messages, salt),
        )

    def converse(
        self, salt: str, *, turns: int | None = None, stripped: bool = False
    ) -> tuple[list[Turn], list[Message]]:
        """A conversation from its start, in a namespace of its own; also all its messages."""
        messages: list[Message] = [{"role": "system", "content": self.talk.system}]
        talk: list[Turn] = []
        for question in self.talk.questions[:turns]:
            messages.append({"role": "user", "content": question})
            talk.append(self.ask(messages, salt))
            messages.append(talk[-1].answer.message(stripped=stripped))
        return talk, messages

    def _answer(self, client: openai.OpenAI, messages: Sequence[Message], salt: str) -> Answer:
        chunks = client.chat.completions.create(
            model=self.talk.model,
            messages=cast("list[ChatCompletionMessageParam]", list(messages)),
            max_tokens=self.talk.max_tokens,
            temperature=0,
            logprobs=True,
            top_logprobs=20,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"cache_salt": salt},
        )
        return received(list(chunks))

    def _tokens(self, messages: Sequence[Message]) -> tuple[bytes, ...]:
        answer = self.http.post("/tokenize", json={"messages": messages, "with_pieces": True})
        assert answer.status_code == 200, answer.text
        pieces: list[dict[str, str | list[int]]] = answer.json()["tokens"]
        return tuple(_bytes_of(token["piece"]) for token in pieces)


def received(chunks: Sequence[ChatCompletionChunk]) -> Answer:
    """Put a stream together, as clients do."""
    texts = {"content": "", "reasoning_content": ""}
    steps: list[Step] = []
    usage = chunks[-1].usage
    assert usage is not None
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        for name in texts:
            texts[name] += cast("str | None", getattr(choice.delta, name, None)) or ""
        for token in (choice.logprobs and choice.logprobs.content) or ():
            top = {bytes(other.bytes or ()): other.logprob for other in token.top_logprobs}
            steps.append(Step(bytes(token.bytes or ()), top))
    own = cast("dict[str, Any]", usage.model_extra)["anchorline"]
    return Answer(
        content=texts["content"],
        reasoning=texts["reasoning_content"],
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cache=msgspec.convert(own["cache"], CacheReport),
        steps=tuple(steps),
    )


def _bytes_of(piece: str | list[int]) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)


def shared(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many leading tokens two sequences have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def floor(line: int, grid: int) -> int:
    return line // grid * grid


def _pair(talk: Talk) -> Generator[Pair]:
    def settings(cache: Literal["on", "off"]) -> ServeSettings:
        return ServeSettings(model=talk.model, dtype="float32", cache=cache, disk="off")

    require_model(talk.model)
    with (
        running_server(settings("on")) as cached,
        running_server(settings("off")) as cold,
        cached.openai() as cached_client,
        cold.openai() as cold_client,
        cached.http() as http,
    ):
        yield Pair(talk, cached.grid, cached_client, cold_client, http)


@pytest.fixture(scope="module")
def toy() -> Generator[Pair]:
    yield from _pair(TOY)


@pytest.fixture(scope="module")
def smollm2() -> Generator[Pair]:
    yield from _pair(SMOLLM2)


@pytest.fixture(scope="module", params=["toy", "smollm2"])
def talk(request: pytest.FixtureRequest) -> list[Turn]:
    """A whole conversation of a client that sends back all that it received."""
    pair = cast("Pair", request.getfixturevalue(cast("str", request.param)))
    turns, _ = pair.converse("whole")
    return turns


def test_every_next_turn_resumes_at_the_end_and_rereads_only_its_own_tokens(
    talk: list[Turn],
) -> None:
    for number, (before, turn) in enumerate(pairwise(talk), start=2):
        same = shared(before.held, turn.prompt)
        assert same == len(before.held), (
            f"turn {number} cannot resume at the end, and no cache is to blame: the answer "
            f"{before.answer.message()} was written as {before.held[same:]} and is rendered back "
            f"as {turn.prompt[same : len(before.held)]}; ask for something that the model answers"
        )
        cache = turn.answer.cache

        assert (cache.tier, cache.source, cache.gate) == ("slot", "end", "preserved")
        assert cache.cached == before.answer.prompt_tokens + before.answer.completion_tokens - 1
        assert cache.reread == turn.answer.prompt_tokens - cache.cached


def test_every_turn_of_the_server_without_a_cache_is_cold(talk: list[Turn]) -> None:
    for turn in talk:
        cache = turn.cold.cache

        assert (cache.tier, cache.source, cache.gate) == ("none", "none", "cold")
        assert (cache.cached, cache.reread) == (0, len(turn.prompt))


def test_usage_counts_the_tokens_that_were_rendered_and_sampled(talk: list[Turn]) -> None:
    for turn in talk:
        for answer in (turn.answer, turn.cold):
            assert answer.prompt_tokens == len(turn.prompt)
            assert answer.completion_tokens == len(answer.steps)


def test_answers_equal_those_of_a_server_without_a_cache_up_to_near_ties(
    talk: list[Turn], record_property: Record
) -> None:
    for number, turn in enumerate(talk, start=1):
        found = kinship(turn.answer.steps, turn.cold.steps)

        record_property(f"turn {number}", str(found))
        if found.parts_at is None:
            assert turn.answer.content == turn.cold.content
            assert turn.answer.reasoning == turn.cold.reasoning


def test_an_edit_of_the_last_message_resumes_on_the_grid_and_equals_a_cold_run(toy: Pair) -> None:
    """The history is the client's own, as after a restart, so all of it was read on the grid."""
    messages: list[Message] = [{"role": "system", "content": FACTS}]
    for question in TOY_QUESTIONS[:3]:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": "I do not know.", "reasoning_content": ""})
    first = toy.ask([*messages, {"role": "user", "content": "Where does Hugo live?"}], "edit")
    assert first.answer.cache.gate == "cold"

    for text in ("What does Iris have?", "Hello!", "Hello!"):
        before = first
        first = toy.ask([*messages, {"role": "user", "content": text}], "edit")
        same = shared(before.prompt, first.prompt)
        cache = first.answer.cache

        assert (cache.source, cache.gate) == ("resident", "bitwise")
        assert cache.cached == floor(min(same, len(first.prompt) - 1), toy.grid) > toy.grid
        assert first.answer.steps == first.cold.steps
        assert first.answer.message() == first.cold.message()


@pytest.mark.parametrize("turns", [2, len(TOY_QUESTIONS)])
def test_an_edit_in_a_conversation_that_was_written_here_resumes_as_its_gate_says(
    toy: Pair, turns: int
) -> None:
    """The end before the last one stays for a while: an edit of the last question goes on there."""
    salt = f"edit of {turns} turns"
    talk, messages = toy.converse(salt, turns=turns)

    turn = toy.ask([*messages[:-2], {"role": "user", "content": "Who are you?"}], salt)

    cache, same = turn.answer.cache, shared(talk[-1].held, turn.prompt)
    assert len(talk[-2].held) <= same
    assert (cache.source, cache.cached) == ("end", len(talk[-2].held))
    assert cache.gate == "preserved"
    kinship(turn.answer.steps, turn.cold.steps)


def test_a_client_that_strips_the_reasoning_resumes_lower_and_is_answered_as_if_cold(
    toy: Pair,
) -> None:
    """Each turn parts from what is held where the last answer's reasoning began.

    So it rereads that answer, without its reasoning, beside its own tokens and less than a step of
    the grid; and as nothing that decode wrote is ever used, every gate is bitwise.
    """
    turns, _ = toy.converse("stripped", stripped=True)

    for before, turn in pairwise(turns):
        same, cache = shared(before.held, turn.prompt), turn.answer.cache
        assert before.answer.reasoning, "the model did not reason, so nothing was stripped"
        assert same <= len(before.prompt)
        assert (cache.source, cache.gate) == ("resident", "bitwise")
        assert cache.cached == floor(same, toy.grid)
        assert turn.answer.steps == turn.cold.steps


def step(token: bytes, **top: float) -> Step:
    return Step(token, {name.encode(): logprob for name, logprob in top.items()})


def test_runs_of_the_same_tokens_are_kin_and_say_how_far_they_are_apart() -> None:
    ours = [step(b"a", a=-0.5, b=-9.5), step(b"b", a=-10.5, b=-0.5)]
    cold = [step(b"a", a=-0.5, b=-9.5), step(b"b", a=-10.4999, b=-0.5)]

    found = kinship(ours, cold)

    assert found.parts_at is None
    assert found.share == pytest.approx(1e-5, rel=0.01)


def test_a_near_tie_may_part_two_runs() -> None:
    ours = [step(b"a", a=-0.70001, b=-0.70002, c=-9.0), step(b"x", x=-1.0, y=-9.0)]
    cold = [step(b"b", a=-0.70002, b=-0.70001, c=-9.0), step(b"y", x=-9.0, y=-1.0)]

    assert kinship(ours, cold).parts_at == 0


@pytest.mark.parametrize(
    ("ours", "cold", "why"),
    [
        # Another token although the logits are the same: the run was not greedy, or not the same.
        (step(b"b", a=-0.1, b=-3.0), step(b"a", a=-0.1, b=-3.0), "are 2.9 apart, more than twice"),
        # The same token from other logits: a wrong state that has not shown yet.
        (step(b"a", a=-0.1, b=-9.0), step(b"a", a=-0.2, b=-9.0), "logits differ by 0.1, more than"),
        (step(b"c", c=-0.1, b=-9.0), step(b"a", a=-0.1, b=-9.0), "b'a' is not even among"),
        (step(b"c", c=-0.1), step(b"a", a=-0.1, b=-9.0), "share none"),
    ],
)
def test_runs_that_differ_by_more_than_a_near_tie_are_told_so(
    ours: Step, cold: Step, why: str
) -> None:
    with pytest.raises(AssertionError, match=why):
        kinship([ours], [cold])


def test_a_run_that_ends_early_is_no_near_tie() -> None:
    one = step(b"a", a=-0.1, b=-9.0)

    with pytest.raises(AssertionError, match="ends after 1 tokens and the other after 2"):
        kinship([one], [one, one])
