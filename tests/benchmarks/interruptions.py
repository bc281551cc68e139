"""Time to the first token of a long conversation's next turn, after others had its only slot.

Against the same turn of the same conversation on a second server, which nobody else asks anything:
so both read as many tokens from the same line. From the messages to the logits that the first token
is drawn from: rendering, tokenising, bringing state back and reading what is new. By the clock, and
in time of all cores of this process, which says much the same on a machine that others use.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from report import Figure, Options, against
from served import GREEDY, Cost, Moment, a_system_prompt, a_text, now, parts_of, run

from anchorline.adapters.telemetry.prometheus import PrometheusTelemetry
from anchorline.application.admission import Admission
from anchorline.application.calls import ChatCall, GenerationWish
from anchorline.application.limits import Limits
from anchorline.application.request import Decision, Event, Prefilling
from anchorline.application.scheduler import Scheduler
from anchorline.container import Server
from anchorline.domain.anchor_budget import AnchorBudget
from anchorline.domain.byte_size import GIB
from anchorline.domain.conversation import Conversation, Message
from anchorline.domain.entry import Source, Tier
from anchorline.settings import ServeSettings

RAM_BYTES: Final = 4 * GIB
ANSWER_TOKENS_MAX: Final = 16
SIZES: Final = ((1024, 9), (4096, 5))
"""Tokens of the conversation's first prompt, and repetitions."""

SIZES_QUICK: Final = ((512, 2),)
TARGET: Final = "at most 1.3"

_COUNTRIES: Final = (
    "France Italy Spain Poland Norway Greece Egypt Kenya Peru Chile Cuba India China Japan Nepal "
    "Ghana Mali Chad Oman Iraq Iran Qatar Malta Fiji"
).split()


@dataclass(slots=True)
class Talk:
    """One conversation, as its client has it."""

    session: str
    messages: list[Message] = field(default_factory=list[Message])
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was served, and what it took to its first token."""

    cost: Cost
    prompt: int
    decision: Decision
    answer: Message


class Box:
    """A server with one slot, and who talks to it."""

    def __init__(self, parts: Server, tokens: int, seed: int) -> None:
        """Begins two conversations of such a length, and half of it; each has the slot once."""
        budget = AnchorBudget(ServeSettings().anchor_bytes_max)
        limits = Limits(queue_max=1, anchors=budget, cache_enabled=True, ram_bytes_max=RAM_BYTES)
        self._admission: Admission = parts.admission()
        self._scheduler = Scheduler(
            parts.engine(), parts.tokenizer(), parts.clock(), PrometheusTelemetry(), limits
        )
        self._tokens, self._seed = tokens, seed
        self._other = Talk("other", [a_system_prompt(self._admission, tokens // 2, seed + 1)])
        self._long = Talk("long", [a_system_prompt(self._admission, tokens, seed)])
        self.turn(self._other)
        self.turn()

    def turn(self, talk: Talk | None = None) -> Asked:
        """The next turn of a conversation; by default the long one's."""
        talk = talk or self._long
        country = _COUNTRIES[talk.asked % len(_COUNTRIES)]
        talk.asked += 1
        talk.messages.append(Message("user", f"What is the capital of {country}?"))
        asked = self._ask(talk.messages, talk.session)
        talk.messages.append(asked.answer)
        return asked

    def another_session(self) -> None:
        """The other conversation goes on."""
        self.turn(self._other)

    def title(self) -> None:
        """A short request that has nothing in common with anything."""
        self._seed += 2
        self._ask([Message("user", f"Write a title for: {a_text(12, self._seed)}")], None)

    def compaction(self) -> None:
        """One user message about as long as the conversation, of the same session."""
        self._seed += 2
        text = a_system_prompt(self._admission, self._tokens - 64, self._seed).content
        self._ask([Message("user", f"Summarize what was said. {text}")], self._long.session)

    def all_of_them(self) -> None:
        """One after the other."""
        self.another_session()
        self.title()
        self.compaction()

    def close(self) -> None:
        """Give the engine's copies back: another box comes after this one."""
        self._scheduler.clear_ram()

    def _ask(self, messages: list[Message], session: str | None) -> Asked:
        start, first = now(), list[Moment]()

        def seen(event: Event) -> None:
            if isinstance(event, Prefilling) and event.done == event.total:
                first.append(now())

        wish = GenerationWish(sampling=GREEDY, max_tokens=ANSWER_TOKENS_MAX, session=session)
        request = self._admission.chat(ChatCall(Conversation(tuple(messages)), wish))
        outcome = run(self._scheduler, request, seen)
        cost = start.until(first[0], 1)
        finished = outcome.finished
        return Asked(cost, finished.usage.prompt, finished.decision, outcome.message)


INTERRUPTIONS: Final[Mapping[str, Callable[[Box], None]]] = {
    "another session's turn": Box.another_session,
    "a title request": Box.title,
    "a compaction": Box.compaction,
    "all three": Box.all_of_them,
}


def figures(options: Options) -> Iterator[Figure]:
    """Each interruption by itself, and all of them."""
    for model in options.models:
        servers = parts_of(model), parts_of(model)
        for tokens, repetitions in SIZES_QUICK if options.quick else SIZES:
            for name, interrupt in INTERRUPTIONS.items():
                options.progress(f"interruptions: {model}, {tokens} tokens, {name}")
                busy, quiet = (Box(parts, tokens, seed=tokens) for parts in servers)
                yield from _figures(model, busy, quiet, name, interrupt, repetitions)
                busy.close()
                quiet.close()


def _figures(
    model: str,
    busy: Box,
    quiet: Box,
    name: str,
    interrupt: Callable[[Box], None],
    repetitions: int,
) -> Iterator[Figure]:
    tokens = quiet.turn().prompt
    busy.turn()
    after: list[Asked] = []
    undisturbed: list[Asked] = []
    for _ in range(repetitions):
        interrupt(busy)
        after.append(busy.turn())
        undisturbed.append(quiet.turn())
    for ours, other in zip(after, undisturbed, strict=True):
        assert other.decision.source is Source.END, other.decision
        assert ours.decision.tier is Tier.RAM, ours.decision
        assert ours.prompt == other.prompt, "two conversations"
    most = [max(one.decision.reread for one in kind) for kind in (after, undisturbed)]
    what = f", rereads {most[0]} and {most[1]} at most"
    title = f"TTFT of a next turn after {name} / undisturbed, {tokens:,} tokens"
    measured: Mapping[str, Callable[[Cost], float]] = {
        "wall": lambda cost: cost.wall_s,
        "CPU": lambda cost: cost.cpu_s,
    }
    for clock, seconds in measured.items():
        ours_s = [seconds(one.cost) for one in after]
        other_s = [seconds(one.cost) for one in undisturbed]
        medians = against(ours_s, other_s) + what
        yield Figure(model, f"{title}, {clock}", ours_s, other_s, medians, TARGET)
