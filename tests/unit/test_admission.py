"""What may be asked, and which field an error names."""

import math

import pytest

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.manual_clock import ManualClock
from anchorline.adapters.memory.toy_tokenizer import ToyTokenizer
from anchorline.application.admission import Admission, Sources
from anchorline.application.calls import (
    ChatCall,
    CompletionCall,
    GenerationWish,
    SamplingWish,
)
from anchorline.domain.conversation import Conversation, Message
from anchorline.domain.errors import PromptTooLong, RequestError
from anchorline.domain.sampling import SamplingParams
from anchorline.domain.tokens import token_ids

WINDOW = 128


def admission(max_tokens_default: int | None = None) -> Admission:
    engine = CheckableEngine(window=WINDOW, vocabulary=300, model="toy")
    numbers = iter(range(1000))
    return Admission(
        engine.profile,
        ToyTokenizer(),
        ManualClock(),
        Sources(request_id=lambda: f"r{next(numbers)}", seed=lambda: 42),
        SamplingParams(temperature=0.6, top_p=0.9),
        max_tokens_default,
    )


def complete(prompt: str = "hello", **how: object) -> CompletionCall:
    return CompletionCall(prompt, GenerationWish(**how))  # type: ignore[arg-type]


def sampled(**how: object) -> CompletionCall:
    return complete(sampling=SamplingWish(**how))  # type: ignore[arg-type]


def test_what_a_request_does_not_say_comes_from_the_model() -> None:
    request = admission().completion(complete())

    assert request.sampling.temperature == 0.6
    assert request.sampling.top_p == 0.9
    assert request.sampling.seed == 42
    assert request.max_tokens == WINDOW - len(request.prompt)


def test_what_a_request_says_wins_even_where_it_is_zero() -> None:
    request = admission().completion(sampled(temperature=0.0, seed=0, top_k=0))

    assert request.sampling.temperature == 0.0
    assert request.sampling.seed == 0


def test_an_answer_is_cut_to_what_the_window_holds() -> None:
    request = admission().completion(complete(max_tokens=100_000))

    assert len(request.prompt) + request.max_tokens == WINDOW


def test_a_default_length_holds_for_requests_that_name_none() -> None:
    assert admission(16).completion(complete()).max_tokens == 16
    assert admission(16).completion(complete(max_tokens=20)).max_tokens == 20


def test_ids_are_unique() -> None:
    one = admission()

    assert one.completion(complete()).id != one.completion(complete()).id


def test_a_prompt_may_fill_the_window_but_for_one_token() -> None:
    fits = CompletionCall(token_ids([1] * (WINDOW - 1)))

    assert admission().completion(fits).max_tokens == 1
    with pytest.raises(PromptTooLong) as refused:
        admission().completion(CompletionCall(token_ids([1] * WINDOW)))
    assert refused.value.field == "prompt"
    assert refused.value.code == "context_length_exceeded"
    assert str(WINDOW) in str(refused.value)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (sampled(temperature=-0.1), "temperature"),
        (sampled(temperature=2.1), "temperature"),
        (sampled(temperature=math.nan), "temperature"),
        (sampled(top_p=1.5), "top_p"),
        (sampled(top_k=-2), "top_k"),
        (sampled(min_p=-1.0), "min_p"),
        (sampled(repetition_penalty=0.0), "repetition_penalty"),
        (sampled(presence_penalty=3.0), "presence_penalty"),
        (sampled(frequency_penalty=-3.0), "frequency_penalty"),
        (sampled(top_logprobs=21), "top_logprobs"),
        (sampled(logit_bias={"x": 1.0}), "logit_bias.x"),
        (sampled(logit_bias={"300": 1.0}), "logit_bias.300"),
        (sampled(logit_bias={"3": 101.0}), "logit_bias.3"),
        (sampled(logit_bias={"3": math.nan}), "logit_bias.3"),
        (complete(max_tokens=-1), "max_tokens"),
        (complete(stop=("",)), "stop.0"),
        (complete(stop=("a", "b" * 2000)), "stop.1"),
        (complete(stop=tuple("abcdefghijklmnopq")), "stop"),
        (complete(session="s" * 2000), "session_id"),
        (complete(cache_salt="s" * 2000), "cache_salt"),
        (complete(model="gpt-4"), "model"),
        (complete(""), "prompt"),
        (CompletionCall(token_ids([5, 300])), "prompt.1"),
    ],
)
def test_an_error_names_the_field(call: CompletionCall, field: str) -> None:
    with pytest.raises(RequestError) as refused:
        admission().completion(call)

    assert refused.value.field == field


def test_an_unknown_model_has_a_code_of_its_own() -> None:
    with pytest.raises(RequestError) as refused:
        admission().completion(complete(model="gpt-4"))

    assert refused.value.code == "model_not_found"


def test_a_conversation_without_messages_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        admission().chat(ChatCall(Conversation(())))

    assert refused.value.field == "messages"


def test_a_chat_says_how_its_answer_is_to_be_read() -> None:
    call = ChatCall(Conversation((Message("user", "hi"),)), GenerationWish(cache_salt="a"))

    request = admission().chat(call)

    assert request.chat
    assert not request.tools
    assert request.namespace.salt == "a"
