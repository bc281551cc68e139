"""Time to the first token of a resumed turn, against a cold prefill of the conversation so far.

From the arrival of the messages: rendering and tokenising are part of it, HTTP is not.
"""

from collections.abc import Iterator

from report import Figure, Options, against
from served import Outcome, a_system_prompt, chat_request, parts_of, serve

from anchorline.application.admission import Admission
from anchorline.application.scheduler import Scheduler
from anchorline.domain.conversation import Message
from anchorline.domain.entry import Source

ANSWER_TOKENS_MAX = 32
SIZES = ((1024, 7), (4096, 5))
"""Tokens and repetitions: fewer of the long ones, whose cold prefill takes smollm2 ten seconds."""

SIZES_QUICK = ((512, 2),)

QUESTION = Message("user", "What is the capital of France?")
NEXT = Message("user", "What is the capital of Italy?")
EDITED = Message("user", "What is the capital of Spain?")


def figures(options: Options) -> Iterator[Figure]:
    """A next turn, and an edit of the last message, at 1k and 4k tokens."""
    for model in options.models:
        parts = parts_of(model)
        admission, scheduler = parts.admission(), parts.scheduler()
        for tokens, repetitions in SIZES_QUICK if options.quick else SIZES:
            yield from _figures(options, model, admission, scheduler, tokens, repetitions)


def _figures(
    options: Options,
    model: str,
    admission: Admission,
    scheduler: Scheduler,
    tokens: int,
    repetitions: int,
) -> Iterator[Figure]:
    cold: list[Outcome] = []
    following: list[Outcome] = []
    edited: list[Outcome] = []
    for number in range(repetitions):
        options.progress(f"ttft: {model}, {tokens} tokens, {number + 1} of {repetitions}")
        salt, seed = f"ttft {tokens} {number}", tokens + number

        def ask(*messages: Message, salt: str = salt) -> Outcome:
            request = chat_request(admission, messages, max_tokens=ANSWER_TOKENS_MAX, salt=salt)
            return serve(scheduler, request)

        system = a_system_prompt(admission, tokens, seed)
        cold.append(ask(system, QUESTION))
        history = (system, QUESTION, cold[-1].message)
        following.append(ask(*history, NEXT))
        edited.append(ask(*history, EDITED))
    yield _figure(model, "next turn", tokens, following, cold, Source.END)
    yield _figure(model, "last message edited", tokens, edited, cold, Source.RESIDENT)


def _figure(
    model: str,
    name: str,
    tokens: int,
    resumed: list[Outcome],
    cold: list[Outcome],
    source: Source,
) -> Figure:
    sources = {outcome.finished.decision.source for outcome in resumed}
    assert sources == {source}, f"{name} of {model} resumed from {sources}: not what is measured"
    ours, other = _ttft(resumed), _ttft(cold)
    reread = sorted(outcome.finished.decision.reread for outcome in resumed)
    what = f", rereads {reread[len(reread) // 2]}"
    return Figure(
        model, f"TTFT of {name} / cold, {tokens:,} tokens", ours, other, against(ours, other) + what
    )


def _ttft(outcomes: list[Outcome]) -> list[float]:
    return [outcome.finished.timings.ttft_s for outcome in outcomes]
